"""Where the buffers of an interpreted launch seem to lie: on a GPU, somewhere; and whether a kernel asks where.

A kernel sees the addresses of an imagined GPU (`Places`) and not those of this process, so that what it could tell from
them is what it could tell on a GPU: buffers begin at multiples of 512 bytes, as PyTorch's allocator gives them, anywhere
in 47 bits. How an address stands to 512 is a kernel's own business: it may peel a row up to an aligned start. All else
is chance, and a kernel that decides by chance may do one thing here and another where it is timed. So a pointer that
is made a number carries along what it would be were the buffers elsewhere (`Followed`): low, high, packed one behind
the other in either order, apart. What comes out the same everywhere is a plain number again; a comparison, a branch,
an offset or a stored value that does not is noted (`Places.suspect`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

ALIGNMENT = 512
"""Bytes: what PyTorch's CUDA allocator rounds every block to (`kMinBlockSize` in CUDACachingAllocator)."""
SEGMENT = 2 << 20
"""Bytes: its small blocks lie in segments of this size, which begin at multiples of it."""
_GPU = 0x7F00_0000_0000
SUSPECT = "decides by where its buffers lie in memory, beyond their alignment to 512 bytes"


class Places:
    """The imagined addresses of a launch's buffers, which are whole storages, and the true ones behind them.

    shift is added to every imagined start: 16 gives the least alignment that Triton's specialisation promises.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], shift: int = 0) -> None:
        storages: dict[int, tuple[int, str]] = {}
        for name, tensor in tensors.items():
            storage = tensor.untyped_storage()
            if storage.nbytes():
                storages.setdefault(storage.data_ptr(), (storage.nbytes(), name))
        true = list(storages)
        sizes = [size for size, _ in storages.values()]
        rng = np.random.default_rng()
        spread = _spread(sizes, rng)
        order = np.argsort(spread)
        self.names = [list(storages.values())[i][1] for i in order]
        self.real = np.array([true[i] for i in order], dtype=np.uint64)
        self.starts = np.array([spread[i] + shift for i in order], dtype=np.uint64)
        self.ends = self.starts + np.array([sizes[i] for i in order], dtype=np.uint64)
        self._of = {start: i for i, start in enumerate(self.real.tolist())}
        others = (
            _packed(sizes, _GPU),
            _packed(sizes[::-1], _GPU)[::-1],
            _packed(sizes, SEGMENT),
            _spread(sizes, rng),
            [a // 2 // SEGMENT * SEGMENT for a in _spread(sizes, rng)],
            _spread(sizes, rng),
        )
        self._others = [np.array([layout[i] + shift for i in order], dtype=np.uint64) for layout in others]
        self.suspect = ""

    def seen(self, tensor: torch.Tensor) -> np.ndarray:
        """The address of a tensor's first element, as the kernel sees it."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._of:
            return np.array([tensor.data_ptr()], dtype=np.uint64)
        start = int(self.starts[self._of[storage.data_ptr()]])
        return np.array([start + tensor.data_ptr() - storage.data_ptr()], dtype=np.uint64)

    def owner(self, addresses: np.ndarray) -> np.ndarray:
        """The index of the buffer that each address lies in or after; -1 before the first."""
        return np.searchsorted(self.starts, addresses, side="right") - 1

    def behind(self, addresses: np.ndarray, owner: int | None) -> np.ndarray:
        """The true addresses; owner is the buffer of all of them, None where they lie in several."""
        shifts = self.real - self.starts  # below zero it wraps, and so does the sum
        if owner is not None:
            return addresses + shifts[owner]
        return addresses + shifts[np.maximum(self.owner(addresses), 0)]

    def followed(self, addresses: np.ndarray) -> np.ndarray:
        """The addresses as numbers that know what they would be elsewhere."""
        owners = np.maximum(self.owner(addresses), 0)
        away = addresses - self.starts[owners]
        return _joined(self, [addresses, *(starts[owners] + away for starts in self._others)])

    def note(self) -> None:
        self.suspect = self.suspect or SUSPECT


def _packed(sizes: Sequence[int], start: int) -> list[int]:
    """Starts of blocks one behind the other, as the allocator cuts a segment."""
    found = []
    for size in sizes:
        found.append(start)
        start += max(1, math.ceil(size / ALIGNMENT)) * ALIGNMENT
    return found


