"""The analysis under the edits: patches keep layout, shapes follow the text, idle lanes are what they are."""

from __future__ import annotations

import ast

import edit_seeds as seeds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import comparisons, find_true_condition
from kernelsearch.propose.analysis.idle import Idle
from kernelsearch.propose.analysis.shapes import Shapes, broadcast_shapes
from kernelsearch.propose.analysis.view import View

TEXT = """@triton.jit
def k(a, b, BLOCK: tl.constexpr):  # the head
    # above
    x = tl.load(a + (b * 2))  # beside
    for i in range(0, b):
        x = x + 1

        # inner
        y = x / 2
    tl.store(a, x)
"""


def test_patch_keeps_comments_and_layout():
    patch = tree.Patch(TEXT)
    body = patch.node.body
    patch.replace_expr(body[1].body[1].value, "x * 0.5")
    patch.insert_before(body[0], "first = 1\n")
    patch.add_param("NEW: tl.constexpr")
    out = patch.text()
    for comment in ("# the head", "# above", "# beside", "# inner"):
        assert comment in out
    assert out.index("# above") < out.index("first = 1") < out.index("x = tl.load")
    assert "y = x * 0.5" in out and "BLOCK: tl.constexpr, NEW: tl.constexpr):" in out


def test_patch_keeps_parentheses_and_several_lines_of_parameters():
    text = TEXT.replace("(a, b, BLOCK: tl.constexpr)", "(\n    a, b,\n    BLOCK: tl.constexpr,\n)")
    patch = tree.Patch(text)
    patch.replace_expr(patch.node.body[0].value.args[0].right, "c + 3")
    patch.add_param("NEW: tl.constexpr")
    assert "a + (c + 3)" in patch.text()
    assert tree.function_of(patch.text()).args.args[-1].arg == "NEW"


def test_patch_replaces_and_removes_statements():
    patch = tree.Patch(TEXT)
    patch.replace_stmt(patch.node.body[1], "z = 1\nw = 2\n")
    patch.replace_stmt(patch.node.body[2], "")
    assert [type(s).__name__ for s in tree.function_of(patch.text()).body] == ["Assign"] * 3


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("1.0", ()),
        ("tl.arange(0, BLOCK)", ("BLOCK",)),
        ("tl.arange(0, BLOCK)[:, None]", ("BLOCK", "1")),
        ("tl.arange(0, M)[:, None] * tl.arange(0, N)[None, :]", ("M", "N")),
        ("tl.sum(tl.zeros([M, N], tl.float32), axis=1)", ("M",)),
        ("tl.sum(tl.zeros([M, N], tl.float32), axis=-2, keep_dims=True)", ("1", "N")),
        ("tl.max(tl.zeros([M], tl.float32))", ()),
        ("tl.dot(tl.zeros([M, K], tl.float16), tl.zeros([K, N], tl.float16))", ("M", "N")),
        ("tl.zeros([M, N], tl.float32).T", ("N", "M")),
        ("tl.load(a + tl.arange(0, M)).to(tl.float32)", ("M",)),
        ("helper(a)", None),
        ("tl.arange(0, M) + tl.arange(0, N)", None),
    ],
)
def test_shapes(text, shape):
    function = tree.function_of(f"def f(a, M, N, K, BLOCK):\n    r = {text}\n")
    assert Shapes(function, ("M", "N", "K", "BLOCK")).names["r"] == shape


def test_a_name_of_two_shapes_is_not_known():
    function = tree.function_of("def f(n, B):\n    x = 0.0\n    for i in range(n):\n        x = x + tl.arange(0, B)\n")
    assert Shapes(function, ("B",)).names["x"] is None


DIMS = st.sampled_from(["1", "M", "N"])


