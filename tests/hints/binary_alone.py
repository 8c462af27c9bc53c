"""Diagnoses a task's own kernel in this process from its binary and its launch alone: no GPU, no worker, no counts."""

from __future__ import annotations

from pathlib import Path

from kernelsearch.compile.build import Built, build
from kernelsearch.kernel import targets
from kernelsearch.kernel.launch import bind_launch
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.hints.findings import LauncherCall
from kernelsearch.tasks import facts as task_facts
from kernelsearch.trial.hints import ask_edits, launches_of
from kernelsearch.trial.shared_state import Once
from kernelsearch.worker.launcher import opening, trace
from kernelsearch.worker.messages import jobs

HERE = Path(__file__).resolve().parent
KERNELS = tuple(sorted(p for p in HERE.glob("*.py") if p.read_text().startswith("# fault:")))


def said(path: Path) -> dict[str, str]:
    """What a kernel's first lines say that its hint must be: fault, bottleneck, change."""
    lines = path.read_text().splitlines()[:3]
    return {k: v for k, _, v in (line.removeprefix("# ").partition(": ") for line in lines)}


def agrees(said: dict[str, str], bottleneck: str, word: str) -> bool:
    """Whether a first hint is what the file says; `tile size or none` takes either change."""
    return bottleneck == said["bottleneck"] and word in said["change"].split(" or ")


def calls(path: Path, target: str = "h100") -> tuple[LauncherCall, ...]:
    """The calls of the task's own kernel with its own config, one a timed shape, compiled for the target."""
    machine = targets.target_by_name(target)
    task = opening.open_task(path, machine)
    grids = {}

    def traced(task, key):
        run = trace.run_launcher(task, key, machine)
        grids[key] = [launch.resolve_grid for launch in run.launches]
        return trace.make_trace(key, run.launches)

    described = task_facts.describe(task, traced, lambda task, key: trace.describe_outputs(task, key, machine))
    seed = Kernel.parse(described.seed)
    found, once = [], Once()
    for shape in described.shapes:
        launches = described.traces[shape.key].launches
        bound = [
            (f, bind_launch(seed, described.config, seed, described.config, described.sites, f, grid_of, machine.num_sms))
            for f, grid_of in zip(launches, grids[shape.key], strict=True)
        ]
        binaries = {}
        for fact, one in bound:
            for spec in one.specialise_steps(fact):
                built = build(seed.code, "k", spec, machine.capability, machine.shared_per_program)
                assert isinstance(built, Built), built
                binaries[jobs.spec_key(spec, one.of_seed)] = built.binary
        launches = launches_of(bound, binaries, machine)
        found.append(LauncherCall(shape.label, launches, applies=ask_edits(seed, described, once)))
    return tuple(found)
