"""cuDNN while answers are judged: a launcher's library calls are trusted, and must not hide what its kernels do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelsearch.verify.pieces import change_in_pieces

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


class CutConvolutions(TorchDispatchMode):
    """Float32 convolutions within the mode have operands of tf32, if PyTorch allows that (`cudnn.allow_tf32`).

    So eager's error is the one that PyTorch accepts of any convolution, and not that of the algorithm that cuDNN
    happens to take for eager's layout. Each call rounds anew, up or down at random in proportion to the distances: its
    answers to the same inputs are samples of the error. `used` says whether there was anything to round.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed, self.used = seed, False
        self.generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is _CONVOLUTION and torch.backends.cudnn.allow_tf32:
            args = (*map(self._round, args[:2]), *args[2:])
        return func(*args, **(kwargs or {}))

    def _round(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            return x
        self.used = True
        if x.device not in self.generators:
            self.generators[x.device] = torch.Generator(device=x.device).manual_seed(self.seed)
        return round_to_tf32(x, self.generators[x.device])


def round_to_tf32(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Float32 values with the 10 bits of tf32's mantissa, rounded up or down at random, without bias."""

    def cut(bits: torch.Tensor) -> None:
        bits.add_(torch.empty_like(bits).random_(1 << 13, generator=generator)).bitwise_and_(-1 << 13)

    bits = change_in_pieces(x.clone().view(torch.int32), cut)
    return bits.view(torch.float32).masked_fill_(x.isnan(), float("nan"))
