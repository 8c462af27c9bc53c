"""What a recorded call says of sizes, layouts and values."""

import pytest
import torch

from kernelsearch.worker.launcher.recorded_sizes import name_sizes
from kernelsearch.worker.launcher.recorded_tensor import write_tensor

CUBE = torch.empty(4, 4, 4)


def scores(ids, table):
    return table[ids].sum(-1)


@pytest.mark.parametrize(
    ("function", "inputs", "sizes"),
    [
        (lambda x: x.cumsum(-1), [CUBE], "a0 a1 a2"),  # equal by chance
        (torch.matmul, [CUBE, CUBE[0]], "a0 a1 a2 / a2 b1"),
        (lambda a, b, c: a + b * c, [CUBE[0]] * 3, "a0 a1 / a0 a1 / a0 a1"),
        (lambda a, b, c: a @ b.T + c, [CUBE[0]] * 3, "a0 a1 / b0 a1 / a0 b0"),
        (lambda x: x.view(4, 16), [CUBE], "_ _ _"),  # for this size alone
        (lambda x: x.view(x.shape[0], 2, -1), [CUBE[0]], "a0 a1"),  # an even one
        (torch.nn.Linear(4, 6), [CUBE[0]], "a0 _"),
        (lambda a, b: a[a > 0].sum() * b if a.sum().item() else b, [CUBE[0], torch.empty(3)], "a0 a0 / b0"),
        (torch.nn.functional.scaled_dot_product_attention, [CUBE[None]] * 3, "_ a1 a2 a3 / _ a1 b2 a3 / _ a1 b2 c3"),
        (scores, [torch.zeros(4, dtype=torch.int64), CUBE[0]], "a0 / b0 b1"),
    ],
)
def test_sizes_are_one_where_the_function_needs_it(function, inputs, sizes):
    given = dict(zip("abc", inputs))
    found = name_sizes(function, given)
    words = [" ".join(found.get((n, i), "_").replace("_", "") or "_" for i in range(v.ndim)) for n, v in given.items()]
    assert " / ".join(words) == sizes


BASE = torch.arange(4 * 6 * 20.0).view(4, 6, 20)
LAYOUTS = {
    "chunk": BASE.chunk(2, -1)[1],
    "gap that is no multiple": BASE[..., 3:10],
    "rows apart": BASE[:, ::2],
    "neighbours apart": BASE[..., 0],
    "every fifth": BASE[..., ::5],
    "transposed chunk": BASE.chunk(2, -1)[0].transpose(0, 2),
    "heads of packed rows": BASE.view(4, 6, 2, 10).transpose(1, 2),
    "dense": BASE,
    "a number": torch.tensor(2.0),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_is_that_of_the_call_and_is_kept_at_other_sizes(name):
    value = LAYOUTS[name]
    sizes = {("x", axis): f"x_{axis}" for axis, n in enumerate(value.shape) if n > 1}
    numbers = {label: value.shape[axis] for (_, axis), label in sizes.items()}
    text, note = write_tensor("x", value, sizes, numbers)
    made = eval(text, {"torch": torch, **numbers})
    assert not note and made.shape == value.shape
    strides = [[s for s, n in zip(t.stride(), value.shape) if n > 1] for t in (made, value)]
    assert strides[0] == strides[1]
    larger = eval(text, {"torch": torch, **{label: 2 * n for label, n in numbers.items()}})
    assert larger.shape == tuple(2 * n if n > 1 else 1 for n in value.shape)
    assert larger.is_contiguous() == value.is_contiguous()


@pytest.mark.parametrize("value", [torch.empty(40).as_strided((4, 6), (3, 1)), torch.empty(1, 6).expand(4, 6)])
def test_what_is_no_plain_view_is_said(value):
    text, note = write_tensor("x", value, {}, {})
    assert text == "torch.randn(4, 6, dtype=torch.float32)"
    assert note == f"x had strides {value.stride()}; it is contiguous here"


def test_values_are_of_the_kind_of_the_call():
    def write(value):
        return write_tensor("x", value, {("x", 0): "n", ("y", 0): "rows"}, {"n": 9, "rows": 32000})[0]

    assert write(torch.tensor([0.0, 1.0], dtype=torch.half)) == "torch.randint(0, 2, (n,)).to(torch.float16)"
    assert write(torch.ones(2)) == "torch.randn(n, dtype=torch.float32)"
    assert write(torch.tensor([8, 31000])) == "torch.randint(0, min(31001, rows), (n,), dtype=torch.int64)"
    assert write(torch.tensor([-2, 32000])) == "torch.randint(-2, 32001, (n,), dtype=torch.int64)"
    assert write(torch.tensor([True])) == "torch.rand((n,)) < 0.5"
