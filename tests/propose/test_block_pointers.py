"""Block pointers, which edits see as plain pointers with masks: right at every size, in every way to advance them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import edit_seeds as seeds
import pytest

from kernelsearch.core.types import LaunchFact, TensorFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis.block_pointers import replace_block_pointers
from kernelsearch.propose.analysis.view import View
from kernelsearch.propose.edits import EDITS, NotApplicable

CHEATS = Path(__file__).parents[1] / "cheats"
MATMUL, SOFTMAX = ((CHEATS / f"{name}_honest_block_pointers.py").read_text() for name in ("matmul", "softmax"))
LOOP = MATMUL[MATMUL.index("    for start") : MATMUL.index("    c_block")]
ACCESS = """
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        acc += tl.dot(a, b, input_precision="ieee")
"""
LOOPS = {
    "tiles": LOOP.replace("0, K, BLOCK_K", "0, tl.cdiv(K, BLOCK_K)"),
    "hint": LOOP.replace("K):\n", "K):\n        start = tl.multiple_of(start, BLOCK_K)\n", 1),
    "while": LOOP.replace("for start in range(0, K, BLOCK_K)", "start = 0\n    while start < K")
    + "        start += BLOCK_K",
    "twice": """
    for start in range(0, K, 2 * BLOCK_K):
        for half in range(2):"""
    + ACCESS.replace("\n    ", "\n        ")
    + """
            a_block = tl.advance(a_block, (0, BLOCK_K))
            b_block = tl.advance(b_block, offsets=[BLOCK_K, 0])
    """,
    "number": "    for i in range(2, tl.cdiv(K, BLOCK_K) + 2):"
    + ACCESS
    + """
        a_block = tl.advance(a_block, (0, BLOCK_K))
        b_block = tl.advance(b_block, (BLOCK_K, 0))
    """,
    "branch": """
    a_row = tl.advance(a_block, (0, 0))
    for start in range(0, K, BLOCK_K):
        if start > 0:
            a_row = tl.advance(a_row, (0, BLOCK_K))
            b_block = tl.advance(b_block, (BLOCK_K, 0))"""
    + ACCESS.replace("a_block", "a_row"),
    "made again": """
    for start in range(0, K, BLOCK_K):
        k = start + BLOCK_K
        k = k - BLOCK_K
        tile = tl.make_block_ptr(
            a_ptr, (M, K), (stride_am, stride_ak), (pid_m * BLOCK_M, k), (BLOCK_M, BLOCK_K), (1, 0)
        )
        a_block = tile
        k = K - k
        b_block = tl.make_block_ptr(
            b_ptr, (K, N), (stride_bk, stride_bn), (K - k, pid_n * BLOCK_N), (BLOCK_K, BLOCK_N), (1, 0)
        )
        k = 0"""
    + ACCESS,
    "back": """
    last = (tl.cdiv(K, BLOCK_K) - 1) * BLOCK_K
    a_block = tl.advance(a_block, (0, last))
    b_block = tl.advance(b_block, (last, 0))
    for start in range(last, -BLOCK_K, -BLOCK_K):"""
    + ACCESS
    + """
        a_block = tl.advance(a_block, (0, -BLOCK_K))
        b_block = tl.advance(b_block, (-BLOCK_K, 0))
    a_block = tl.advance(a_block, (0, BLOCK_K))
    acc += tl.sum(tl.load(a_block, boundary_check=(0, 1), padding_option="zero").to(tl.float32), axis=1)[:, None] * 0
    """,
}
LINES = """
import triton
import triton.language as tl

