"""Input values of a counted launch, like those that the judge draws, made only when they are read.

Inputs of timed shapes are too large to fill, and zeros would let a kernel that does less where it reads zeros look
faster than it is. So each element of a floating input is a normal value that a hash of its place picks from a pool.
Integers (indices, lengths) are the task's own; where those of a timed shape are too many, they repeat the ones that the
task makes for its smallest test shape, which fit larger shapes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter

from kernelsearch.verify.regimes import narrow

POOL = 1 << 14
_MIX = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4)


class InputValues:
    """Input values by the address of a storage: a pool of bits, and whether a place picks by hash or in turn."""

    def __init__(self, seed: int) -> None:
        self.rng, self.places = np.random.default_rng(seed), np.random.default_rng([seed, 1])
        self.pools: dict[int, tuple[np.ndarray, bool]] = {}
        self.salt = np.uint64(self.rng.integers(1, 1 << 62))
        self._products = 0

    def add(self, tensor: torch.Tensor, values: torch.Tensor, hashed: bool) -> None:
        """Gives an input the values of a pool: each place picks one by its hash, or all repeat in turn."""
        bits = values.contiguous().view(torch.uint8).numpy().view(f"u{tensor.element_size()}")
        if bits.size:
            self.pools[tensor.untyped_storage().data_ptr()] = bits, hashed

    def fill(self, start: int, addresses: np.ndarray, read: np.ndarray) -> np.ndarray:
        """The values read, with drawn ones in place of elements that nothing stored to (all bits zero).

        start is the address of the storage.
        """
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

    def draw_product(self, like: Any) -> Any:
        """A handle like this one with normal values, for a matrix product that is only counted."""
        self._products += 1
        values = np.resize(np.roll(self._normal, 37 * self._products), like.data.shape)
        if like.dtype.scalar.is_bf16():
            return like
        return interpreter.TensorHandle(like.data + (8.0 * values).astype(like.data.dtype), like.dtype.scalar)

    @cached_property
    def _normal(self) -> np.ndarray:
        return self.rng.standard_normal(POOL).astype(np.float32)


def draw_inputs(
    seed: int, inputs: Mapping[str, Any], small: Mapping[str, Any], domain: Mapping[str, Any]
) -> InputValues:
    """The values of a launcher's inputs at a timed shape; small holds the task's inputs at a small shape."""
    drawn = InputValues(seed)
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        model = small.get(name)
        if value.is_floating_point() and domain.get(name) != "fixed" and value.element_size() > 1:
            drawn.add(value, _draw_floats(drawn.rng, domain.get(name)).to(value.dtype), True)
        elif isinstance(model, torch.Tensor) and model.dtype == value.dtype and model.numel() and not value.any():
            drawn.add(value, model.reshape(-1), False)
    return drawn


def _draw_floats(rng: np.random.Generator, limit: Any) -> torch.Tensor:
    """Normal values inside the DOMAIN of an input."""
    return narrow(torch.from_numpy(rng.standard_normal(POOL)).clamp(-6, 6), limit)
