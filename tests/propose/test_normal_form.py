"""The form in which edits see a kernel: without branches that every launch decides, helpers, pairs and while loops."""

from __future__ import annotations

from dataclasses import replace

import edit_seeds as seeds
import pytest

from kernelsearch.core.types import LaunchFact, TensorFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis.folding import fold_branches, read_launched, split_pairs
from kernelsearch.propose.analysis.inlining import inline_helpers
from kernelsearch.propose.analysis.loop_forms import count_elements, count_while_loops, name_loops_alike
from kernelsearch.propose.edits import EDITS, NotApplicable, edit_named
from kernelsearch.verify import gate

FLAGS = "column_moments_flags"
X = TensorFact("fp32", (70, 20), (20, 1))
CONDITIONS = ("SWISH == True", "MODE == 'moments'", "scale_ptr is None")


def launched(*others: dict):
    """The facts of the kernel with flags, with one launch as its launcher makes it and one for each of others."""
    args = dict(
        x_ptr=X, scale_ptr=None, mean_ptr=X, var_ptr=X, SWISH=True, MODE="moments", BLOCK_ROWS=16, BLOCK_COLS=16
    )
    launches = [LaunchFact(f"{FLAGS}_kernel", {**args, **other}) for other in ({}, *others)]
    traces = {str(at): Trace(str(at), (launch,)) for at, launch in enumerate(launches)}
    return replace(seeds.task(FLAGS), traces=traces, sites=(f"{FLAGS}_kernel",), config={"BLOCK_ROWS": 16})


def apply(edit: str, facts) -> list[Kernel]:
    result = edit_named(edit).apply(Kernel.parse(facts.seed), facts)
    return [] if isinstance(result, NotApplicable) else [rewrite.kernel for rewrite in result]


@pytest.mark.slow
def test_flags_helpers_and_pairs_are_seen_through_and_results_stay_right():
    facts = launched()
    made = {edit.name: apply(edit.name, facts) for edit in EDITS}
    assert len(made["fused_passes"]) == len(made["split_reduction"]) == 2 and made["peel_tail"]
    for name in ("fused_passes", "split_reduction", "peel_tail"):
        for kernel in made[name]:
            assert gate.check(kernel.render()).accepted
            assert "if " not in kernel.code and "square_apart" not in kernel.code and "activate" not in kernel.code
            for function in kernel.functions:
                assert all(f"tl.static_assert({c})" in function.text for c in CONDITIONS)
    seeds.assert_right(FLAGS, [k for every in made.values() for k in every])


def test_assertions_stay_with_what_is_made_of_a_kernel():
    facts = launched()
    (lanes,) = [k for k in apply("fused_passes", facts) if "_lanes" in k.code]
    for edit in ("split_reduction", "loop_stages", "persistent"):
        result = edit_named(edit).apply(lanes, facts)
        for function in result[0].kernel.functions:
            assert [function.text.count(f"tl.static_assert({c})") for c in CONDITIONS] == [1, 1, 1], edit


@pytest.mark.parametrize(
    "other", [{"SWISH": False}, {"MODE": "nothing"}, {"scale_ptr": X}], ids=["flag", "word", "argument"]
)
def test_what_differs_between_launches_is_kept(other):
    (name,) = other
    for kernel in [k for edit in EDITS for k in apply(edit.name, launched(other))]:
        assert f"static_assert({name}" not in kernel.code


def test_what_a_config_changes_or_nobody_launches_is_not_known():
    launches = [LaunchFact("k", {"BLOCK": 64, "FLAG": True, "n": 7, "p": X, "q": None, "r": 1.5})] * 2
    known = read_launched(launches, ("BLOCK", "FLAG"), ("BLOCK",))
    assert known["FLAG"] is True and known["q"] is None and "p" in known
    assert not {"BLOCK", "n", "r"} & set(known)
    assert read_launched([], ("FLAG",), ()) == {}
    assert "FLAG" not in read_launched([*launches, LaunchFact("k", {"FLAG": 1})], ("FLAG",), ())


def function(body: str, params: str = "p, q, n, A: tl.constexpr, B: tl.constexpr") -> str:
    return f"@triton.jit\ndef f({params}):\n" + "".join(f"    {line}\n" for line in body.splitlines())


