"""Tensors as messages and back, padded and scratch tensors, and a launcher's results as a flat list."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelsearch.kernel.launch import TRITON_DTYPES, Buffer
from kernelsearch.verify.bits import WHOLE, same_bits
from kernelsearch.verify.regime_words import PADDED
from kernelsearch.verify.widest import flatten
from kernelsearch.worker.messages.channel import Array, Unchanged
from kernelsearch.worker.messages.ipc import read_names, write_names

warnings.filterwarnings("ignore", "The given buffer is not writable")  # it is copied to a device

TORCH_DTYPES = {short: getattr(torch, long) for long, short in TRITON_DTYPES.items()}
"""PyTorch's dtypes by Triton's names."""


def pack(value: Any) -> Any:
    """A tensor as an Array, a dtype or the like by its name; other values unchanged."""
    if not isinstance(value, torch.Tensor):
        return write_names(value)
    plain = value.detach().cpu().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return Array(str(value.dtype).removeprefix("torch."), tuple(value.shape), data, tuple(value.stride()))


def unpack(value: Any, device: str = "cpu") -> Any:
    """What `pack` was given: a new tensor in its strides, with NaN in the gaps between elements."""
    if not isinstance(value, Array):
        return read_names(value)
    dtype = getattr(torch, value.dtype)
    copied = bytearray(value.data) if device == "cpu" else value.data
    flat = torch.frombuffer(copied, dtype=dtype) if len(copied) else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(value.shape)
    if value.stride is not None and value.stride != tuple(tensor.stride()) and 0 not in value.stride:
        strided = torch.empty_strided(value.shape, value.stride, dtype=dtype, device=device)
        view_storage(strided).fill_(_GAP)
        return strided.copy_(tensor)
    return tensor.to(device)


def pack_changed(values: Sequence[Any], packed: Sequence[Any], device: str = "cpu") -> tuple[Any, ...]:
    """Inputs after a run, those whose bits are what they were made of (`packed`) as Unchanged; () if all are so."""

    def pack_one(value: Any, was: Any) -> Any:
        same = not isinstance(value, torch.Tensor) or same_bits(value, unpack(was, device))
        return Unchanged() if same else pack(value)

    after = tuple(map(pack_one, values, packed))
    return after if any(not isinstance(v, Unchanged) for v in after) else ()


def unpack_changed(after: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    """Inputs after a run from `pack_changed`, with those before it."""
    return [was if isinstance(v, Unchanged) else unpack(v) for v, was in zip(after, before)]


_GAP = 0xFF  # every byte of NaN in IEEE formats, -1 in integers


def pad_rows(value: Any, axis: int = -2) -> Any:
    """A tensor of two or more axes in rows, with 16 more elements of NaN after each step of an axis; else the value.

    With sixteen, strides divisible by 16 stay divisible and the same binaries run.
    """
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or not value.numel() or not _lies_in_rows(value):
        return value
    strides = [1]
    for at in range(-2, -value.dim() - 1, -1):
        gap = max(value.stride(at) - value.stride(at + 1) * value.shape[at + 1], 0)
        strides.append(strides[-1] * value.shape[at + 1] + gap + 16 * (at == axis))
    return unpack(replace(pack(value), stride=tuple(reversed(strides))), str(value.device))


def _lies_in_rows(tensor: torch.Tensor) -> bool:
    """Whether each axis steps over all of the next one, with or without a gap, and the last one element by element."""
    inner = zip(tensor.stride()[1:], tensor.shape[1:], strict=True)
    steps = zip(tensor.stride(), tensor.shape, inner)
    return tensor.stride(-1) == 1 and all(size == 1 or step >= own * length for step, size, (own, length) in steps)


def pad_inputs(values: Sequence[Any], names: Sequence[str], padded: str) -> list[Any]:
    """Inputs with the rows of all further apart (PADDED), or with one stride larger, as `list_strides` names it."""
    if padded == PADDED:
        return [*map(pad_rows, values)]
    numbers, axis = list_strides(values, names)[padded]
    return [pad_rows(value, axis) if number in numbers else value for number, value in enumerate(values)]


def list_strides(values: Sequence[Any], names: Sequence[str]) -> dict[str, tuple[list[int], int]]:
    """The inputs' strides that may be larger, as `x.stride(0)`, of each alone and of all of one shape together, as a
    kernel may take one stride for them; each with the inputs' numbers and the axis from the last.
    """
    same: dict[tuple[int, ...], list[int]] = {}
    for number, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            same.setdefault(tuple(value.shape), []).append(number)
    found = {}
    for axis in range(max(map(len, same), default=0) - 1):
        axes = [(shape, numbers) for shape, numbers in same.items() if axis < len(shape) - 1 and shape[axis] > 1]
        alone = [([number], len(shape)) for shape, numbers in axes for number in numbers]
        together = [(numbers, len(shape)) for shape, numbers in axes if len(numbers) > 1]
        for numbers, rank in (*alone, *together):
            found[" and ".join(f"{names[n]}.stride({axis})" for n in numbers)] = numbers, axis - rank
    return found


def has_gap_changed(value: Any) -> bool:
    """True if something was written between the elements of a tensor from `unpack`."""
    if not isinstance(value, torch.Tensor) or value.untyped_storage().nbytes() == value.numel() * value.element_size():
        return False
    whole = view_storage(value).clone()
    own = torch.empty(0, dtype=WHOLE[value.element_size()], device=value.device)
    own.set_(whole.untyped_storage(), value.storage_offset(), value.shape, value.stride())
    own.fill_(_GAP if value.element_size() == 1 else -1)
    return bool((whole != _GAP).any())


def count_bytes(values: Iterable[Any]) -> int:
    """The bytes of the storages of the tensors among these."""
    return sum(v.untyped_storage().nbytes() for v in values if isinstance(v, torch.Tensor))


def view_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage as a flat uint8 tensor."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))


def flatten_result(
    result: Any, names: Sequence[str], inputs: Sequence[Any], mutates: Sequence[str]
) -> list[torch.Tensor]:
    """The tensors of a launcher's return value in order, then the mutated ones among its inputs."""
    return [*flatten(result), *find_mutated(names, inputs, mutates).values()]


def find_mutated(names: Sequence[str], inputs: Sequence[Any], mutates: Sequence[str]) -> dict[str, torch.Tensor]:
    """The inputs that the task declares as mutated, by name, without those that are None."""
    by_name = dict(zip(names, inputs, strict=True))
    return {n: by_name[n] for n in mutates if isinstance(by_name.get(n), torch.Tensor)}


def has_numbers(result: Any) -> bool:
    """True if a return value holds numbers beside its tensors."""
    return any(isinstance(leaf, (int, float, complex)) for leaf in tree_leaves(result))


def make_scratch(buffer: Buffer, device: str, fill: float | bool | None = None) -> torch.Tensor:
    """A scratch tensor: zeros if the buffer wants them, else poison (None), a value, or uninitialised (False)."""
    from kernelsearch.worker.launcher.standin import fill_with_poison

    dtype = TORCH_DTYPES[buffer.dtype]
    if buffer.zero:
        return torch.zeros(buffer.shape, dtype=dtype, device=device)
    tensor = torch.empty(buffer.shape, dtype=dtype, device=device)
    if fill is None:
        fill_with_poison(tensor)
    elif fill is not False:
        tensor.fill_(fill)
    return tensor
