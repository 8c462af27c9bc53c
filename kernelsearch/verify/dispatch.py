"""What modes that see every operation of torch have in common."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A mode that is never compiled: torch would else import its compiler, seconds of work, at the first operation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
