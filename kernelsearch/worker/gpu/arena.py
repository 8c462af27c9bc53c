"""An arena for judging on a GPU: it stages every buffer of a launch between guard bands that must stay untouched."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernelsearch.worker.launcher.tensors import view_storage

GUARD = 4096
_PATTERN = 0xFF  # NaN in every IEEE format, -1 in every integer one: it shows in the result of a read from a guard


class Arena:
    """The buffers of one launch, copied into one allocation; `finish` checks the guards and copies back."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = dict(tensors)
        self.slots: dict[int, tuple[int, int]] = {}
        at = GUARD
        for tensor in self.tensors.values():
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            if address not in self.slots and storage.nbytes():
                self.slots[address] = (at + address % 256, storage.nbytes())
                at += 512 + -(-storage.nbytes() // 256) * 256 + GUARD
        self.memory = torch.full((at,), _PATTERN, dtype=torch.uint8, device="cuda")
        self.memory = self.memory if self.memory.data_ptr() % 256 == 0 else self.memory.clone()
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