ARGS = {"n_rows": "shape(x_ptr, 0)"}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, n_rows, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    out = tl.make_block_ptr(y_ptr + row * y_stride, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    x_ptr = tl.make_block_ptr(
        base=x_ptr + row * x_stride, shape=(n_cols,), strides=(1,), offsets=(-3,), block_shape=(BLOCK,), order=(0,)
    )
    x_ptr = tl.advance(x_ptr, (3,))
    x = tl.load(x_ptr, boundary_check=(0,), padding_option="nan").to(tl.float32)
    x = tl.where(x == x, x, float("-inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out, (x / tl.sum(x, axis=0)).to(out.dtype.element_ty), boundary_check=(0,))
"""
FAR = """
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    back = tl.cast(70000, tl.int64) * 70000
    shape, width = 70001, 3
    width += n_cols - 3
    x_rows = tl.make_block_ptr(
        x_ptr + row * x_stride - back, (shape, width), (70000, 1), (70000, -3), (1, 4 * BLOCK), (1, 0)
    )
    width -= n_cols
    y_rows = tl.make_block_ptr(
        y_ptr - back + row * y_stride, (shape, n_cols), (70000, 1), (70000, -5), (1, 4 * BLOCK), (1, 0)
    )
    x = tl.load(x_rows, boundary_check=(1,), padding_option="zero").to(tl.float32)
    cols = tl.arange(0, 4 * BLOCK)[None, :] - 3
    x = tl.where((cols >= 0) & (cols < n_cols), x, float("-inf"))
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    y_rows = tl.advance(y_rows, (0, 2))
    tl.store(y_rows, (x / tl.sum(x, axis=1)[:, None]).to(y_ptr.dtype.element_ty), boundary_check=[1])
"""
"""Blocks that begin before their matrix, where row times stride needs 64 bits; a size changes after its use."""

PLAIN = ("plain", "tiles", "lines")


def matmul(loop: str) -> Kernel:
    return Kernel.parse(MATMUL.replace(LOOP, f"{loop.rstrip()}\n"))


def normal(kernel: Kernel, task: str) -> Kernel:
    """The kernel in the form that edits see."""
    view = View(kernel, kernel.functions[0], seeds.task(task)).in_normal_form()
    assert view is not None and "block_ptr" not in view.text and "advance" not in view.text, view
    return view.complete(view.kernel, {})


def assert_right(jobs: list[tuple[str, str, Kernel]]) -> None:
    answers = seeds.ask("runner.py", [{"task": t, "kernel": k.render()} for _, t, k in jobs], interpret=True)
    wrong = [f"{n}: {a['why']}\n{k.render()}" for (n, _, k), a in zip(jobs, answers, strict=True) if not a["ok"]]
    assert not wrong, "\n".join(wrong)


def test_what_is_made_of_block_pointers_is_right():
    """Every way to advance, with block pointers and without them, and what every edit makes of the plain ways."""
    ways = [(name, "matmul", matmul(loop)) for name, loop in {"plain": LOOP, **LOOPS}.items()]
    ways += [("rows", "softmax", Kernel.parse(SOFTMAX)), ("lines", "softmax", Kernel.parse(LINES))]
    ways.append(("far", "softmax", Kernel.parse(FAR)))
    jobs = [*ways, *((f"{name}, normal", task, normal(kernel, task)) for name, task, kernel in ways)]
    made = {}
    for name, task, kernel in ways:
        for edit in EDITS:
            result = edit.apply(kernel, seeds.task(task)) if name in PLAIN else NotApplicable("")
            if not isinstance(result, NotApplicable):
                made.setdefault(name, set()).add(edit.name)
                jobs += [(f"{name}, {edit.name}", task, rewrite.kernel) for rewrite in result]
    for name in ("plain", "tiles"):
        assert {"peel_tail", "drop_mask", "tensor_descriptor", "split_reduction"} <= made[name], made
    assert "drop_mask" in made["lines"], made
    assert_right(jobs)


def function(*body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body)
    return f"@triton.jit\ndef f(x, y, n, flag, BLOCK: tl.constexpr, AXIS: tl.constexpr):\n{lines}"


def seen(*body: str) -> str | None:
    """The function with these statements around two block pointers, of which q can always be seen through."""
    make = "tl.make_block_ptr({0}, (n, n), (n, 1), (0, n), (BLOCK, BLOCK), (1, 0))"
    head = [f"{name} = {make.format(pointer)}" for name, pointer in (("p", "x"), ("q", "y"))]
    names = (f"new_{i}" for i in itertools.count())
    return replace_block_pointers(function(*head, *body, "tl.store(q, 1.0)"), lambda _: next(names))


@pytest.mark.parametrize(
    "body",
    [
        ["v = helper(p)"],
        ["pair = (p, 1)", "tl.store(pair[0], 1.0)"],
        [
            "if flag:",
            f"    p = tl.make_block_ptr(y, {'(n, n), (n, 1), (0, 0), (BLOCK, BLOCK), (1, 0)'})",
            "v = tl.load(p)",
        ],
        ["for i in range(n):", "    p = p if i else p", "    v = tl.load(p)"],
        ["v = tl.load(p, boundary_check=(AXIS, 1))"],
        ["v = tl.load(p, boundary_check=1)"],
        ["step = (0, BLOCK)", "p = tl.advance(p, step)", "v = tl.load(p)"],
        ["while helper(p):", "    v = tl.load(p)"],
    ],
    ids=["function", "tuple", "branch", "choice", "axis", "one axis", "step", "condition"],
)
def test_what_is_not_seen_through_stays(body):
    text = seen(*body)
    assert text.count("make_block_ptr") == "\n".join(["p = make_block_ptr", *body]).count("make_block_ptr"), text
    assert all(line.strip() in text for line in body), text
    assert "tl.store(y + " in text


@pytest.mark.parametrize(
    ("body", "made"),
    [
        (["v = tl.load(p)"], "tl.load(x + new_0[:, None] * n + new_1[None, :])"),
        (["v = tl.load(p, boundary_check=(0,))"], "new_1[None, :], mask=new_0[:, None] < n)"),
        (["v = tl.load(p, (), None, (1,), 'nan')"], "make_block_ptr(x"),
        (["v = tl.load(p, padding_option='nan', boundary_check=(1,))"], "mask=new_1[None, :] < n, other=float('nan'))"),
        (["p = tl.advance(p, (0, -1))", "v = tl.load(p, boundary_check=(1,))"], "mask=(new_2[None, :] >= 0) & (new_2"),
        (["tl.store(p, 1.0, eviction_policy='evict_last')"], "new_1[None, :], 1.0, eviction_policy='evict_last')"),
        (["v = n.to(p.dtype.element_ty)"], "v = n.to(x.dtype.element_ty)"),
    ],
    ids=["no mask", "one axis", "by position", "nan", "before", "store", "dtype"],
)  # fmt: skip
def test_accesses(body, made):
    assert made in seen(*body)


def test_tensors_of_bools_keep_their_block_pointers():
    """A block pointer reads them as bytes."""
    kernel = Kernel.parse(LINES)
    for dtype, left in (("fp32", 0), ("i1", 2)):
        launch = LaunchFact("softmax_kernel", {"x_ptr": TensorFact(dtype, (4, 8), (8, 1))})
        facts = replace(seeds.task("softmax"), traces={"0": Trace("0", (launch,))})
        view = View(kernel, kernel.functions[0], facts)
        assert (view.in_normal_form() or view).text.count("make_block_ptr") == left


def test_a_second_name_for_an_underscore_passes_the_gate():
    view = View(Kernel.parse(SOFTMAX.replace("row", "_")), Kernel.parse(SOFTMAX).functions[0], seeds.task("softmax"))
    assert view.fresh_name("_") == "each_2"
