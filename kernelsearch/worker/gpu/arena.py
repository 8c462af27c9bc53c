"""An arena for judging on a GPU: it stages the buffers of launches between guard bands that must stay untouched."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from itertools import pairwise

import torch

from kernelsearch.worker.gpu.cuda import copy_bytes, fill_bytes

GUARD = 4096
ALIGNED = 256
SPAN = 2**22
"""Bits of an address above this one are the driver's: it maps memory in pages of 2 MiB."""
SIZE = 2**26
"""Bytes of an arena whose launches need no more: they are looked at together, since each look waits for the GPU."""
_PATTERN = 0xFF  # NaN in every IEEE format, -1 in every integer one: it shows in the result of a read from a guard


class GuardBroken(Exception):
    """A launch wrote outside its buffers."""


def random_place() -> int:
    """The bits of an address from ALIGNED up to SPAN, at random."""
    return secrets.randbelow(SPAN // ALIGNED)


class Arena:
    """Memory for copies of the buffers of one launch after another. What no launch owns holds one pattern.

    `stage` copies in, `collect` copies back and wipes, `check` looks for the pattern in all memory that was in use.
    A buffer lies where the bits of its address from ALIGNED up to SPAN are those of `place`, a number for each buffer;
    its lower bits stay those of the original, which tell its alignment.
    """

    def __init__(self, place: Callable[[], int] = random_place) -> None:
        self.place = place
        self.slots: list[tuple[int, int, tuple[str, str]]] = []
        """(first byte, byte behind the last, whose it is) since the last check, in the order of their addresses."""
        self.memory = torch.empty(0, dtype=torch.uint8, device="cuda")
        self.end = 0
        self.staged: list[tuple[int, int, int]] = []

    def stage(self, tensors: Mapping[str, torch.Tensor], whose: tuple[str, str]) -> dict[str, torch.Tensor]:
        """Copies of these tensors: same dtype, shape, stride and alignment. Two views of one storage stay so.

        whose is the launch, (function, shape's label). Raises GuardBroken of an earlier launch if the memory is full.
        """
        storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in tensors.values()) if s.nbytes()}
        self._make_room(sum(2 * GUARD + SPAN + size for size in storages.values()))
        start, places = self.memory.data_ptr(), {}
        for address, size in storages.items():
            at = self.end + GUARD
            at += (self.place() * ALIGNED + address % ALIGNED - at - start) % SPAN
            self.end = at + size + GUARD
            self.slots.append((at, at + size, whose))
            self.staged.append((address, start + at, size))
            copy_bytes(start + at, address, size)
            places[address] = at
        return {name: self._view(tensor, places) for name, tensor in tensors.items()}

    def collect(self) -> None:
        """Copies back what is staged, and wipes it."""
        for address, copy, size in self.staged:
            copy_bytes(address, copy, size)
            fill_bytes(copy, _PATTERN, size)
        self.staged.clear()

    def check(self) -> None:
        """Raises GuardBroken if memory that no launch owns was written."""
        if bool((self.memory[: -(-self.end // 8) * 8].view(torch.int64) == -1).all()):
            self.slots, self.end = [], 0
            return
        halfway = [(end + at) // 2 for (_, end, _), (at, _, _) in pairwise(self.slots)]
        for (_, _, whose), (first, behind) in zip(self.slots, pairwise([0, *halfway, self.end]), strict=True):
            if broken := int((self.memory[first:behind] != _PATTERN).sum()):
                function, label = whose
                raise GuardBroken(f"{function} overwrote {broken} bytes outside its buffers, at {label}")

    def _make_room(self, size: int) -> None:
        if self.end + size <= self.memory.numel():
            return
        self.check()
        if size > self.memory.numel():
            self.memory = torch.empty(max(-(-size // 16) * 16, SIZE), dtype=torch.uint8, device="cuda").fill_(_PATTERN)

    def _view(self, tensor: torch.Tensor, places: Mapping[int, int]) -> torch.Tensor:
        at = places.get(tensor.untyped_storage().data_ptr())
        if at is None:
            return tensor
        first = at // tensor.element_size() + tensor.storage_offset()
        return self.memory.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), first)
