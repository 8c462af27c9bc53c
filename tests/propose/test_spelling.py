"""How a kernel is spelled does not decide which edits apply: pairs of an edit and a kernel, in five spellings."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import edit_seeds as seeds
import pytest
from respell import SPELLINGS, respell

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis.canonical import canonicalise, find_pointer_params, place_arguments
from kernelsearch.propose.analysis.tree import function_of
from kernelsearch.propose.edits import EDITS, edit_named
from kernelsearch.verify import gate
from turns import take_turn

NAMES = (*seeds.NAMES, *sorted(p.stem for p in (Path(__file__).parent / "edits").glob("*.py")))
PAIRS = [(edit.name, name) for name in NAMES for edit in EDITS]


@cache
def spelled(name: str, spelling: str) -> Kernel:
    return Kernel.parse(respell(seeds.seed(name).render(), spelling))


def apply(edit: str, name: str, spelling: str) -> list[Kernel]:
    result = edit_named(edit).apply(spelled(name, spelling), seeds.task(name))
    return [rewrite.kernel for rewrite in result] if isinstance(result, list) else []


@pytest.mark.slow
def test_edits_apply_however_a_kernel_is_spelled():
    plain = [pair for pair in PAIRS if seeds.variants(*pair)]
    assert len(plain) >= 230
    lost = {s: [pair for pair in plain if not apply(*pair, s)] for s in take_turn(SPELLINGS, 4)}
    for spelling, pairs in lost.items():
        print(f"{spelling:16} {len(plain) - len(pairs)} of {len(plain)}", *(f"{e}({n})" for e, n in pairs))
    assert all(len(pairs) <= 0.05 * len(plain) for pairs in lost.values()), lost


@pytest.mark.slow
def test_results_stay_right_in_every_spelling():
    """The edits that see another text than was written: those that refuse the kernel as it is spelled."""
    spellings = ("commuted", "addresses named", "keywords")
    wanted = {"align_rows", "early_loads", "tensor_descriptor", "sliding_columns", "sliding_rows", "rows_2d"}
    cases = [(e, n, s) for e, n in PAIRS if e in wanted for s in take_turn(spellings, 3)]
    jobs, labels = [], []
    for edit, name, spelling in cases:
        if seeds.variants(edit, name):
            made = apply(edit, name, spelling)[:1]
            jobs += [{"task": name, "kernel": kernel.render()} for kernel in made]
            labels += [(edit, name, spelling)] * len(made)
    assert all(gate.check(job["kernel"]).accepted for job in jobs)
    answers = seeds.ask("runner.py", jobs)
    wrong = [(x, a["why"], j["kernel"]) for x, a, j in zip(labels, answers, jobs, strict=True) if not a["ok"]]
    assert not wrong, f"{len(wrong)} of {len(jobs)}: {wrong[0]}"


HEAD = "@triton.jit\ndef f(p, q, n, eps, s, B: tl.constexpr):\n"


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("x = tl.load(tl.arange(0, B) + i * s + p)", "x = tl.load(p + i * s + tl.arange(0, B))"),
        ("cols = tl.arange(0, B)\nx = tl.load(s * i - 1 + (p + cols))",
         "cols = tl.arange(0, B)\nx = tl.load(p + i * s + cols - 1)"),
        ("at = tl.arange(0, B) + B * tl.program_id(0)\nx = tl.load(p + at)",
         "at = tl.program_id(0) * B + tl.arange(0, B)\nx = tl.load(p + at)"),
        ("at = p + i\nx = tl.load(at)\ny = x + 1", "x = tl.load(p + i)\ny = x + 1"),
        ("at = p + i\nx = tl.load(at)\ny = tl.load(at)", None),  # read twice
        ("at = p + i\ni = i + s\nx = tl.load(at)", "at = p + i\ni += s\nx = tl.load(at)"),
        ("at = p + tl.load(q)\ntl.store(q, 1)\nx = tl.load(at)", None),
        ("for k in range(n):\n    at = p + k\n    x = tl.load(at)", "for k in range(n):\n    x = tl.load(p + k)"),
        ("y = eps + (x + n)", None),  # numbers that are no part of an address keep their order
        ("y = x + y", "y += x"),
        ("i = (tl.program_id(0).to(tl.int64) + s) + n\nx = tl.load(p + i)",
         "i = tl.program_id(0).to(tl.int64) + n + s\nx = tl.load(p + i)"),
        ("c = tl.arange(0, B)\nm = n > c", "c = tl.arange(0, B)\nm = c < n"),
        ("r = tl.arange(0, B)\nc = s * B + r\nd = r[:, None]\nm = c < n",
         "c = s * B + tl.arange(0, B)\nd = tl.arange(0, B)[:, None]\nm = c < n"),
        ("r = tl.arange(0, B)\nc = i + r\nm = r < n", None),  # it is an index itself
        ("c = tl.cast(tl.arange(0, B), tl.int64)", "c = tl.arange(0, B).to(tl.int64)"),
        ("c = tl.cast(n, tl.int64) + tl.cast(B, tl.int64)", None),  # a number has no method
    ],
)  # fmt: skip
def test_the_canonical_spelling(body, made):
    head = HEAD + "    assume = n * s > 0\n"
    text = head + "".join(f"    {line}\n" for line in body.splitlines())
    wanted = made and head + "".join(f"    {line}\n" for line in made.splitlines())
    assert canonicalise(text, ("B",), {}) == wanted
    assert wanted is None or canonicalise(wanted, ("B",), {}) is None


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("x = tl.load(mask=m, pointer=p).to(dtype=tl.float32) + tl.sum(axis=0, input=tl.arange(end=B, start=0))",
         "x = tl.load(p, mask=m).to(tl.float32) + tl.sum(tl.arange(0, B), axis=0)"),
        ("x = tl.maximum(a, b, propagate_nan=c)", None),
        ("x = a.exp().sum(0, keep_dims=True) + (a - b).max(axis=0) + tl.load(p).abs()",
         "x = tl.sum(tl.exp(a), axis=0, keep_dims=True) + tl.max(a - b, axis=0) + tl.abs(tl.load(p))"),
        ("x = a.reshape(4, B).trans().cumsum(1)", "x = tl.cumsum(tl.trans(tl.reshape(a, 4, B)), axis=1)"),
        ("(p + i).atomic_add(a, mask=m)", "tl.atomic_add(p + i, a, mask=m)"),
        ("x = a.cast(tl.float32)", "x = a.to(tl.float32)"),
        ("x = p.load([0, 0]) + p.dtype.is_fp16() + a.to(tl.int32) + libdevice.abs(a) + tl.math.exp(a)", None),
    ],
)  # fmt: skip
def test_functions_stand_for_methods_and_arguments_have_places(line, made):
    assert place_arguments(f"{HEAD}    {line}\n") == f"{HEAD}    {made or line}\n"


def test_programs_are_grouped_where_their_numbers_have_64_bits():
    wide = ((f"tl.program_id({axis})", f"tl.program_id({axis}).to(tl.int64)") for axis in (0, 1))
    made = edit_named("grouped_order").apply(seeds.changed(seeds.seed("matmul"), *wide), seeds.task("matmul"))
    seeds.assert_right("matmul", [rewrite.kernel for rewrite in made])


def test_pointers_are_known_by_what_is_done_with_them():
    text = (
        HEAD
        + "    at = p + n * s + eps + tl.arange(0, B)\n    tl.store(q + tl.arange(0, B), tl.load(at), mask=eps > 1)\n"
    )
    assert find_pointer_params(function_of(text)) == {"p", "q"}
