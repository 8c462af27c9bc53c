"""cuDNN while answers are judged: a launcher's library calls are trusted, and must not hide what its kernels do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def steady_library(tf32: bool = False) -> Iterator[None]:
    """Within the context cuDNN gives the same bits again, and float32 convolutions are float32 unless tf32 is true.

    Its usual algorithm of a transposed convolution gives other bits in each run. PyTorch allows tf32 in convolutions,
    but cuDNN takes it by size and layout: eager's error would be that of float32 where a seed's is that of tf32.
    Timed outputs are compared with tf32, as they are timed.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.allow_tf32
    cudnn.deterministic, cudnn.allow_tf32 = True, tf32 and before[1]
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.allow_tf32 = before
