"""Test shapes of seeds: what a function takes without data it must take with data, too."""

import torch

from kernelsearch.worker.launcher.seed_shapes import takes_alike


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
