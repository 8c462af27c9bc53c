"""The run worker's judged runs: staged between guard bands, on poisoned memory, and once more as they will be timed.

A kernel that can tell that it is judged could work only then: it finds guard bands before its buffers, poison in its
output, scratch that nobody used. So each case also runs on outputs that hold numbers and without guard bands, and a
timed shape runs as timing does it: a call on inputs of which a few secret elements are moved, then, at the same
addresses and with all that the first call left behind, the call whose outputs are held against the staged ones.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelsearch.kernel.launch import Step
from kernelsearch.worker.gpu.arena import Arena
from kernelsearch.worker.gpu.launching import GuardBroken, Launcher, case_of, launched, task_of
from kernelsearch.worker.launcher import intercept, standin, tensors
from kernelsearch.worker.messages import ipc
from kernelsearch.worker.messages.jobs import Ran, RunCases, RunSeeded

FILLS: tuple[tuple[bool, float | None], ...] = ((True, None), (True, 0.0), (False, 1.0))
"""(between guard bands, what unwritten memory holds) of the repeats of a case; all must give the same bits."""
MOVED = 64


def run_cases(job: RunCases) -> tuple[Ran, ...]:
    """Each case as often as repeats says, from fresh copies of its inputs. Raises GuardBroken."""
    task = task_of(job.path)
    launcher = Launcher(job.candidate, job.binaries, launched)
    return tuple(_run_case(task, launcher, *pair, job.repeats) for pair in zip(job.shapes, job.inputs, strict=True))


def _run_case(task: Any, launcher: Launcher, shape: str, inputs: tuple[Any, ...], repeats: int) -> Ran:
    first: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()
    again = []
    for number in range(repeats):
        staged, fill = FILLS[number % len(FILLS)]
        values = [tensors.unpacked(v, "cuda") for v in inputs]
        found = _called(task, launcher, shape, values, staged, fill)
        outputs = tuple(tensors.packed(o) for o in found)
        if any(tensors.gap_changed(v) for v in values):
            raise GuardBroken(f"wrote between the rows of an input whose rows lie apart, at {shape}")
        if number == 0:  # kept on the CPU, where no kernel can reach it
            first, after = outputs, tuple(tensors.packed(v) for v in values)
        elif outputs != first:
            again.append(outputs)
    return Ran(first, after, again=tuple(again))


def run_seeded(job: RunSeeded) -> Ran:
    """A whole timed shape: inputs from a seed, outputs and inputs handed over in GPU memory.

    again has the outputs of the run as it is timed, where they are not the staged ones bit for bit.
    """
    task, shape, seed = task_of(job.path), job.case.shape, job.case.seed
    ipc.release()
    launcher = Launcher(job.candidate, job.binaries, launched)
    values = list(task.build(shape, seed, "cuda").inputs)
    outputs = _called(task, launcher, shape, values, True, None)
    torch.cuda.synchronize()
    timed = _as_timed(task, launcher, shape, list(task.build(shape, seed, "cuda").inputs), seed)
    same = len(timed) == len(outputs) and all(_same(a, b) for a, b in zip(outputs, timed))
    again = () if same else (tuple(ipc.share(o) for o in timed),)
    return Ran(tuple(ipc.share(o) for o in outputs), tuple(ipc.share(v) for v in values), again=again)


def _as_timed(task: Any, launcher: Launcher, shape: str, values: list[Any], seed: int) -> list[torch.Tensor]:
    """The outputs of the second of two plain calls at the same addresses; the first had a few elements moved."""
    case = case_of(task, shape)
    launcher.execute, launcher.fill = launched, False
    with intercept.intercepted(launcher):
        if not task.mutates:
            kept = [_moved(v, seed + i) for i, v in enumerate(values)]
            launcher.used.clear()
            case.launch(*values)
            launcher.used.clear()
            for value, was in zip(values, kept):
                if was is not None:
                    value.view(-1)[was[0]] = was[1]
        result = case.launch(*values)
        launcher.used.clear()
    torch.cuda.synchronize()
    return tensors.flattened(result, case.names, values, task.mutates)


def _moved(value: Any, seed: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Moves a few elements of a floating tensor; (where, what was there), or None where nothing was moved."""
    if (
        not isinstance(value, torch.Tensor)
        or not value.is_floating_point()
        or not value.numel()
        or not value.is_contiguous()
    ):
        return None
    generator = torch.Generator().manual_seed(seed * 6007 + 11)
    where = torch.randint(0, value.numel(), (MOVED,), generator=generator).to(value.device)
    flat = value.view(-1)
    was = flat[where].clone()
    flat[where] = (3.0 - was.float()).to(value.dtype)
    return where, was


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two outputs are equal bit for bit, so that the same NaN equals itself."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(one.element_size())
    if whole is None or not one.numel():
        return bool(torch.equal(one, other))
    return bool(torch.equal(one.contiguous().view(whole), other.contiguous().view(whole)))


def _called(
    task: Any, launcher: Launcher, shape: str, values: list[Any], staged: bool, fill: float | None
) -> list[torch.Tensor]:
    """One launcher call; unwritten memory holds poison (None) or a value. Raises GuardBroken."""

    def guarded(function: Any, step: Step, args: dict[str, Any]) -> None:
        arena = Arena({n: a for n, a in args.items() if isinstance(a, torch.Tensor)})
        inside = {n: arena.view(n) if isinstance(a, torch.Tensor) else a for n, a in args.items()}
        launched(function, step, inside)
        broken = arena.finish()
        if broken:
            raise GuardBroken(f"{step.function} overwrote {broken} bytes outside its buffers, at {shape}")

    case = case_of(task, shape)
    launcher.execute = guarded if staged else launched
    launcher.fill = fill if staged else False  # plain: scratch holds what an earlier run left there
    with standin.poisoned_empty(fill), intercept.intercepted(launcher):
        result = case.launch(*values)
    launcher.used.clear()
    return tensors.flattened(result, case.names, values, task.mutates)
