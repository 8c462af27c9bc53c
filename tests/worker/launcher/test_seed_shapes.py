"""Test shapes of seeds: what a function takes without data it must take with data, too."""

from types import SimpleNamespace

import torch

from kernelsearch.worker.launcher.seed_shapes import find_varying, takes_alike


@torch.library.custom_op("kernelsearch_test::pool_rows", mutates_args=())
def pool_rows(x: torch.Tensor, window: int) -> torch.Tensor:
    """Stands for windows of torch 2.11, which without data make nothing of a volume that is smaller than they are."""
    return x.unfold(0, window, 1).amax(-1) if window <= x.shape[0] else x[:0].clone()


def test_windows_larger_than_what_they_slide_over_are_refused_wherever_they_are():
    x = torch.randn(4, 3)
    assert takes_alike(lambda x: pool_rows(x, 4).mean(), [x])
    assert not takes_alike(lambda x: pool_rows(x, 5).mean(), [x])  # the mean of nothing is a result
    assert not takes_alike(lambda x: x[:0], [x])
    assert takes_alike(lambda x: torch.cat([x, x[:0]]), [x])


def test_views_of_more_memory_than_there_is_are_refused_without_data():
    """As in a model's graph, where a batch of 4 and 4 groups of channels got one name: at 3 there are 27 elements."""

    def spread(x, w):
        return x * torch.as_strided(w * 2, x.shape, (x.shape[1], 1))

    with torch.device("meta"):
        assert takes_alike(spread, [torch.empty(4, 16), torch.empty(4, 4, 4)])
        assert not takes_alike(spread, [torch.empty(3, 15), torch.empty(3, 3, 3)])


def test_a_shape_without_sizes_of_1_stands_for_those_with_them():
    """PyTorch takes a size of 1 for a constant: kernels that it writes from another shape are right for both."""
    shapes = [
        ("timed:0", dict(tokens=1, inter=64)),
        ("timed:1", dict(tokens=8, inter=64)),
        ("timed:2", dict(tokens=1, inter=96)),
    ]
    task = SimpleNamespace(shapes=shapes, test_shapes=[("test:0", dict(tokens=3, inter=32))])
    assert find_varying(task) == (dict(tokens=8, inter=64), ["tokens", "inter"])
    task.shapes = shapes[:1]
    assert find_varying(task) == (dict(tokens=1, inter=64), ["tokens", "inter"])