@given(st.tuples(DIMS, DIMS), st.tuples(DIMS, DIMS))
def test_broadcast_gives_what_both_fit_into(a, b):
    both = broadcast_shapes(a, b)
    assert both == broadcast_shapes(b, a)
    fits = all("1" in (x, y) or x == y for x, y in zip(a, b, strict=True))
    assert (both is not None) == fits
    assert broadcast_shapes(a, ()) == a and broadcast_shapes(a, None) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tl.load(p + o, mask=o < n, other=0.0)", "zero"),
        ("tl.load(p + o, mask=o < n)", "any"),
        ("tl.load(p + o, mask=(o < n) & (o > 3), other=float('-inf'))", "-inf"),
        ("tl.exp(tl.load(p + o, mask=o < n, other=float('-inf')) - s)", "zero"),
        ("tl.exp(tl.load(p + o, mask=o < n, other=0.0))", "finite"),
        ("tl.where(o < n, o * 3.0, 0.0)", "zero"),
        ("tl.load(p + o, mask=o < n, other=0.0) * s", "zero"),
        ("tl.load(p + o, mask=o < n, other=0.0) * o", "any"),
        ("-tl.load(p + o, mask=o < n, other=float('inf'))", "-inf"),
        ("float('-inf') - float('-inf')", "any"),
    ],
)
def test_idle_lanes(text, value):
    idle = Idle(lambda c: ast.unparse(c) == "o < n", lambda name: name == "o")
    assert idle.of(tree.expression(text)) == value


def conditions(name: str) -> list[str | None]:
    task = seeds.task(name)
    kernel = seeds.seed(name)
    view = View(kernel, kernel.functions[0], task)
    return list(dict.fromkeys(find_true_condition(view, c) for c in comparisons(view)))


def test_conditions_under_which_masks_are_true():
    assert conditions("softmax") == ["n_cols >= BLOCK"]
    assert conditions("softmax_wide") == ["n_cols % BLOCK == 0"]
    assert conditions("swiglu") == ["grid(0) * BLOCK <= n"]
    assert conditions("matmul") == ["grid(0) * BLOCK_M <= M", "K % BLOCK_K == 0", "grid(1) * BLOCK_N <= N"]


def test_values_are_followed_within_their_block():
    kernel = seeds.drawn(
        "a = x_stride * 2\nfor i in range(0, n_cols):\n    b = a + i\n    a2 = b * 3\n    b2 = a2\nc = a\n"
    )
    view = View(kernel, kernel.functions[0], seeds.facts(kernel.render()))
    loop = view.body[1]
    assert tree.text_of(view.flow.expand(loop.body[2].value, loop.body[2])) == "(x_stride * 2 + i) * 3"
    carried = seeds.drawn("a = 1\nfor i in range(0, n_cols):\n    b = a\n    a = b + 1\n")
    view = View(carried, carried.functions[0], seeds.facts(carried.render()))
    inside = view.body[1].body[0]
    assert tree.text_of(view.flow.expand(inside.value, inside)) == "a", "a loop-carried name has no one value"


def test_a_second_name_for_an_underscore_passes_the_gate():
    kernel = seeds.seed("softmax")
    view = View(Kernel.parse(kernel.render().replace("row", "_")), kernel.functions[0], seeds.task("softmax"))
    assert view.fresh_name("_") == "each_2"


def test_a_patch_leaves_parameters_and_parentheses_as_a_person_has_them():
    patch = tree.Patch(
        "@triton.jit\ndef f(\n    x, n,  # sizes\n    B: tl.constexpr = 4,\n):\n    y = (x < n) & (n < 4)\n"
    )
    left, right = patch.node.body[0].value.left, patch.node.body[0].value.right
    patch.replace_expr(left, "((x < n) | EVEN)")
    patch.replace_expr(right, "True")
    patch.add_param("EVEN: tl.constexpr")
    text = patch.text()
    assert (
        "y = ((x < n) | EVEN) & (True)" in text and "# sizes\n    EVEN: tl.constexpr, B: tl.constexpr = 4,\n):" in text
    )


def test_a_block_of_which_nothing_is_left_passes():
    patch = tree.Patch(
        "def f(x):\n    for i in range(4):\n        # twice\n        y = x\n        z = y\n    # behind\n    a = 1\n"
    )
    for stmt in patch.node.body[0].body:
        patch.replace_stmt(stmt, "")
    assert patch.text() == "def f(x):\n    for i in range(4):\n        pass\n    # behind\n    a = 1\n"