@pytest.mark.parametrize(
    ("test", "left"),
    [
        ("A", True), ("not A", False), ("A and n > 2", None), ("A or n > 2", True), ("not A and n > 2", False),
        ("B == 'x'", True), ("B == 'y' or not A", False), ("n", None), ("q is None", True), ("q is not None", False),
        ("p is None", False), ("p", None), ("(A is True) == (B != 'y')", True), ("A % 2 == 1", True), ("A > B", None),
    ],
)  # fmt: skip
def test_a_branch_is_folded_if_the_launches_decide_it(test, left):
    known = read_launched([LaunchFact("f", {"A": True, "B": "x", "p": X, "q": None, "n": 7})], ("A", "B"), ())
    folded = fold_branches(function(f"if {test}:\n    x = 1\nelse:\n    x = 2\ny = 3 if {test} else 4"), known)
    if left is None:
        assert folded is None
    else:
        text, conditions = folded
        assert "if" not in text and (f"x = {1 if left else 2}" in text) and (f"y = {3 if left else 4}" in text)
        assert conditions and all(c.split()[0] in test for c in conditions)


TURNS = {
    "for k in tl.static_range(2):\n    w = k + n\n    y += w": "w_turn_0 = 0 + n\ny += w_turn_0\n"
    "w = 1 + n\ny += w\nk = 1\n",
    "for k in tl.static_range(SIZE, 0, -1):\n    y *= k": "y *= 2\ny *= 1\nk = 1\n",
    "for k in tl.static_range(0):\n    y += k": "",
    "for k in tl.static_range(1):\n    if k == SIZE - 2:\n        y += 1": "y += 1\nk = 0\n",
    "for k in tl.static_range(n):\n    y += k": None,
    "for k in tl.static_range(99):\n    y += k": None,
    "for k in tl.static_range(2):\n    k += 1": None,
    "for k in range(2):\n    y += k": None,
}


@pytest.mark.parametrize("loop", TURNS)
def test_turns_of_a_static_loop_are_written_out_if_the_launches_decide_their_number(loop):
    head = "def f(y, n, SIZE: tl.constexpr):\n"
    lines = "".join(f"    {line}\n" for line in f"{loop}\ntl.store(n, y)".splitlines())
    folded, made = fold_branches(head + lines, {"SIZE": 2}), TURNS[loop]
    if made is None:
        assert folded is None
    else:
        assert folded[0] == head + "".join(f"    {line}\n" for line in f"{made}tl.store(n, y)".splitlines())
        assert folded[1] == (["SIZE == 2"] if "SIZE" in loop else [])


def test_a_name_that_the_function_assigns_is_not_the_argument():
    assert fold_branches(function("A = n > 3\nif A:\n    x = 1"), {"A": True}) is None


@pytest.mark.parametrize(
    ("line", "parts"),
    [("a, b = n, 2", ["a = n", "b = 2"]), ("a, b = b, a", None), ("(a, b) = (1, 2)", ["a = 1", "b = 2"]),
     ("a, b = g(n)", None), ("a, b = (n, a)", None)],
)  # fmt: skip
def test_pairs_are_two_statements(line, parts):
    text = split_pairs(function(line))
    assert (text is None) == (parts is None) and all(f"    {p}\n" in text for p in parts or ())


@pytest.mark.parametrize(
    ("loop", "made"),
    [
        ("i = 0\nwhile i < n:\n    tl.store(p + i, 1)\n    i += A", "for i in range(0, n, A):"),
        ("i = n\nx = 2\nwhile i < B:\n    tl.store(p + i, x)\n    i = i + 4", "for i in range(n, B, 4):"),
        ("i = 0\nwhile i <= n:\n    tl.store(p + i, 1)\n    i += A", None),
        ("i = 0\nwhile i < n:\n    i += A\n    tl.store(p + i, 1)", None),
        ("i = 0\nwhile i < n:\n    n -= 1\n    i += A", None),
        ("i = 0\nwhile i < n:\n    tl.store(p + i, 1)\n    i += A\ntl.store(p, i)", None),  # its last value is used
        ("i = 0\nn = i + n\nwhile i < n:\n    tl.store(p + i, 1)\n    i += A", None),
        ("i = n\nn = 3\nwhile i < 9:\n    tl.store(p + i, 1)\n    i += A", None),
        ("i = 0\nwhile i < n:\n    A2 = A * i\n    i += A2", None),
    ],
)
def test_while_loops_that_count_are_ranges(loop, made):
    text = count_while_loops(function(loop))
    assert (text is None) == (made is None) and (made is None or (made in text and "while" not in text))


