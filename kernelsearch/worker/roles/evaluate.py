"""The worker that evaluates candidates' TTIR on a CPU, for judging and for counting without a GPU.

It is always forked from a nursery, which imports this module before any candidate comes.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from kernelsearch.core.types import Verdict, Word
from kernelsearch.evaluate.launch import GridRun
from kernelsearch.verify.judge import poison_value
from kernelsearch.worker.isolation.sandbox import WorkerLimits
from kernelsearch.worker.judging.candidate_launch import CandidateLaunch, describe_shape, find_inputs
from kernelsearch.worker.judging.evaluated_launch import bind_arguments, compile_launch, run_guarded
from kernelsearch.worker.judging.launch_counts import count_shapes
from kernelsearch.worker.launcher import tensors
from kernelsearch.worker.messages.jobs import UNDEFINED, UNFILLED, ZEROED, Evaluate, Profile, Profiled, Ran

ROWS = 6
"""Rows of a large output that are drawn."""
LIMITS = WorkerLimits(cpu_s=600)  # a backstop: the driver's wall clock ends a job long before


def preload() -> None:
    """Prepares what every job needs, once, before forking."""
    import triton.compiler
    import triton.experimental.gluon
    from torch.fx.experimental import symbolic_shapes  # noqa: F401  (half a second, at the first meta tensor)

    triton.language.core  # noqa: B018
    torch.set_num_threads(1)


def handle(job: Evaluate | Profile) -> Any:
    """Runs each case, up to the first that fails, or counts."""
    if isinstance(job, Profile):
        return count_shapes(job)
    runs: list[Ran] = []
    for number in range(len(job.shapes)):
        runs.append(_run_case(job, number))
        if runs[-1].verdict is not None:
            break
    return tuple(runs)


def answer_failure(job: Any, message: str, trace: str) -> Any:
    verdict = Verdict(Word.CRASH, "run", message, detail={"trace": trace})
    return Profiled(verdict=verdict) if isinstance(job, Profile) else (Ran(verdict=verdict),)


def _run_case(job: Evaluate, number: int) -> Ran:
    """One launcher call, whose launches are evaluated whole."""
    c, shape = job.candidate, job.shapes[number]
    values = [tensors.unpack(value) for value in job.inputs[number]]
    inputs = find_inputs(job.path, shape, c.target, values)
    suspects: list[str] = []
    reached, ran, absent = set[Any](), set[Any](), set[Any]()

    def execute(launch: CandidateLaunch) -> None:
        compiled, blocks, choices = compile_launch(launch, c.target.arch)
        buffers, args = bind_arguments(launch, inputs, beside=values if compiled.casts else ())
        order, _, _ = job.order.partition(",")
        run = GridRun(compiled, buffers, args, launch.step.grid, order, job.order == UNDEFINED)
        run.run()
        suspects.append(buffers.suspect)
        for block in (block for runs, block in run.met & blocks if not runs):
            (reached if (True, block) in blocks else absent).add(block)
        ran.update(block for runs, block in run.met & blocks if runs)
        for line, sides in choices.items():
            for block, side in sides:
                if (line, True) in run.met or (line, False) in run.met:
                    reached.add(block)
                if (line, side) in run.met:
                    ran.add(block)

    poison = 0.0 if job.order == ZEROED else None
    fill, places = int(job.order.removeprefix(UNFILLED)) if job.order.startswith(UNFILLED) else 0, list[str]()
    memory: dict[str, Any] = {"poison": poison, "fill": fill, "places": places}
    outputs, verdict = run_guarded(job.path, c, shape, values, execute, job.num_sms, **memory)
    if verdict is not None:
        return Ran(verdict=verdict)
    if any(tensors.has_gap_changed(v) for v in values):
        reason = "wrote between the rows of an input whose rows lie apart"
        return Ran(verdict=Verdict(Word.MEMORY, "run", reason, detail=describe_shape(job.path, shape, c.target)))
    packed = tuple(tensors.pack(o) for o in outputs), tensors.pack_changed(values, job.inputs[number])
    suspect = next((text for text in suspects if text), "")
    seed = job.sampled[number] if job.sampled else 0
    looked_at = tuple(tensors.pack(_draw_rows(o, seed)) for o in outputs) if seed else ()
    return Ran(
        *packed,
        suspect=suspect,
        written=looked_at,
        reached=frozenset(reached),
        ran=frozenset(ran),
        absent=frozenset(absent),
        place="".join(places),
    )


def _draw_rows(output: torch.Tensor, seed: int) -> torch.Tensor:
    """True in the rows of a large output that are compared: the first, the last, some drawn, and unwritten ones."""
    mask = torch.zeros(output.shape, dtype=torch.bool)
    if not output.dim() or not len(output):
        return mask.fill_(True)
    poison = poison_value(output.dtype)
    blank = torch.isnan(output) if output.dtype.is_floating_point else output == poison
    unwritten = blank.reshape(len(output), -1).any(1).nonzero().flatten()[:ROWS].tolist()
    drawn = random.Random(seed).sample(range(len(output)), min(ROWS, len(output)))
    mask[[0, len(output) - 1, *drawn, *unwritten]] = True
    return mask
