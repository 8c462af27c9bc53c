"""The addresses that an interpreted kernel sees, the check of each one, and whether a kernel decides by them.

A kernel sees the addresses of an imagined GPU (`Buffers`) and not those of this process, so it can learn from them only
what it could learn on a GPU: buffers begin at multiples of 512 bytes, as PyTorch's allocator gives them, anywhere in 47
bits. The position of an address relative to 512 is the kernel's own business: it may peel a row up to an aligned start.
All else is chance, and a kernel that decides by chance may do one thing here and another where it is timed. So a
pointer that becomes a number carries along what it would be if the buffers lay elsewhere (`Followed`): low, high,
packed one behind the other in either order, apart. A result that is the same everywhere is a plain number again; a
comparison, a branch, an offset or a stored value that is not is noted (`Buffers.suspect`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.evaluate.faults import OutOfBounds
from kernelsearch.worker.launcher.standin import replace_attributes

ALIGNMENT = 512
"""Bytes to which PyTorch's CUDA allocator rounds every block (`kMinBlockSize` in CUDACachingAllocator)."""
SEGMENT = 2 << 20
"""Bytes of the allocator's segments for small blocks, which begin at multiples of this."""
_GPU = 0x7F00_0000_0000
_REAL = 1 << 32, 1 << 47
"""Where processes have their memory, in which a table that a launcher made points to tensors."""
SUSPECT = "decides by where its buffers lie in memory, beyond their alignment to 512 bytes"


