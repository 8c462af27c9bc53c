"""What a counted launch finds in its inputs: values as the judge draws them, made when they are read and not before.

Inputs of timed shapes are too large to be filled, and zeros would let a kernel look faster than it is by doing less
where it reads zeros. So each element of a floating input is a normal value that a hash of its place picks from a pool;
integers (indices, lengths) repeat those that the task makes for its smallest test shape, which larger shapes admit too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter

POOL = 1 << 14
_MIX = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4)
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Drawn:
    """Values by storage: pools are those of each input, as bits, and whether a place picks at random or in turn."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pools: dict[int, tuple[np.ndarray, bool]] = {}
        self.salt = np.uint64(self.rng.integers(1, 1 << 62))
        self._made = 0

    def floats(self, tensor: torch.Tensor, limit: str | None = None) -> None:
        """Gives a floating input normal values; limit is the task's DOMAIN of it."""
        values = torch.from_numpy(self.rng.standard_normal(POOL)).clamp(-6, 6)
        if limit in ("positive", "nonnegative"):
            values = values.abs().clamp_min(1e-3)
        elif limit == "unit":
            values = torch.sigmoid(values)
        self._keep(tensor, values.to(tensor.dtype), True)

    def integers(self, tensor: torch.Tensor, small: torch.Tensor) -> None:
        """Gives an integer input the values that it has at a small shape, one after the other, again and again."""
        self._keep(tensor, small.reshape(-1), False)

    def _keep(self, tensor: torch.Tensor, values: torch.Tensor, hashed: bool) -> None:
        whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
        bits = values.contiguous().view(whole).numpy().view(_BITS[tensor.element_size()])
        if bits.size:
            self.pools[tensor.untyped_storage().data_ptr()] = bits, hashed

    def fill(self, start: int, addresses: np.ndarray, read: np.ndarray) -> np.ndarray:
        """What was read, with the elements that nothing has been stored to (all bits zero) drawn; start is the storage's."""
        pool, hashed = self.pools[start]
        if read.dtype.itemsize != pool.dtype.itemsize:
            return read
        index = (addresses - np.uint64(start)) // np.uint64(pool.dtype.itemsize)
        if hashed:
            with np.errstate(over="ignore"):
                index = ((index + self.salt) * _MIX) >> np.uint64(64 - 14)
        values = pool[index % np.uint64(pool.size)]
        bits = read.view(pool.dtype)
        return np.where(bits == 0, values, bits).view(read.dtype)

    def product(self, like: Any) -> Any:
        """A handle like this one with normal values: what a matrix product that is only counted gives."""
        self._made += 1
        shape = like.data.shape
        values = np.resize(np.roll(self._normal(), 37 * self._made), shape)
        if like.dtype.scalar.is_bf16():
            return like
        return interpreter.TensorHandle(like.data + (8.0 * values).astype(like.data.dtype), like.dtype.scalar)

    def _normal(self) -> np.ndarray:
        if not hasattr(self, "_pool"):
            self._pool = self.rng.standard_normal(POOL).astype(np.float32)
        return self._pool


def of_inputs(seed: int, inputs: Mapping[str, Any], small: Mapping[str, Any], domain: Mapping[str, str]) -> Drawn:
    """The values of a launcher's inputs at a timed shape, by name; small are those that the task makes at a small shape."""
    drawn = Drawn(seed)
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        model = small.get(name)
        if value.is_floating_point() and domain.get(name) != "fixed" and value.element_size() > 1:
            drawn.floats(value, domain.get(name))
        elif isinstance(model, torch.Tensor) and model.dtype == value.dtype and model.numel():
            drawn.integers(value, model)
    return drawn
