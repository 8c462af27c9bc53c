"""The stages without a GPU: verdicts from Triton's interpreter, times from the static model."""

from __future__ import annotations

from kernelsearch.core.types import (
    LAUNCH_OPTIONS,
    Config,
    Measurement,
    TaskFacts,
    TensorFact,
    Verdict,
    Word,
    config_key,
)
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.estimate import ESTIMATE_PROTOCOL, estimate_times
from kernelsearch.trial.interpret import Interpretation, interpret
from kernelsearch.trial.once import Once
from kernelsearch.trial.rejection import Rejected, asked
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Pool

LIMIT_S = 60.0


class Interpreter:
    """The stages after the compilers where there is no GPU. Verdicts and counts are kept: launch options change neither."""

    mode, protocol = "interpreter", ESTIMATE_PROTOCOL

    def __init__(self, bench: Bench, once: Once, timed: tuple[str, ...], limit_s: float) -> None:
        self.bench, self.once, self.timed, self.limit_s = bench, once, timed, limit_s

    @property
    def layers(self) -> tuple[str, ...]:
        """The isolation layers that are on, and that values are computed on float32 twins."""
        return (*self.bench.interpreters.layers, "float32 twin")

    def screened(
        self, candidate: BoundCandidate, cases: tuple[jobs.Case, ...], incumbent: Measurement | None
    ) -> tuple[Verdict, Measurement]:
        try:
            verdict = self.judged(candidate, cases, "screen")
        except Rejected as rejected:
            if rejected.verdict.word is Word.CRASH:  # often no kernel at all: then the compiler says where
                candidate.compile(self.timed)
            raise
        binaries = candidate.compile(self.timed)
        return verdict, estimate_times(candidate, binaries, self.profiled(candidate).counts, self.timed)

    def full(self, candidate: BoundCandidate, cases: tuple[jobs.Case, ...]) -> Verdict:
        return self.judged(candidate, cases, "full")

    def foresee(self, candidate: BoundCandidate) -> None:
        """Nothing: here `full` compiles nothing, and an interpreter that runs ahead takes the place of another."""

    def verified(self, candidate: BoundCandidate, cases: tuple[jobs.Case, ...]) -> Verdict:
        """`full`, after a compilation of the test shapes too: their dtypes may be held to another precision."""
        facts = self.bench.facts
        tests = unlike(facts, tuple(s.key for s in facts.test_shapes))
        candidate.compile(tuple(dict.fromkeys((*self.timed, *tests))))
        return self.full(candidate, cases)

    def judged(self, candidate: BoundCandidate, cases: tuple[jobs.Case, ...], depth: str) -> Verdict:
        """The verdict on float32 twins. Raises Rejected unless it is accept."""
        key = f"{depth}/{_interpreted_key(candidate)}"
        verdict = self.once(key, lambda: interpret(candidate, cases, depth, self.limit_s))
        if not verdict.accepted:
            raise Rejected(verdict)
        return verdict

    def seed_takes(self, padded: tuple[jobs.Case, ...]) -> bool:
        return Interpretation(BoundCandidate.of_seed(self.bench), self.limit_s).run(padded).accepted

    def profiled(self, candidate: BoundCandidate) -> jobs.Profiled:
        """Counts of the timed shapes. Raises Rejected when the interpreter cannot run them."""
        return self.once(
            f"profile/{_interpreted_key(candidate)}",
            lambda: profile_programs(candidate, self.bench.interpreters, self.timed, self.limit_s),
        )


def _interpreted_key(candidate: BoundCandidate) -> str:
    return f"{candidate.kernel.digest}/{numbers(candidate.kernel, candidate.config)}"


def profile_programs(candidate: BoundCandidate, pool: Pool, shapes: tuple[str, ...], limit_s: float) -> jobs.Profiled:
    """Counts of what sampled programs do at these shapes. Raises Rejected when the interpreter cannot run them."""
    job = jobs.Profile(candidate.bench.path, candidate.message(code=True), shapes)
    profiled = asked(pool, job, limit_s, "profile")
    if profiled.verdict is not None:
        raise Rejected(profiled.verdict)
    return profiled


def unlike(facts: TaskFacts, shapes: tuple[str, ...]) -> tuple[str, ...]:
    """The first of these shapes for each set of argument dtypes."""
    first: dict[str, str] = {}
    for shape in shapes:
        launches = facts.traces[shape].launches
        kinds = [[n, a.dtype] for f in launches for n, a in f.args.items() if isinstance(a, TensorFact)]
        first.setdefault(repr(kinds), shape)
    return tuple(first.values())


def numbers(kernel: Kernel, config: Config) -> str:
    """The key of a config for the interpreter, without the launch options that no function takes as a parameter."""
    taken = {n for f in kernel.functions for n in f.params}
    return config_key(
        {k: v for k, v in config.items() if (n := k.rpartition(".")[2]) in taken or n not in LAUNCH_OPTIONS}
    )