class Buffers:
    """The address ranges that a launch may touch: imagined addresses of whole storages, and the true ones behind them.

    shift is added to every imagined start: 16 gives the least alignment that Triton's specialisation promises.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], shift: int = 0) -> None:
        storages: dict[int, tuple[int, str]] = {}
        for name, tensor in tensors.items():
            storage = tensor.untyped_storage()
            if storage.nbytes():
                storages.setdefault(storage.data_ptr(), (storage.nbytes(), name))
        sizes = [size for size, _ in storages.values()]
        rng = Random()
        layouts = [
            _spread(sizes, rng),
            _pack(sizes, _GPU),
            _pack(sizes[::-1], _GPU)[::-1],
            _pack(sizes, SEGMENT),
            _spread(sizes, rng),
            [a // 2 // SEGMENT * SEGMENT for a in _spread(sizes, rng)],
            _spread(sizes, rng),
        ]
        order = np.argsort(layouts[0])
        self.starts, *self._other_starts = np.array(layouts, dtype=np.uint64)[:, order] + np.uint64(shift)
        self.ends = self.starts + np.array(sizes, dtype=np.uint64)[order]
        self.real = np.array(list(storages), dtype=np.uint64)[order]
        self.names = [list(storages.values())[i][1] for i in order]
        self._index = {start: i for i, start in enumerate(self.real.tolist())}
        self.suspect, self.cast = "", False

    def address_of(self, tensor: torch.Tensor) -> np.ndarray:
        """The address of a tensor's first element as the kernel sees it, in an array of one uint64."""
        address, storage = tensor.data_ptr(), tensor.untyped_storage().data_ptr()
        if storage in self._index:
            address += int(self.starts[self._index[storage]]) - storage
        return np.array([address], dtype=np.uint64)

    def owner_of(self, addresses: np.ndarray) -> np.ndarray:
        """The index of the buffer that each address lies in or after; -1 before the first."""
        return np.searchsorted(self.starts, addresses, side="right") - 1

    def to_true_addresses(self, handle: Any, mask: np.ndarray, what: str) -> Any:
        """The pointer block with true addresses. Raises OutOfBounds if an active lane leaves its buffer."""
        handle = drop_lanes(self, handle)
        everywhere = handle.data
        addresses = everywhere[mask if mask.shape == everywhere.shape else np.broadcast_to(mask, everywhere.shape)]
        if not addresses.size:
            return handle
        width = np.uint64(max(1, handle.get_element_ty().primitive_bitwidth // 8))
        shifts = self.real - self.starts  # a negative one wraps around, and so does the sum
        low, high = addresses.min(), addresses.max()
        first, last = (int(i) for i in self.owner_of(np.array([low, high])))
        if first == last and first >= 0 and high <= self.ends[first] - width:  # an address near 2**64 must not wrap
            return interpreter.TensorHandle(everywhere + shifts[first], handle.dtype)
        owner = self.owner_of(addresses)
        bad = (owner < 0) | (addresses > self.ends[np.maximum(owner, 0)] - width)
        if bad.any():
            near = self.names[max(0, int(owner[np.argmax(bad)]))] if self.names else "nothing"
            if self.cast:
                raise NotImplementedError("tables of addresses not supported in interpreter mode")
            lanes = f"{int(bad.sum())} lanes of a {what} in program {tuple(builder.grid_idx)}"
            raise OutOfBounds(f"{lanes} lie outside every buffer, nearest {near!r}")
        return interpreter.TensorHandle(everywhere + shifts[np.maximum(self.owner_of(everywhere), 0)], handle.dtype)

    def follow(self, addresses: np.ndarray) -> np.ndarray:
        """The addresses as numbers that know what they would be elsewhere."""
        owners = np.maximum(self.owner_of(addresses), 0)
        offsets = addresses - self.starts[owners]
        return join_lanes(self, [addresses, *(starts[owners] + offsets for starts in self._other_starts)])

    def note(self) -> None:
        self.suspect = self.suspect or SUSPECT


def _pack(sizes: Sequence[int], start: int) -> list[int]:
    """Starts of blocks one behind the other, as the allocator cuts a segment."""
    starts = []
    for size in sizes:
        starts.append(start)
        start += max(1, math.ceil(size / ALIGNMENT)) * ALIGNMENT
    return starts


def _spread(sizes: Sequence[int], rng: Random) -> list[int]:
    """Starts in segments of their own, at least one free segment between any two, in any order."""
    starts, start = {}, _GPU + rng.randrange(1, 1 << 12) * SEGMENT
    for i in rng.sample(range(len(sizes)), len(sizes)):
        starts[i] = start + rng.randrange(SEGMENT // ALIGNMENT) * ALIGNMENT
        start += (sizes[i] // SEGMENT + 2 + rng.randrange(1, 64)) * SEGMENT
    return [starts[i] for i in range(len(sizes))]


# ---------------------------------------------------------------- numbers that were addresses


_FOLLOWED_FUNCTIONS = {
    getattr(np, name)
    for name in "broadcast_to where reshape expand_dims squeeze transpose concatenate stack sum flip".split()
}


def _apply_to_lanes(name: str) -> Callable[..., Any]:
    """The method of that name, applied to every lane."""
    return lambda self, *args, **named: _each((self,), lambda lane: getattr(lane[0], name)(*args, **named))


class Followed(np.ndarray):
    """An array whose elements would be others if the buffers lay elsewhere: `lanes` are those others, in order.

    What numpy does to it is done to every lane; where that is not possible it is noted, and the array is plain.
    """

    buffers: Buffers | None = None
    lanes: tuple[np.ndarray, ...] = ()

    def __array_finalize__(self, source: Any) -> None:
        if isinstance(source, Followed) and source.buffers is not None:
            source.buffers.note()  # made in a way that is not followed

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        if method not in ("__call__", "reduce") or "out" in named:
            self._lose()
            return getattr(ufunc, method)(*_lane(inputs, 0), **{k: _lane(v, 0) for k, v in named.items()})
        return _each(inputs, lambda lane: getattr(ufunc, method)(*lane, **named))

    def __array_function__(self, function: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _FOLLOWED_FUNCTIONS or any(isinstance(v, Followed) for v in kwargs.values()):
            self._lose()
            return function(*_lane(args, 0), **{k: _lane(v, 0) for k, v in kwargs.items()})
        return _each(args, lambda lane: function(*lane, **kwargs))

    def _lose(self) -> Followed:
        if self.buffers is not None:
            self.buffers.note()
        return self

    astype, view, reshape, squeeze, copy = map(_apply_to_lanes, ("astype", "view", "reshape", "squeeze", "copy"))

    def __getitem__(self, index: Any) -> Any:
        return _each((self, index), lambda lane: lane[0][lane[1]])

    def __bool__(self) -> bool:
        return bool(make_plain(self._lose()))

    def __int__(self) -> int:
        return int(make_plain(self._lose()))

    __index__ = __int__

    def __float__(self) -> float:
        return float(make_plain(self._lose()))

    def item(self, *args: Any) -> Any:
        return make_plain(self._lose()).item(*args)


def make_plain(value: Any) -> Any:
    return np.asarray(np.ndarray.view(value, np.ndarray)) if isinstance(value, Followed) else value


def _lane(value: Any, number: int) -> Any:
    """The value with every array in it replaced by one of its lanes; 0 is the array itself."""
    if isinstance(value, (list, tuple)):
        return type(value)(_lane(v, number) for v in value)
    if not isinstance(value, Followed) or not value.lanes:
        return make_plain(value)
    return value.lanes[number - 1] if number else make_plain(value)


def _first_followed(values: Any) -> Followed | None:
    for value in values:
        if isinstance(value, Followed) and value.lanes:
            return value
        if isinstance(value, (list, tuple)) and (inner := _first_followed(value)) is not None:
            return inner
    return None


def _each(inputs: Any, compute: Callable[[Any], Any]) -> Any:
    """What compute gives for every lane of the inputs."""
    first = _first_followed(inputs)
    if first is None:
        return compute(_lane(inputs, 0))
    return join_lanes(first.buffers, [compute(_lane(inputs, n)) for n in range(len(first.lanes) + 1)])


def join_lanes(buffers: Buffers, lanes: list[Any]) -> Any:
    """One array of the lanes: plain where they agree, and where they are a decision, which is noted."""
    arrays = [np.asarray(lane) for lane in lanes]
    if all(np.array_equal(arrays[0], other) for other in arrays[1:]):
        return lanes[0]
    if arrays[0].dtype == np.bool_:
        buffers.note()
        return lanes[0]
    joined = np.ndarray.view(np.array(arrays[0]), Followed)
    joined.buffers, joined.lanes = buffers, tuple(arrays[1:])
    return joined


# ---------------------------------------------------------------- in the interpreter


def wrap_method(kind: type, name: str, wrapper: Callable[..., Any]) -> None:
    """Replaces a method for the rest of this process; the wrapper gets the plain method before its arguments."""
    plain = getattr(kind, name)
    setattr(kind, name, lambda self, *args, **named: wrapper(plain, self, *args, **named))


@contextmanager
def follow_pointers(buffers: Buffers) -> Iterator[None]:
    """Within the context, numbers that the interpreter makes from pointers are followed."""
    plain_splat = builder.create_splat

    def to_int(src: Any, dst_type: Any) -> Any:
        data = buffers.follow(np.asarray(src.data, dtype=np.uint64))
        return interpreter.TensorHandle(data.view(interpreter._get_np_dtype(dst_type)), dst_type.scalar)

    def to_ptr(src: Any, dst_type: Any) -> Any:
        numbers = np.asarray(make_plain(src.data)).view(np.uint64)
        real = (numbers >= _REAL[0]) & (numbers < _REAL[1])
        buffers.cast = buffers.cast or bool(real.any() and not isinstance(src.data, Followed))
        return interpreter.TensorHandle(make_plain(src.data).view(np.uint64), dst_type.scalar)

    def splat(ret_ty: Any, arg: Any) -> Any:
        if not isinstance(arg.data, Followed):
            return plain_splat(ret_ty, arg)
        return interpreter.TensorHandle(np.broadcast_to(arg.data.reshape(-1), ret_ty.shape), arg.dtype.scalar)

    with replace_attributes(builder, create_ptr_to_int=to_int, create_int_to_ptr=to_ptr, create_splat=splat):
        yield


def drop_lanes(buffers: Buffers, handle: Any) -> Any:
    """The handle with plain data; a followed number that reaches memory is noted."""
    data = getattr(handle, "data", None)
    if not isinstance(data, Followed):
        return handle
    buffers.note()
    return interpreter.TensorHandle(make_plain(data), handle.dtype)
