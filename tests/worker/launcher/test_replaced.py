"""What is traced in place of functions that make a size constant gives the same values."""

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional

from kernelsearch.worker.launcher.replaced import Replacing
from kernelsearch.worker.launcher.symbols import make_symbol

POOLS = [
    lambda x: torch.nn.MaxPool1d(8, stride=1, padding=4, dilation=3)(x),
    lambda x: functional.max_pool1d(x, [3]),
    lambda x: torch.max_pool1d(x, (3,), (2,), padding=[1], ceil_mode=True),
    lambda x: torch.max_pool1d(x[0], 2),
    lambda x: functional.max_pool1d(x, 3, return_indices=True)[1],
]


@pytest.mark.parametrize("pool", POOLS)
def test_pools_of_rows_give_what_they_gave(pool):
    x = torch.randn(2, 5, 40)
    expected = pool(x)
    with Replacing():
        assert torch.equal(pool(x), expected)


def test_a_row_that_is_pooled_keeps_its_length_as_a_symbol():
    env = ShapeEnv(duck_shape=False)
    length = make_symbol(env, "length", 40)
    with torch._subclasses.FakeTensorMode(shape_env=env), Replacing():
        pooled = torch.nn.MaxPool1d(4, stride=1)(torch.empty(2, length))
    assert pooled.shape[1].node.expr.free_symbols == length.node.expr.free_symbols
