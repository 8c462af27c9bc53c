"""Shares GPU tensors with another process without a copy, by CUDA's interprocess handles."""

from __future__ import annotations

from typing import Any

import torch

from kernelsearch.worker.messages.jobs import Shared

_SHARED: list[torch.Tensor] = []


def share(value: Any) -> Any:
    """A `Shared` for a CUDA tensor, which stays alive here until `release`; other values unchanged."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    _SHARED.append(value)
    handle = value.untyped_storage()._share_cuda_()
    dtype = str(value.dtype).removeprefix("torch.")
    return Shared(dtype, tuple(value.shape), tuple(value.stride()), int(value.storage_offset()), tuple(handle))


def open_shared(value: Any) -> Any:
    """The tensor of a `Shared` in this process; other values unchanged."""
    if not isinstance(value, Shared):
        return value
    storage = torch.UntypedStorage._new_shared_cuda(*value.handle)
    empty = torch.empty(0, dtype=getattr(torch, value.dtype), device="cuda")
    return empty.set_(storage, value.offset, value.shape, value.stride)


def release() -> None:
    """Lets go of the tensors that were shared before."""
    _SHARED.clear()
