"""A candidate of an opened task, bound to the launches of its shapes and compiled."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Mapping
from functools import cached_property

from kernelsearch.compile.build import EXCEEDS_SHARED, Binary
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import Config, LaunchFact, Verdict, Word
from kernelsearch.kernel.launch import BoundLaunch, LaunchError, Specialisation
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import TaskPredicate
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.fewer_stages import lower_stages
from kernelsearch.trial.rejection import ALLOWED_S, Rejection
from kernelsearch.worker.messages import jobs

Spec = tuple[Specialisation, bool]
"""One specialisation that is compiled, and whether it is the seed's."""


class BoundCandidate:
    """A kernel at a config. Each shape is bound once; the bench keeps the binaries.

    Its methods raise Rejection for what the launch or a compiler refuses.
    """

    def __init__(self, bench: Bench, kernel: Kernel, config: Config) -> None:
        self.bench, self.kernel, self.config, self.left_s = bench, kernel, config, ALLOWED_S
        self._shapes: dict[str, tuple[list[tuple[LaunchFact, BoundLaunch]], list[Spec]]] = {}

    @classmethod
    def of_seed(cls, bench: Bench) -> BoundCandidate:
        """The task's own kernel at its own config."""
        return cls(bench, bench.seed, bench.facts.config)

    @property
    def is_seed(self) -> bool:
        seed = self.bench.seed
        return self.kernel.digest == seed.digest and dict(self.config) == dict(self.bench.facts.config)

    def fit(self, shapes: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these shapes where it is timed: not where its blocks are too large for its threads or shared memory.

        The task's own kernel is timed at all, and so is one that fits at none. Drawn sizes are not left out.
        """
        if self.is_seed or len(shapes) == 1:
            return shapes
        left_out = {s.key for s in self.bench.facts.shapes} - self._fitting
        return tuple(s for s in shapes if s not in left_out) or shapes

    @cached_property
    def _fitting(self) -> set[str]:
        possible = self.bench.once("possible", lambda: TaskPredicate(self.bench.facts))
        shapes = possible.find_shapes(self.kernel, self.config)
        with contextlib.suppress(Rejection):  # `compile` raises it again
            if self._exceeds_shared(*sorted(shapes)):
                return {shape for shape in shapes if not self._exceeds_shared(shape)}
        return shapes

    def _exceeds_shared(self, *shapes: str) -> bool:
        _, verdict = self.bench.build_binaries(self.kernel, self.specialisations(*shapes))
        return verdict is not None and EXCEEDS_SHARED in verdict.detail

    def launches(self, shape: str) -> list[tuple[LaunchFact, BoundLaunch]]:
        """Every launch of a shape, and what the candidate runs there."""
        return self._bind(shape)[0]

    def specialisations(self, *shapes: str) -> tuple[Spec, ...]:
        """The specialisations to compile for these shapes, in the order of the launches."""
        return tuple(dict.fromkeys(spec for shape in shapes for spec in self._bind(shape)[1]))

    def _bind(self, shape: str) -> tuple[list[tuple[LaunchFact, BoundLaunch]], list[Spec]]:
        if shape not in self._shapes:
            try:
                launches = self.bench.bind_launches(self.kernel, self.config, (shape,))
                specs = [(spec, bound.of_seed) for fact, bound in launches for spec in bound.specialise_steps(fact)]
            except LaunchError as error:
                raise Rejection(Verdict(Word.STATIC, "launch", str(error))) from None
            if unknown := [name for name in self.kernel.unfilled if not self.bench.facts.find_fills(name)]:
                reason = f"INIT: the launcher fills nothing that it passes as {unknown[0]!r}, or not by a call of torch"
                raise Rejection(Verdict(Word.STATIC, "launch", reason))
            timed = next((s for s in self.bench.facts.shapes if s.key == shape), None)
            if timed is not None and all(0 in step.grid for _, bound in launches for step in bound.plan.steps):
                reason = f"no kernel runs at {timed.label}, because every grid is empty: leave that shape out of SHAPES"
                raise Rejection(Verdict(Word.STATIC, "launch", reason))
            self._shapes[shape] = launches, specs
        return self._shapes[shape]

    def compile(self, shapes: tuple[str, ...]) -> dict[str, Binary]:
        """The binaries that the launches of these shapes need, by `jobs.spec_key`."""
        return self.build(self.specialisations(*shapes))

    def compile_ahead(self, shapes: tuple[str, ...]) -> None:
        """Begins to compile where there are compilers to spare; `compile` raises what is refused."""
        with contextlib.suppress(Rejection):
            self.bench.begin_builds(self.kernel, self.specialisations(*shapes))

    def build(self, specs: tuple[Spec, ...]) -> dict[str, Binary]:
        """The binaries of these specialisations, by `jobs.spec_key`."""
        binaries, verdict = self.bench.build_binaries(self.kernel, specs)
        if verdict is not None and EXCEEDS_SHARED in verdict.detail:
            timed = self.specialisations(*(s.key for s in self.bench.facts.shapes))
            binaries = {jobs.spec_key(*spec): self._build_as_it_fits(spec, spec in timed) for spec in specs}
        elif verdict is not None:
            raise Rejection(verdict)
        unsupported = next((b.unsupported for b in binaries.values() if b.unsupported), "")
        if unsupported:
            raise Rejection(Verdict(Word.COMPILE, "launch", unsupported))
        return binaries

    def _build_as_it_fits(self, spec: Spec, is_timed: bool) -> Binary:
        """The binary of one specialisation; one that is not timed has as many stages as shared memory holds."""
        fewer = spec[0]
        while True:
            binaries, verdict = self.bench.build_binaries(self.kernel, ((fewer, spec[1]),))
            if verdict is None:
                return next(iter(binaries.values()))
            may_have_fewer = not is_timed and not spec[1] and EXCEEDS_SHARED in verdict.detail
            if not may_have_fewer or (lowered := lower_stages(self.kernel, fewer)) is None:
                raise Rejection(verdict)
            fewer = lowered

    def identities(self, shape: str, binaries: Mapping[str, Binary]) -> list[str]:
        """The identity of each binary that runs at a shape, in order."""
        return [binaries[jobs.spec_key(*spec)].identity for spec in self._bind(shape)[1]]

    def message(self, *, code: bool) -> jobs.CandidateJob:
        """The message about it for a worker; the run worker gets none of its code."""
        return self.bench.candidate(self.kernel, self.config, code=code)


def has_atomics(kernel: Kernel) -> bool:
    """Whether runs of a kernel may differ in their last bits, because additions come in any order."""
    code = kernel.code
    if "atomic_" not in code:
        return False
    return any(isinstance(n, ast.Attribute) and n.attr.startswith("atomic_") for n in ast.walk(parse_python(code)))
