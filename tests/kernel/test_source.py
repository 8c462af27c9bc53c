"""A kernel file as a value: reading and writing it back, and what its digest sees."""

import ast
import random
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.kernel.source import Kernel, canonicalise, parse_function

CHEATS = Path(__file__).parents[1] / "cheats"
HONEST = sorted(CHEATS.glob("*_honest_*.py"))

BASE = """
import triton
import triton.language as tl

LOG2E: tl.constexpr = 1.4426950408889634

@triton.jit
def helper(x, K: tl.constexpr = 2):
    return x * K

@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0)
    for step in range(0, ROWS):
        x = helper(x) + LOG2E
    tl.store(y_ptr + row * y_stride + cols, x, mask=cols < n_cols)
"""

expressions = st.sampled_from(["(cdiv(n_rows, ROWS),)", "(num_sms * 2,)", "(min(n_cols, 7), 3)", "(shape(x_ptr, 0),)"])
names = st.sampled_from(["BLOCK", "ROWS", "num_warps", "num_stages", "softmax_kernel.num_warps"])
values = st.one_of(st.integers(-(2**40), 2**40), st.booleans(), st.none(), st.sampled_from(["next_power_of_2(n_cols)"]),
                   st.floats(allow_nan=False, allow_infinity=False))  # fmt: skip
specs = st.fixed_dictionaries({}, optional={
    "grid": st.dictionaries(st.sampled_from(["softmax_kernel", "helper"]), expressions),
    "args": st.dictionaries(
        st.just("softmax_kernel"), st.dictionaries(st.sampled_from(["y_stride", "n_cols"]), expressions, min_size=1)
    ),
    "scratch": st.dictionaries(
        st.sampled_from(["p_ptr", "q_ptr"]),
        st.tuples(st.just("float32"), expressions) | st.tuples(st.just("int32"), expressions, st.just(0)),
    ),
    "init": st.dictionaries(st.just("y_ptr"), st.integers(-5, 5)),
    "descriptors": st.dictionaries(st.sampled_from(["x_ptr", "y_ptr"]), st.one_of(*(
        st.tuples(st.sampled_from(["x", "p_ptr"]), expressions, expressions, expressions, *none)
        for none in ((), (st.none(),))
    ))),
    "launches": st.sampled_from([{"": ("softmax_kernel",)}, {"a": ("helper", "softmax_kernel"), "b": ("helper",)}]),
    "space": st.dictionaries(names, st.lists(values, min_size=1, max_size=4).map(tuple)),
    "config": st.dictionaries(names, values),
})  # fmt: skip


@given(specs)
def test_render_and_parse_are_inverse(fields):
    kernel = replace(Kernel.parse(BASE), **fields)
    again = Kernel.parse(kernel.render())
    assert again.digest == kernel.digest
    for name in ("grid", "scratch", "init", "descriptors", "launches", "space", "config", "args"):
        assert getattr(again, name) == getattr(kernel, name), name
    assert again.names == kernel.names and again.render() == kernel.render()


@given(specs, specs)
def test_digests_differ_exactly_when_the_launch_spec_does(one, two):
    a, b = (replace(Kernel.parse(BASE), **fields) for fields in (one, two))
    spec = lambda k: [k.grid, k.args, k.scratch, k.init, k.launches, k.descriptors]  # noqa: E731
    assert (a.digest == b.digest) == (spec(a) == spec(b))


def test_kernels_without_descriptors_keep_the_digest_that_databases_have():
    assert Kernel.parse(BASE).digest == "aa8599e994551896"
    with_all = {"grid": {"softmax_kernel": "(1,)"}, "scratch": {"p_ptr": ("float32", "(1,)")}, "init": {"y_ptr": 0}}
    assert replace(Kernel.parse(BASE), **with_all).digest == "9049cdd3317dc3aa"


@pytest.mark.parametrize("path", HONEST, ids=lambda p: p.stem)
def test_honest_kernels_survive_a_round_trip(path):
    kernel = Kernel.parse(path.read_text())
    assert Kernel.parse(kernel.render()) == replace(kernel, functions=Kernel.parse(kernel.render()).functions)
    assert Kernel.parse(kernel.render()).digest == kernel.digest


