"""The run worker's judged runs: staged between guard bands, on poisoned memory, and once more like timed runs.

A kernel that can tell that it is judged could work only then: it finds guard bands before its buffers, poison in its
output, unused scratch. So each case also runs on outputs that hold numbers and without guard bands, and a timed shape
also runs as in timing: first a call on inputs with a few secretly moved elements, then the real call, at the same
addresses and with everything that the first call left behind. Its outputs are compared with the staged ones.
An asynchronous kernel runs many times more (`repeats`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from kernelsearch.kernel.launch import LaunchStep, Specialisation
from kernelsearch.tasks.facts import label_shape
from kernelsearch.verify.bits import same_bits
from kernelsearch.verify.library import steady_library
from kernelsearch.verify.pieces import copy_tensor
from kernelsearch.worker.gpu import repeats
from kernelsearch.worker.gpu.arena import Arena, GuardBroken
from kernelsearch.worker.gpu.launching import Launcher, MissingBinaries, case_of, launch_function, task_of
from kernelsearch.worker.launcher import standin, tensors
from kernelsearch.worker.launcher.arguments import replace_tensors, tensors_in
from kernelsearch.worker.messages import ipc
from kernelsearch.worker.messages.jobs import Ran, RunCases, RunSeeded

FILLS: tuple[tuple[bool, float | None], ...] = ((True, None), (True, 0.0), (False, 1.0))
"""(True between guard bands, content of unwritten memory) of the repeats of a case; all must give the same bits."""
MOVED = 64


@steady_library()
def run_cases(job: RunCases) -> tuple[Ran, ...]:
    """Runs each case `repeats` times, from fresh copies of its inputs.

    Raises GuardBroken, and MissingBinaries with what any of the cases lacks.
    """
    task = task_of(job.path)
    launcher, arena = Launcher(job.candidate, job.binaries), Arena()
    cases = zip(job.shapes, job.inputs, job.repeats or (1,) * len(job.shapes), strict=True)
    ran: list[Ran] = []
    missing: list[tuple[Specialisation, bool]] = []
    with launcher.intercept():
        for number, case in enumerate(cases):
            try:
                ran.append(_run_case(task, launcher, arena, *case, first=number))
            except MissingBinaries as case_missing:
                missing += (spec for spec in case_missing.specs if spec not in missing)
    if missing:
        raise MissingBinaries(missing)
    arena.check()
    return tuple(ran)


def _run_case(
    task: Any, launcher: Launcher, arena: Arena, shape: str, inputs: tuple[Any, ...], repeats: int, first: int
) -> Ran:
    """The runs of a case; of one that runs once the number decides how it is staged."""
    outputs: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()
    again = []
    for number in range(repeats):
        staged, fill = FILLS[(number if repeats > 1 else first) % len(FILLS)]
        values = [tensors.unpack(v, "cuda") for v in inputs]
        packed = tuple(tensors.pack(o) for o in _call(task, launcher, shape, values, arena if staged else None, fill))
        if any(tensors.has_gap_changed(v) for v in values):
            raise GuardBroken(f"wrote between the rows of an input whose rows lie apart, at {label_shape(task, shape)}")
        if number == 0:  # kept on the CPU, where no kernel can reach it
            outputs, after = packed, tensors.pack_changed(values, inputs, "cuda")
        elif packed != outputs:
            again.append(packed)
    return Ran(outputs, after, again=tuple(again))


@steady_library(tf32=True)
def run_seeded(job: RunSeeded) -> Ran:
    """Runs a whole timed shape: inputs from a seed, outputs and inputs passed on in GPU memory.

    again has the outputs of the run like a timed one, if their bits differ from the staged ones.
    """
    task, shape, seed = task_of(job.path), job.case.shape, job.case.seed
    ipc.release()
    launcher, arena = Launcher(job.candidate, job.binaries), Arena()
    values = list(task.build(shape, seed, "cuda").inputs)
    with launcher.intercept():
        outputs = _call(task, launcher, shape, values, arena, None)
    arena.check()
    del arena
    timed = _as_timed(task, launcher, shape, list(task.build(shape, seed, "cuda").inputs), seed)
    same = len(timed) == len(outputs) and all(same_bits(a, b) for a, b in zip(outputs, timed))
    again = () if same else (tuple(ipc.share(o) for o in timed),)
    ran = Ran(tuple(ipc.share(o) for o in outputs), tuple(ipc.share(v) for v in values), again=again)
    if not job.asynchronous:
        return ran
    plain = Launcher(job.candidate, job.binaries)
    kept = list(task.build(shape, seed, "cuda").inputs)

    def run() -> list[torch.Tensor]:
        fresh = [copy_tensor(v) if task.mutates and isinstance(v, torch.Tensor) else v for v in kept]
        return _call(task, plain, shape, fresh, None, None)

    with plain.intercept():
        count, unequal = repeats.find_unequal_run(run, outputs, disturb=repeats.Disturbance(seed), atomics=job.atomics)
    torch.cuda.synchronize()
    return replace(ran, repeated=count, unequal=tuple(ipc.share(o) for o in unequal or ()))


def _as_timed(task: Any, launcher: Launcher, shape: str, values: list[Any], seed: int) -> list[torch.Tensor]:
    """The outputs of the second of two plain calls at the same addresses; a few elements are moved for the first."""
    case = case_of(task, shape)
    launcher.execute, launcher.fill = launch_function, False
    with launcher.intercept():
        if not task.mutates:
            before = [_move_elements(v, seed + i) for i, v in enumerate(values)]
            launcher.used.clear()
            case.launch(*values)
            launcher.used.clear()
            for value, was in zip(values, before):
                if was is not None:
                    value.view(-1)[was[0]] = was[1]
        result = case.launch(*values)
        launcher.used.clear()
    torch.cuda.synchronize()
    return tensors.flatten_result(result, case.names, values, task.mutates)


def _move_elements(value: Any, seed: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Moves a few elements of a floating tensor; returns (their indices, their old values), or None if none moved."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return None
    if not value.numel() or not value.is_contiguous():
        return None
    generator = torch.Generator().manual_seed(seed * 6007 + 11)
    where = torch.randint(0, value.numel(), (MOVED,), generator=generator).to(value.device)
    flat = value.view(-1)
    was = flat[where].clone()
    flat[where] = (3.0 - was.float()).to(value.dtype)
    return where, was


def _call(
    task: Any, launcher: Launcher, shape: str, values: list[Any], arena: Arena | None, fill: float | None
) -> list[torch.Tensor]:
    """One launcher call, staged in an arena if there is one; then unwritten memory holds poison (None) or a value."""

    def launch_staged(arena: Arena, function: Any, step: LaunchStep, args: dict[str, Any]) -> None:
        with torch._C._DisableTorchDispatch():  # what is made here is not the launcher's, so nobody poisons it
            staged = arena.stage(tensors_in(args), (step.function, label))
            launch_function(function, step, replace_tensors(args, staged))
            arena.collect()

    case, label = case_of(task, shape), label_shape(task, shape)
    launcher.execute = partial(launch_staged, arena) if arena else launch_function
    launcher.fill = fill if arena else False  # plain: scratch holds what an earlier run left there
    with standin.poison_empty(fill):
        result = case.launch(*values)
    launcher.used.clear()
    return tensors.flatten_result(result, case.names, values, task.mutates)
