"""One open shape of the confirming worker: its live tensors, its contestants, and copies of their timed outputs.

A secret share of the outputs is copied, and each distinct one is kept once. Comparisons are of bits and stay on the
device until it is done: nothing may wait inside a timed span.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelsearch.worker.messages.confirm_jobs import OpenShape

if TYPE_CHECKING:
    import torch

MOST_KEPT = 8
"""Kept outputs of one candidate; more differing ones than this would only cost memory."""


@dataclass
class LiveContestant:
    """A candidate or baseline: its call, the wipe of its scratch, and its outputs kept for the judge."""

    call: Callable[..., Any]
    wipe: Callable[[], None]
    judged: bool
    host_us: float = 0.0
    kept: list[tuple[int, list[Any]]] = field(default_factory=list)
    sampled: int = 0


@dataclass
class Stage:
    """One open shape. Every call gets the live tensors; the contents rotate through them."""

    task: Any
    job: OpenShape
    case: Any
    live: list[Any]
    contents: list[list[Any]]
    flush: Any
    monitor: Any
    contestants: dict[str, LiveContestant] = field(default_factory=dict)
    turn: int = 0

    def load(self) -> tuple[int, list[Any]]:
        """Queues the next contents into the live tensors; returns (number of the contents, arguments of a call)."""
        import torch

        which = self.turn = (self.turn + 1) % len(self.contents)
        args = []
        for live, value in zip(self.live, self.contents[which], strict=True):
            if isinstance(live, torch.Tensor):
                live.copy_(value)
                args.append(live)
            else:
                args.append(value)
        return which, args


def look_at_outputs(stage: Stage, which: int, args: list[Any], result: Any) -> tuple[int, list[Any], Any]:
    """(which, copies of a timed call's outputs, True if it changed a protected input), queued behind the call."""
    import torch

    from kernelsearch.worker.launcher import tensors

    names, mutates = stage.case.names, stage.task.mutates
    outputs = [o.clone() for o in tensors.flatten_result(result, names, args, mutates)]
    pairs = zip(names, stage.live, stage.contents[which], strict=True)
    moved = [differ(a, b) for n, a, b in pairs if isinstance(a, torch.Tensor) and n not in mutates and a.numel()]
    return which, outputs, torch.stack(moved).any() if moved else None


def differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """True if two tensors differ in any bit, as a tensor on the device; NaN equals the same NaN."""
    import torch

    from kernelsearch.verify.judge import as_bits

    if one.shape != other.shape or one.dtype != other.dtype:
        return torch.tensor(True, device="cuda")
    return (as_bits(one) != as_bits(other)).any()


def remember(stage: Stage, contestant: LiveContestant, which: int, outputs: list[Any]) -> None:
    """Counts a sampled output, and keeps it unless a kept one has the same bits."""
    contestant.sampled += 1
    if which and stage.job.one_set:
        return
    for known, kept in contestant.kept:
        if known == which and len(kept) == len(outputs):
            if not any(bool(differ(a, b)) for a, b in zip(kept, outputs, strict=True) if a.numel()):
                return
    if len(contestant.kept) < MOST_KEPT and (not contestant.kept or has_room_for(outputs)):
        contestant.kept.append((which, outputs))


def has_room_for(outputs: list[Any]) -> bool:
    """True if the GPU has room to keep these and still work; the first outputs are kept in any case."""
    import torch

    size = sum(o.untyped_storage().nbytes() for o in outputs if o.is_cuda)
    return not size or torch.cuda.mem_get_info()[0] > 8 * size
