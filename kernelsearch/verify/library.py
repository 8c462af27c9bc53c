"""cuDNN while answers are judged: a launcher's library calls are trusted, and must not hide what its kernels do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kernelsearch.verify.dispatch import DispatchMode

_CONVOLUTION = torch.ops.aten.convolution.default


@contextmanager
def steady_library(tf32: bool = False) -> Iterator[None]:
    """Within the context cuDNN gives the same bits again, and float32 convolutions are float32 unless tf32 is true.

    Its usual algorithm of a transposed convolution gives other bits in each run. PyTorch allows tf32 in convolutions,
    but cuDNN takes it by size and layout: eager's error would be that of float32 where a seed's is that of tf32.
    Timed outputs are computed with tf32, as they are timed, and compared within its errors (`CutConvolutions`).
    """
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.allow_tf32
    cudnn.deterministic, cudnn.allow_tf32 = True, tf32 and before[1]
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.allow_tf32 = before


class CutConvolutions(DispatchMode):
    """Float32 convolutions within the mode have operands of tf32, if PyTorch allows that (`cudnn.allow_tf32`).

    So eager's error is the one that PyTorch accepts of any convolution, and not that of the algorithm that cuDNN
    happens to take for eager's layout.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is _CONVOLUTION and torch.backends.cudnn.allow_tf32:
            args = (*map(cut_to_tf32, args[:2]), *args[2:])
        return func(*args, **(kwargs or {}))


def cut_to_tf32(x: torch.Tensor) -> torch.Tensor:
    """Float32 values rounded to the 10 bits of tf32's mantissa, ties away from zero; others as they are."""
    if x.dtype is not torch.float32:
        return x
    bits = x.clone().view(torch.int32)
    bits.add_(1 << 12).bitwise_and_(-1 << 13)
    return bits.view(torch.float32).masked_fill_(x.isnan(), float("nan"))