def with_noise(text, rng):
    """The same code with comments, docstrings, blank lines and other layout put in at random."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and rng.random() < 0.7:
            node.body.insert(0, ast.Expr(ast.Constant(f"says {rng.random()}")))
    out = []
    for line in ast.unparse(tree).splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if rng.random() < 0.3:
            out.append(rng.choice(["", "   ", f"{indent}# noise {rng.random()}"]))
        if line.lstrip().startswith(("x =", "tl.store")) and rng.random() < 0.5:
            line = line.replace("(", "(\n        ", 1)
        if not line.endswith("(") and "\n" not in line and rng.random() < 0.3:
            line += "  # trailing"
        out.append(line)
    return "\n".join(out) + "\n"


@given(st.integers(0, 10**6))
def test_the_digest_does_not_see_comments_docstrings_or_layout(seed):
    assert Kernel.parse(with_noise(BASE, random.Random(seed))).digest == Kernel.parse(BASE).digest


def one_change(text, rng):
    """The same code with one node changed for another: a number, a name, an operator, an argument, a statement."""
    tree = ast.parse(text)
    functions = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AnnAssign))]
    spots = []
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
                spots.append(lambda n=node: setattr(n, "value", n.value + 1))
            elif isinstance(node, ast.BinOp):
                spots.append(lambda n=node: setattr(n, "op", ast.Div() if not isinstance(n.op, ast.Div) else ast.Add()))
            elif isinstance(node, ast.Name) and node.id != "constexpr":
                spots.append(lambda n=node: setattr(n, "id", n.id + "_"))
            elif isinstance(node, ast.Call) and node.args:
                spots.append(lambda n=node: n.args.pop())
            elif isinstance(node, (ast.arg, ast.keyword)):
                spots.append(lambda n=node: setattr(n, "arg", n.arg + "_"))
            elif isinstance(node, ast.FunctionDef) and len(node.body) > 1:
                spots.append(lambda n=node: n.body.pop())
    rng.choice(spots)()
    return ast.unparse(tree) + "\n"


@given(st.integers(0, 10**6))
def test_the_digest_sees_any_other_change(seed):
    changed = one_change(BASE, random.Random(seed))
    assert Kernel.parse(changed).digest != Kernel.parse(BASE).digest


@pytest.mark.parametrize("value", ["128", "-1.5", "True"])
def test_a_global_is_one_however_it_is_written(value):
    """Triton itself takes the first form only."""
    forms = [f"SIZE = tl.constexpr({value})", f"SIZE: tl.constexpr = {value}", f"SIZE = {value}"]
    kernels = [Kernel.parse(BASE.replace("LOG2E: tl.constexpr = 1.4426950408889634", form)) for form in forms]
    assert len({k.digest for k in kernels}) == 1 and all(forms[0] in k.code for k in kernels)


def test_space_and_config_are_not_in_the_digest_and_order_is_not_either():
    kernel = Kernel.parse(BASE)
    assert kernel.with_changes(space={"BLOCK": (1,)}, config={"BLOCK": 4}).digest == kernel.digest
    assert replace(kernel, functions=kernel.functions[::-1]).digest == kernel.digest
    assert (
        kernel.with_changes(grid={"softmax_kernel": "(a,b)"}).digest
        == kernel.with_changes(grid={"softmax_kernel": "( a, b )"}).digest
    )


def test_entries_and_steps():
    kernel = Kernel.parse(BASE)
    assert kernel.entries == ("softmax_kernel",) and kernel.function("softmax_kernel").calls == {"helper"}
    assert kernel.function("helper").defaults == {"K": 2} and kernel.function("helper").constexprs == ("K",)
    assert kernel.steps_at("softmax_kernel", ("softmax_kernel",)) == ("softmax_kernel",)
    assert kernel.steps_at("other", ("other", "softmax_kernel")) is None
    assert kernel.with_changes(launches={"": ("helper",)}).steps_at("other", ("other",)) == ("helper",)
    assert kernel.with_changes(launches={"": ("helper",)}).steps_at("other", ("other", "more")) is None
    with pytest.raises(KeyError):
        kernel.function("absent")


def test_one_function_replaced():
    kernel = Kernel.parse(BASE)
    new = parse_function("@triton.jit\ndef helper(x, K: tl.constexpr = 2):\n    return x + K\n")
    changed = kernel.with_changes(functions=tuple(new if f.name == "helper" else f for f in kernel.functions))
    assert changed.digest != kernel.digest and changed.names == kernel.names
    assert "return x + K" in changed.render() and "return x * K" not in changed.render()
    assert parse_function("@triton.jit\ndef f(a, n: tl.int64, *, B: tl.constexpr): pass\n").types == {"n": "i64"}


def test_canonical_source_is_idempotent():
    text = canonicalise(BASE)
    assert canonicalise(text) == text and "#" not in text


@pytest.mark.parametrize("text, said", [
    ("def (", "not Python (line 1)"),
    ("x = 1\n", "no @triton.jit function"),
    ("class A: pass\n", "line 1: a kernel file holds imports, literals and jit functions, not ClassDef"),
    ("import os\nos.system('x')\n", "line 2: .*not Expr"),
    ("BLOCK = 4\nfor i in (): pass\n", "not For"),
    ("@triton.jit\ndef a(): pass\n@triton.jit\ndef a(): pass\n", "two functions have the same name"),
    ("GRID = [x for x in y]\n@triton.jit\ndef a(): pass\n", "line 1: GRID must be a literal"),
    ("GRID = 5\n@triton.jit\ndef a(): pass\n", "GRID must be an expression"),
    ("GRID = {'b': '(1,)'}\n@triton.jit\ndef a(): pass\n", "GRID must be an expression"),
    ("ARGS = [1]\n@triton.jit\ndef a(): pass\n", "ARGS must be a dict"),
    ("ARGS = {'n': 1.5}\n@triton.jit\ndef a(n): pass\n", "ARGS must be expressions"),
    ("SCRATCH = {'p': 'float32'}\n@triton.jit\ndef a(p): pass\n", "SCRATCH must be"),
    ("INIT = {'p': 'x'}\n@triton.jit\ndef a(p): pass\n", "INIT must be numbers"),
    ("DESCRIPTORS = [1]\n@triton.jit\ndef a(p): pass\n", "DESCRIPTORS must be"),
    ("DESCRIPTORS = {'p': ('x', '(1,)', '(1,)')}\n@triton.jit\ndef a(p): pass\n", "DESCRIPTORS must be"),
    ("DESCRIPTORS = {'p': ('x', '(1,)', '(1,)', '(1,)', 0)}\n@triton.jit\ndef a(p): pass\n", "DESCRIPTORS must be"),
    ("DESCRIPTORS = {'p': ('x', '(1,)', 1, '(1,)')}\n@triton.jit\ndef a(p): pass\n", "DESCRIPTORS must be"),
    ("LAUNCHES = ['b']\n@triton.jit\ndef a(p): pass\n", "LAUNCHES must be functions of this file"),
    ("LAUNCHES = 5\n@triton.jit\ndef a(p): pass\n", "LAUNCHES must be a list"),
    ("SPACE = {'B': []}\n@triton.jit\ndef a(p): pass\n", "SPACE must be a non-empty list"),
    ("SPACE = {'B': [[1]]}\n@triton.jit\ndef a(p): pass\n", "SPACE must be a non-empty list"),
    ("SPACE = {'a': {'B': 4}}\n@triton.jit\ndef a(p): pass\n", "SPACE must be a non-empty list"),
    ("SPACE = {'a': {'B': []}}\n@triton.jit\ndef a(p): pass\n", "SPACE must be a non-empty list"),
    ("CONFIG = {'a': {'B': [1]}}\n@triton.jit\ndef a(p): pass\n", "CONFIG must be a number"),
    ("CONFIG = {'B': [1]}\n@triton.jit\ndef a(p): pass\n", "CONFIG must be a number"),
    ("LAUNCHES = [['b']]\n@triton.jit\ndef a(p): pass\n", "LAUNCHES must be"),
    ("GRID = {1: '(1,)'}\n@triton.jit\ndef a(p): pass\n", "GRID must be"),
    ("ARGS = {'a': {'n': [1]}}\n@triton.jit\ndef a(n): pass\n", "ARGS must be expressions"),
    ("x" * 10 + "\0", "not Python"),
    ("(" * 5000 + ")" * 5000, "not Python"),
])  # fmt: skip
def test_what_is_no_kernel_file_is_said_with_its_line(text, said):
    with pytest.raises(KernelSyntaxError, match=said.replace("(", r"\(").replace(")", r"\)")):
        Kernel.parse(textwrap.dedent(text))


@given(st.one_of(st.text(max_size=80), st.builds(lambda n, v: f"{n} = {v!r}\n@triton.jit\ndef a(x): pass\n",
       st.sampled_from(["GRID", "ARGS", "SCRATCH", "INIT", "DESCRIPTORS", "LAUNCHES", "SPACE", "CONFIG"]),
       st.recursive(st.one_of(st.none(), st.integers(), st.text(max_size=3), st.floats(), st.binary(max_size=2)),
                    lambda i: st.one_of(st.lists(i, max_size=3), st.dictionaries(st.text(max_size=2), i, max_size=3)),
                    max_leaves=5))))  # fmt: skip
def test_no_text_does_worse_than_a_syntax_error(text):
    try:
        kernel = Kernel.parse(text)
    except KernelSyntaxError:
        return
    assert len(kernel.digest) == 16