@pytest.mark.parametrize(
    ("loop", "made"),
    [
        ("for i in range(0, tl.cdiv(n, A)):\n    tl.store(p + i * A, 1)", "p + i, 1"),
        ("for i in range((n + A - 1) // A):\n    tl.store(p + A * i, 1)", "p + i, 1"),
        ("for i in range(0, tl.cdiv(n, A)):\n    at = i * A\n    tl.store(p + at, 1)", "for at in range(0, n, A):"),
        ("for i in range(0, tl.cdiv(n, A)):\n    at = i * A\n    tl.store(p + at, i * A)", "at = i"),
        ("for i in range(0, tl.cdiv(n, A)):\n    at = i * A\n    tl.store(p, 1)\ntl.store(p, at)", "at = i"),
        ("for i in range(0, tl.cdiv(n, A)):\n    at = i * A\n    at += 1\n    tl.store(p + at, 1)", "at = i"),
        ("for i in range(0, tl.cdiv(n, A)):\n    tl.store(p + i * B, 1)", None),
        ("for i in range(1, tl.cdiv(n, A)):\n    tl.store(p + i * A, 1)", None),
        ("for i in range(0, tl.cdiv(n, 4)):\n    tl.store(p + i * 4, 1)", None),
        ("for i in range(0, tl.cdiv(n, A)):\n    n = tl.load(p + i * A)", None),
        ("for i in range(0, tl.cdiv(n, A)):\n    tl.store(p + i * A, 1)\ntl.store(q, i)", None),
    ],
)
def test_loops_over_tiles_count_elements(loop, made):
    text = count_elements(function(loop))
    assert (text is None) == (made is None) and (made is None or (made in text and "range(0, n, A)" in text))


def test_loops_over_one_range_have_one_name():
    loops = "for i in range(n):\n    tl.store(p + i, 1)\nfor j in range({}):\n    tl.store(q + {}, 2)"
    assert name_loops_alike(function(loops.format("n", "j"))).count("for i in") == 2
    assert name_loops_alike(function(loops.format("n + 1", "j"))) is None
    assert name_loops_alike(function(loops.format("n", "j + i"))) is None


HELPER = "@triton.jit\ndef g(a, b, C: tl.constexpr = 2):\n    {}\n"


@pytest.mark.parametrize(
    ("body", "call", "made"),
    [
        ("return a + b", "x = g(n, 2)", "x = n + 2"),
        ("return a * C", "x = 1 + g(b=n, a=3)", "x = 1 + 3 * 2"),
        ("a = a + b\n    return a", "x = g(n, n)", "a_1 = n"),  # the caller's n stays
        ("tl.store(a, b)", "g(p, 2)", "tl.store(p, 2)"),
        ("y = a + b\n    return y, a", "x, z = g(n, 2)", "x = y_1"),
        ("return a", "x = g(g(n, 1), 2)", "x = n"),
        ("if a > b:\n        return a\n    return b", "x = g(n, 2)", None),
        ("return a * C", "x = g(n, 2, C=n)", None),  # no constexpr
        ("return a", "x = g(n)", None),
        ("return a", "while g(n, 1) < 3:\n        n += 1", None),
    ],
)
def test_helpers_are_inlined(body, call, made):
    helper = Kernel.parse(seeds.HEAD + HELPER.format(body)).functions[0]
    numbers: dict[str, int] = {}

    def fresh(name: str) -> str:
        numbers[name] = numbers.get(name, 0) + 1
        return f"{name}_{numbers[name]}"

    text = inline_helpers(function(call), {"g": helper}, fresh)
    assert (text is None) == (made is None)
    if made is not None:
        assert "g(" not in text
        assert made in (split_pairs(text) or text)