def _spread(sizes: Sequence[int], rng: np.random.Generator) -> list[int]:
    """Starts in segments of their own, at least one free segment between any two, in any order."""
    found, start = {}, _GPU + int(rng.integers(1, 1 << 12)) * SEGMENT
    for i in rng.permutation(len(sizes)):
        found[int(i)] = start + int(rng.integers(0, SEGMENT // ALIGNMENT)) * ALIGNMENT
        start += (sizes[i] // SEGMENT + 2 + int(rng.integers(1, 64))) * SEGMENT
    return [found[i] for i in range(len(sizes))]


# ---------------------------------------------------------------- numbers that were addresses


_ELEMENTWISE_KEPT = frozenset({"__call__", "reduce"})
_FOLLOWED_FUNCTIONS = frozenset(
    {
        np.broadcast_to,
        np.where,
        np.reshape,
        np.expand_dims,
        np.squeeze,
        np.transpose,
        np.concatenate,
        np.stack,
        np.sum,
        np.flip,
    }
)


class Followed(np.ndarray):
    """An array whose elements would be others, were the buffers elsewhere: `lanes` are those others, in order.

    What numpy does to it is done to every lane; where that is not possible it is noted, and the array is plain.
    """

    places: Places | None = None
    lanes: tuple[np.ndarray, ...] = ()

    def __array_finalize__(self, source: Any) -> None:
        if isinstance(source, Followed) and source.places is not None:
            source.places.note()  # made in a way that is not followed

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        if method not in _ELEMENTWISE_KEPT or "out" in named:
            return self._lost(lambda: getattr(ufunc, method)(*map(_plain, inputs), **named))
        return _each(inputs, lambda given: getattr(ufunc, method)(*given, **named))

    def __array_function__(self, function: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _FOLLOWED_FUNCTIONS or any(isinstance(v, Followed) for v in kwargs.values()):
            return self._lost(lambda: function(*_unfollowed(args), **{k: _plain(v) for k, v in kwargs.items()}))
        return _each(args, lambda given: function(*given, **kwargs))

    def _lost(self, compute: Callable[[], Any]) -> Any:
        self._note()
        return compute()

    def _note(self) -> None:
        if self.places is not None:
            self.places.note()

    def _one(self, apply: Callable[[np.ndarray], Any]) -> Any:
        return _each((self,), lambda given: apply(given[0]))

    def astype(self, dtype: Any, *args: Any, **named: Any) -> Any:
        return self._one(lambda a: a.astype(dtype))

    def view(self, dtype: Any = None, *args: Any) -> Any:
        return self._one(lambda a: a.view(dtype))

    def reshape(self, *shape: Any, **named: Any) -> Any:
        return self._one(lambda a: a.reshape(*shape))

    def squeeze(self, *args: Any) -> Any:
        return self._one(lambda a: a.squeeze())

    def copy(self, *args: Any) -> Any:
        return self._one(lambda a: a.copy())

    def __getitem__(self, index: Any) -> Any:
        return self._one(lambda a: a[_plain(index)])

    def __bool__(self) -> bool:
        return bool(self._lost(lambda: _plain(self)))

    def __int__(self) -> int:
        return int(self._lost(lambda: _plain(self)))

    __index__ = __int__

    def __float__(self) -> float:
        return float(self._lost(lambda: _plain(self)))

    def item(self, *args: Any) -> Any:
        return self._lost(lambda: _plain(self).item(*args))


def _plain(value: Any) -> Any:
    return np.asarray(np.ndarray.view(value, np.ndarray)) if isinstance(value, Followed) else value


def _unfollowed(args: Any) -> Any:
    return tuple([_plain(v) for v in a] if isinstance(a, (list, tuple)) else _plain(a) for a in args)


def _lane(value: Any, number: int) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_lane(v, number) for v in value)
    if not isinstance(value, Followed) or not value.lanes:
        return _plain(value)
    return value.lanes[number - 1] if number else _plain(value)


def _first(values: Any) -> Followed | None:
    for value in values:
        if isinstance(value, Followed) and value.lanes:
            return value
        if isinstance(value, (list, tuple)) and (found := _first(value)) is not None:
            return found
    return None


def _each(inputs: Any, compute: Callable[[Any], Any]) -> Any:
    first = _first(inputs)
    if first is None:
        return compute(_lane(inputs, 0))
    return _joined(first.places, [compute(_lane(inputs, n)) for n in range(len(first.lanes) + 1)])


def _joined(places: Places, lanes: list[Any]) -> Any:
    """One array of the lanes: plain where they agree, and where they are a decision, which is noted."""
    arrays = [np.asarray(lane) for lane in lanes]
    if all(np.array_equal(arrays[0], other) for other in arrays[1:]):
        return lanes[0]
    if arrays[0].dtype == np.bool_:
        places.note()
        return lanes[0]
    found = np.ndarray.view(np.array(arrays[0]), Followed)
    found.places, found.lanes = places, tuple(arrays[1:])
    return found


# ---------------------------------------------------------------- in the interpreter


@contextmanager
def following(places: Places) -> Iterator[None]:
    """Inside it, numbers that the interpreter makes of pointers are followed."""
    splat = builder.create_splat

    def to_int(src: Any, dst_type: Any) -> Any:
        data = places.followed(np.asarray(src.data, dtype=np.uint64))
        return interpreter.TensorHandle(data.view(interpreter._get_np_dtype(dst_type)), dst_type.scalar)

    def to_ptr(src: Any, dst_type: Any) -> Any:
        return interpreter.TensorHandle(_plain(src.data).view(np.uint64), dst_type.scalar)

    def splatted(ret_ty: Any, arg: Any) -> Any:
        if not isinstance(arg.data, Followed):
            return splat(ret_ty, arg)
        return interpreter.TensorHandle(np.broadcast_to(arg.data.reshape(-1), ret_ty.shape), arg.dtype.scalar)

    builder.create_ptr_to_int, builder.create_int_to_ptr, builder.create_splat = to_int, to_ptr, splatted
    try:
        yield
    finally:
        for name in ("create_ptr_to_int", "create_int_to_ptr", "create_splat"):
            delattr(builder, name)


def settled(places: Places, handle: Any) -> Any:
    """The handle with plain data; that it was followed, and yet reaches memory, is noted."""
    data = getattr(handle, "data", None)
    if not isinstance(data, Followed):
        return handle
    places.note()
    return interpreter.TensorHandle(_plain(data), handle.dtype)
