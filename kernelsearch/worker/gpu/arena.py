"""An arena for judging on a GPU: it stages every buffer of a launch between guard bands that must stay untouched."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

import torch

from kernelsearch.worker.launcher.tensors import view_storage

GUARD = 4096
ALIGNED = 256
SPAN = 2**22
"""Bits of an address above this one are the driver's: it maps memory in pages of 2 MiB."""
_PATTERN = 0xFF  # NaN in every IEEE format, -1 in every integer one: it shows in the result of a read from a guard


def random_place() -> int:
    """The bits of an address from ALIGNED up to SPAN, at random."""
    return secrets.randbelow(SPAN // ALIGNED)


class Arena:
    """The buffers of one launch, copied into one allocation; `finish` checks the guards and copies back.

    A buffer lies where the bits of its address from ALIGNED up to SPAN are those of `place`, a number for each buffer;
    its lower bits stay those of the original, which tell its alignment.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], place: Callable[[], int] = random_place) -> None:
        self.tensors = dict(tensors)
        self.slots: dict[int, tuple[int, int]] = {}
        storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in self.tensors.values())}
        sizes = {address: size for address, size in storages.items() if size}
        most = sum(2 * GUARD + SPAN + size for size in sizes.values())
        self.memory = torch.empty(GUARD + most, dtype=torch.uint8, device="cuda")
        start = self.memory.data_ptr()
        at = start + GUARD
        for address, size in sizes.items():
            wanted = place() * ALIGNED + address % ALIGNED
            at += (wanted - at) % SPAN
            self.slots[address] = (at - start, size)
            at += size + GUARD
        self.memory = self.memory[: at - start].fill_(_PATTERN)
        for tensor in self.tensors.values():
            self._slot(tensor).copy_(view_storage(tensor))

    def view(self, name: str) -> torch.Tensor:
        """The staged copy of a tensor: same dtype, shape, stride and alignment."""
        tensor = self.tensors[name]
        if not tensor.untyped_storage().nbytes():
            return tensor
        flat = self._slot(tensor)
        typed = torch.empty(0, dtype=tensor.dtype, device="cuda")
        offset = (flat.storage_offset()) // tensor.element_size() + tensor.storage_offset()
        return typed.set_(self.memory.untyped_storage(), offset, tensor.shape, tensor.stride())

    def finish(self) -> int:
        """Copies the buffers back. Returns the number of overwritten guard bytes."""
        for tensor in self.tensors.values():
            view_storage(tensor).copy_(self._slot(tensor))
        guards, end = [], 0
        for at, size in self.slots.values():  # in the order of their addresses
            guards.append(self.memory[end:at])
            end = at + size
        return int((torch.cat([*guards, self.memory[end:]]) != _PATTERN).sum().item())

    def _slot(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        at, size = self.slots.get(storage.data_ptr(), (0, 0))
        return self.memory[at : at + size]
