"""Counts what the programs of a candidate do, on a CPU, for the static model."""

from __future__ import annotations

from kernelsearch.core.types import LAUNCH_OPTIONS, Config, config_key
from kernelsearch.kernel.expressions import names_in
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.rejection import Rejection, ask_within
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Pool


def evaluated_key(candidate: BoundCandidate) -> str:
    return f"{candidate.kernel.digest}/{evaluated_config_key(candidate.kernel, candidate.config)}"


def profile_programs(candidate: BoundCandidate, pool: Pool, shapes: tuple[str, ...], limit_s: float) -> jobs.Profiled:
    """Counts of what sampled programs do at these shapes. Raises Rejection when the evaluator cannot run them."""
    job = jobs.Profile(candidate.bench.path, candidate.message(code=True), shapes, candidate.bench.secret)
    seed = BoundCandidate.of_seed(candidate.bench)
    profiled = ask_within(candidate, pool, job, limit_s, shapes, lambda: profile_programs(seed, pool, shapes, limit_s))
    if profiled.verdict is not None:
        raise Rejection(profiled.verdict)
    return profiled


def evaluated_config_key(kernel: Kernel, config: Config) -> str:
    """The key of a config for the evaluator, without the launch options that no function or expression reads."""
    taken = {n for f in kernel.functions for n in f.params}.union(
        *(names_in(text) for f in kernel.functions for text in kernel.expressions_of(f.name))
    )
    return config_key(
        {k: v for k, v in config.items() if (n := k.rpartition(".")[2]) in taken or n not in LAUNCH_OPTIONS}
    )
