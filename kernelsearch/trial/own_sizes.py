"""Verdicts on a task's own kernel at each of its test shapes, one by one: what an export may cover."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import Config, Verdict, Word
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.evaluation import Evaluation
from kernelsearch.trial.rejection import Rejection
from kernelsearch.trial.with_gpu import GpuStages
from kernelsearch.trial.without_gpu import Evaluating
from kernelsearch.worker.messages.jobs import JudgedCase

LIMIT_S = 10.0
"""The limit for the runs of one shape; a shape that needs longer is not covered."""
SECRET = 20
"""The seed of the inputs: it is fixed, so that the same task gives the same package."""


def judge_own_sizes(
    path: Path, config: Config, quick: frozenset[str] = frozenset(), tell: Callable[[str], None] = lambda text: None
) -> dict[str, Verdict]:
    """The verdict on a task's own kernel with this config at each test shape, by key. Raises TaskError.

    quick are the keys of shapes that are judged by one draw of values; tell is told which shape is judged.
    """
    with Bench.open(path) as bench:
        bench.secret = SECRET
        cases = [c for c in bench.cases("full") if c.kind == "test" and c.probe is None and not c.padded]
        cases = [c for c in cases if c.shape not in quick or c.regime == "randn"]
        candidate, stages = BoundCandidate(bench, bench.seed, config), Evaluation(bench, limit_s=LIMIT_S).stages
        by_shape = {shape: tuple(here) for shape, here in groupby(cases, lambda case: case.shape)}
        verdicts = {}
        for number, (shape, here) in enumerate(by_shape.items(), 1):
            tell(f"judging the task's own kernel at other sizes and dtypes, shape {number} of {len(by_shape)}")
            verdicts[shape] = _judge(candidate, stages if isinstance(stages, GpuStages) else None, here)
        return verdicts


def _judge(candidate: BoundCandidate, gpu: GpuStages | None, cases: tuple[JudgedCase, ...]) -> Verdict:
    try:
        binaries = candidate.compile((cases[0].shape,))
        if gpu is not None:
            return gpu.run_cases(candidate, binaries, cases, "full")
        return Evaluating(candidate, LIMIT_S).run(cases)
    except Rejection as rejected:
        return rejected.verdict
    except TaskError as error:  # the launcher or the reference does not take such inputs
        return Verdict(Word.CRASH, "run", str(error), "full")
