"""Shares GPU tensors with another process without a copy, by CUDA's interprocess handles."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from kernelsearch.worker.messages.channel import Named
from kernelsearch.worker.messages.jobs import Shared

_SHARED: list[torch.Tensor] = []
_NAMED = (torch.dtype, torch.layout, torch.memory_format)
"""What a message has by its name."""


def write_names(value: Any) -> Any:
    """A value that is no tensor as a message has it: dtypes and layouts by their names, in lists too."""
    return tree_map_only(_NAMED, lambda v: Named(str(v).removeprefix("torch.")), value)


def read_names(value: Any) -> Any:
    """What `write_names` was given."""
    return tree_map_only(Named, lambda v: getattr(torch, v.name), value)


def share(value: Any) -> Any:
    """A `Shared` for a CUDA tensor, which stays alive here until `release`; other values as `write_names` has them."""
    if not isinstance(value, torch.Tensor):
        return write_names(value)
    dtype, form = str(value.dtype).removeprefix("torch."), (tuple(value.shape), tuple(value.stride()))
    if not value.numel():
        return Shared(dtype, *form, 0, ())
    _SHARED.append(value)
    handle = value.untyped_storage()._share_cuda_()
    return Shared(dtype, *form, int(value.storage_offset()), tuple(handle))


def open_shared(value: Any) -> Any:
    """The tensor of a `Shared` in this process; other values as they were."""
    if not isinstance(value, Shared):
        return read_names(value)
    if not value.handle:
        return torch.empty_strided(value.shape, value.stride, dtype=getattr(torch, value.dtype), device="cuda")
    storage = torch.UntypedStorage._new_shared_cuda(*value.handle)
    empty = torch.empty(0, dtype=getattr(torch, value.dtype), device="cuda")
    return empty.set_(storage, value.offset, value.shape, value.stride)


def release() -> None:
    """Lets go of the tensors that were shared before."""
    _SHARED.clear()
