"""Tensors to messages and back, and what a launcher returned as a flat list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelsearch.kernel.launch import TRITON_DTYPES, Buffer
from kernelsearch.worker.messages.channel import Array

_TORCH = {short: getattr(torch, long) for long, short in TRITON_DTYPES.items()}


def packed(value: Any) -> Any:
    """A tensor as an Array; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach().cpu().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return Array(str(value.dtype).removeprefix("torch."), tuple(value.shape), data, tuple(value.stride()))


def unpacked(value: Any, device: str = "cpu") -> Any:
    """A fresh tensor from an Array, in its strides; what they leave out holds NaN. Other values as they are."""
    if not isinstance(value, Array):
        return value
    dtype = getattr(torch, value.dtype)
    flat = torch.frombuffer(bytearray(value.data), dtype=dtype) if value.data else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(value.shape)
    if value.stride is not None and value.stride != tuple(tensor.stride()) and 0 not in value.stride:
        strided = torch.empty_strided(value.shape, value.stride, dtype=dtype, device=device)
        _bytes(strided).fill_(_GAP)
        return strided.copy_(tensor)
    return tensor.to(device)


_GAP = 0xFF  # every byte of NaN in IEEE formats, -1 in integers


def padded(value: Any) -> Any:
    """A tensor of two or more contiguous axes with its rows 16 elements further apart, NaN between; else itself.

    Sixteen, so that strides divisible by 16 stay so and the same binaries run.
    """
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or not value.numel() or not value.is_contiguous():
        return value
    strides, step = [1], value.shape[-1] + 16
    for size in reversed(value.shape[:-1]):
        strides.append(step)
        step *= size
    return unpacked(Array(*_parts(value), tuple(reversed(strides))), str(value.device))


def gap_changed(value: Any) -> bool:
    """Whether something was written between the elements of a tensor that `unpacked` made."""
    if not isinstance(value, torch.Tensor) or value.untyped_storage().nbytes() == value.numel() * value.element_size():
        return False
    whole = _bytes(value).clone()
    own = torch.empty(0, dtype=_WHOLE[value.element_size()], device=value.device)
    own.set_(whole.untyped_storage(), value.storage_offset(), value.shape, value.stride())
    own.fill_(_GAP if value.element_size() == 1 else -1)
    return bool((whole != _GAP).any())


_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))


def _parts(value: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    array = packed(value)
    return array.dtype, array.shape, array.data


def flattened(result: Any, names: Sequence[str], inputs: Sequence[Any], mutates: Sequence[str]) -> list[torch.Tensor]:
    """The tensors of a launcher's return value in order, then the inputs that the task says it changes."""
    found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    by_name = dict(zip(names, inputs, strict=True))
    return found + [by_name[name] for name in mutates if name in by_name]


def scratch(buffer: Buffer, device: str, fill: float | None | bool = None) -> torch.Tensor:
    """A scratch tensor: zeros when asked for, else poisoned, or full of a value, or with False left as it is."""
    from kernelsearch.worker.launcher.standin import fill_with_poison

    dtype = _TORCH[buffer.dtype]
    if buffer.zero:
        return torch.zeros(buffer.shape, dtype=dtype, device=device)
    made = torch.empty(buffer.shape, dtype=dtype, device=device)
    if fill is None:
        fill_with_poison(made)
    elif fill is not False:
        made.fill_(fill)
    return made
