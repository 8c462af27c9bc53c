"""Judged and estimated without a GPU: verdicts from Triton's interpreter, times from the static model."""

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
from kernelsearch.trial.build import Builder
from kernelsearch.trial.estimate import ESTIMATE_PROTOCOL, estimated
from kernelsearch.trial.interpret import interpreted, ran
from kernelsearch.trial.once import Once
from kernelsearch.trial.rejection import Rejected, asked
from kernelsearch.worker.messages import jobs

LIMIT_S = 60.0


class Interpreter:
    """The stages after the compilers where there is no GPU. Verdicts and counts are kept: launch options change neither."""

    mode, protocol = "interpreter", ESTIMATE_PROTOCOL

    def __init__(self, bench: Bench, builder: Builder, once: Once, timed: tuple[str, ...], limit_s: float) -> None:
        self.bench, self.builder, self.once, self.timed, self.limit_s = bench, builder, once, timed, limit_s

    @property
    def layers(self) -> tuple[str, ...]:
        """The isolation layers that are on, and that values are computed on float32 twins."""
        return (*self.bench.interpreters.layers, "float32 twin")

    def screened(
        self, kernel: Kernel, config: Config, cases: tuple[jobs.Case, ...], incumbent: Measurement | None
    ) -> tuple[Verdict, Measurement]:
        try:
            verdict = self.judged(kernel, config, cases, "screen")
        except Rejected as rejected:
            if rejected.verdict.word is Word.CRASH:  # often no kernel at all: then the compiler says where
                self.builder.compiled(kernel, config, self.timed)
            raise
        binaries = self.builder.compiled(kernel, config, self.timed)
        counts = self.profiled(kernel, config).counts
        return verdict, estimated(self.bench, kernel, config, binaries, counts, self.timed)

    def full(self, kernel: Kernel, config: Config, cases: tuple[jobs.Case, ...]) -> Verdict:
        return self.judged(kernel, config, cases, "full")

    def foresee(self, kernel: Kernel, config: Config) -> None:
        """Nothing: here `full` compiles nothing, and an interpreter that runs ahead takes the place of another."""

    def verified(self, kernel: Kernel, config: Config, cases: tuple[jobs.Case, ...]) -> Verdict:
        """`full`, after a compilation of the test shapes too: their dtypes may be held to another precision."""
        facts = self.bench.facts
        tests = tuple(s.key for s in facts.test_shapes)
        self.builder.compiled(kernel, config, tuple(dict.fromkeys((*self.timed, *unlike(facts, tests)))))
        return self.full(kernel, config, cases)

    def judged(self, kernel: Kernel, config: Config, cases: tuple[jobs.Case, ...], depth: str) -> Verdict:
        """The verdict on float32 twins. Raises Rejected unless it is accept."""
        key = f"{depth}/{kernel.digest}/{numbers(kernel, config)}"
        verdict = self.once(key, lambda: interpreted(self.bench, kernel, config, cases, depth, self.limit_s))
        if not verdict.accepted:
            raise Rejected(verdict)
        return verdict

    def seed_takes(self, padded: tuple[jobs.Case, ...]) -> bool:
        seed, config = self.bench.seed, self.bench.facts.config
        return ran(self.bench, seed, config, padded, "forward", "full", self.limit_s).accepted

    def profiled(self, kernel: Kernel, config: Config) -> jobs.Profiled:
        """Counts of the timed shapes."""
        candidate = self.bench.candidate(kernel, config, code=True)
        profiled = self.once(
            f"profile/{kernel.digest}/{numbers(kernel, config)}",
            lambda: asked(
                self.bench.interpreters, jobs.Profile(self.bench.path, candidate, self.timed), self.limit_s, "profile"
            ),
        )
        if profiled.verdict is not None:
            raise Rejected(profiled.verdict)
        return profiled


def unlike(facts: TaskFacts, shapes: tuple[str, ...]) -> tuple[str, ...]:
    """Of these shapes the first for each set of argument dtypes."""
    found: dict[str, str] = {}
    for shape in shapes:
        launches = facts.traces[shape].launches
        kinds = [[n, a.dtype] for f in launches for n, a in f.args.items() if isinstance(a, TensorFact)]
        found.setdefault(repr(kinds), shape)
    return tuple(found.values())


def numbers(kernel: Kernel, config: Config) -> str:
    """The key of what the interpreter sees of a config: no launch options, but for those that a function takes itself."""
    taken = {n for f in kernel.functions for n in f.params}
    return config_key(
        {k: v for k, v in config.items() if (n := k.rpartition(".")[2]) in taken or n not in LAUNCH_OPTIONS}
    )
