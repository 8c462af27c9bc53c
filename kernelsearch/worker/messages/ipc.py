"""Hands a GPU tensor to another process without copying it, by CUDA's interprocess handles."""

from __future__ import annotations

from typing import Any

import torch

from kernelsearch.worker.messages.jobs import Shared

_HELD: list[torch.Tensor] = []


def share(value: Any) -> Any:
    """A Shared for a CUDA tensor, which stays alive here until `release`; other values as they are."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    _HELD.append(value)
    handle = value.untyped_storage()._share_cuda_()
    dtype = str(value.dtype).removeprefix("torch.")
    return Shared(dtype, tuple(value.shape), tuple(value.stride()), value.storage_offset(), tuple(handle))


def opened(value: Any) -> Any:
    """The tensor of a Shared in this process; other values as they are."""
    if not isinstance(value, Shared):
        return value
    storage = torch.UntypedStorage._new_shared_cuda(*value.handle)
    empty = torch.empty(0, dtype=getattr(torch, value.dtype), device="cuda")
    return empty.set_(storage, value.offset, value.shape, value.stride)


def release() -> None:
    """Forgets what was shared before."""
    _HELD.clear()
