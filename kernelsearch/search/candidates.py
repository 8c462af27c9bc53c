"""Turns a strategy's proposals into candidates: the one proposed, else the nearest that was not tried."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernelsearch.core.errors import StrategyError
from kernelsearch.core.types import Config, Proposal, ProposalKind, Trial, is_whole_kernel
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Proposer, Request, Rewrite
from kernelsearch.record.rows import Structure
from kernelsearch.search.contract import Strategy
from kernelsearch.search.history import RunState
from kernelsearch.search.runs import BegunRun
from kernelsearch.tune import Tuners, nearest_value, space_of, start_of


@dataclass(frozen=True)
class Candidate:
    """The candidate of an ask: what was proposed, and what was made of it."""

    number: int
    proposal: Proposal
    kernel: Kernel
    config: Config


@dataclass(frozen=True)
class CandidateMaker:
    """Makes the candidate of each ask, reserves it with the tuners and notes its structure in `state`.

    starts are the kernels of the first asks, which nobody proposes.
    """

    seed: Kernel
    strategy: Strategy
    proposer: Proposer
    tuners: Tuners
    state: RunState
    begun: BegunRun
    starts: tuple[Rewrite, ...] = ()

    def ask(self, number: int, drained: bool = False) -> Candidate | None:
        """The candidate of ask `number`, None when nothing is left. Raises StrategyError for an unknown parent.

        drained: the ask is repeated after all in flight was told; a stored trial that needed that, needs it again.
        """
        if number == 0:
            config = self.tuners.best_config(self.seed.digest)
            self.tuners.reserve(self.seed.digest, config)
            self.state.structures[self.seed.digest] = Structure(self.seed, 0)
            return Candidate(0, Proposal(ProposalKind.SEED), self.seed, config)
        if not drained and number < len(self.begun) and self.begun[number].proposal.drained:
            self._choose(number)  # as it was
            return None
        if number < self.begun.run.extended:
            return self._repeat(self.begun[number])
        proposal = self.begun.proposal(number, self._choose)
        if proposal is None:
            return None
        unknown = [p for p in proposal.parents if p not in self.tuners]
        if unknown:
            strategy = self.begun.run.facts.strategy
            raise StrategyError(f"{strategy} proposed a parent that is no kernel of this run: {unknown[0]}")
        return next((c for c in self._attempts(number, replace(proposal, drained=drained)) if c), None)

    def _repeat(self, trial: Trial) -> Candidate:
        """The candidate of a trial that stands, whatever would be asked now."""
        structure = self.begun.structures.get(trial.number)
        if structure is not None and structure.kernel.digest not in self.tuners:
            self._add(structure)
        self.tuners.reserve(trial.kernel, trial.config)
        return Candidate(trial.number, trial.proposal, self.tuners.kernel_by_digest(trial.kernel), trial.config)

    def _choose(self, number: int) -> Proposal | None:
        """The proposal of a kernel that the run begins with, then the strategy's."""
        if number > len(self.starts):
            return self.strategy.ask(number)
        start = self.starts[number - 1]
        if start.kernel.digest in self.tuners:
            return Proposal(ProposalKind.RETUNE, (start.kernel.digest,), config=start.kernel.config or None)
        return Proposal(ProposalKind.REWRITE, (start.parent or self.seed.digest,))

    def _attempts(self, number: int, proposal: Proposal) -> Iterator[Candidate | None]:
        """Tries the proposal, then the nearest alternatives; None for each that gives no candidate."""
        parent = proposal.parents[0] if proposal.parents else self.seed.digest
        if proposal.kind is ProposalKind.REWRITE:
            yield self._rewrite(number, proposal, parent)
        yield self._retune(number, proposal, parent, proposal.config)
        others = [t.kernel for t in self.state.rank_kernels() if t.kernel != parent]
        for digest in others:
            yield self._retune(number, proposal, digest)
        if self.strategy.rewrites:
            for digest in others if proposal.kind is ProposalKind.REWRITE else (parent, *others):
                yield self._rewrite(number, proposal, digest)

    def _retune(self, number: int, proposal: Proposal, digest: str, explicit: Config | None = None) -> Candidate | None:
        if explicit is None:
            config = self.tuners.ask(digest, number, proposal.sampler)
        else:
            space = self.tuners.space_by_digest(digest).values  # another kernel's config may lie outside it
            wanted = {name: nearest_value(space.get(name, ()), value) for name, value in explicit.items()}
            config = self.tuners.take(digest, {**self.tuners.best_config(digest), **wanted})
        return Candidate(number, proposal, self.tuners.kernel_by_digest(digest), config) if config is not None else None

    def _rewrite(self, number: int, proposal: Proposal, parent: str) -> Candidate | None:
        structure = self._propose(number, proposal, parent)
        if structure is None or structure.kernel.digest in self.state.structures:
            return None
        kernel = structure.kernel
        self._add(structure)
        config = self.tuners.ask(kernel.digest, number)
        if config is None:  # its whole space counts as impossible: the compiler decides
            config = self.tuners.best_config(kernel.digest)
            self.tuners.reserve(kernel.digest, config)
        return Candidate(number, proposal, kernel, config)

    def _add(self, structure: Structure) -> None:
        """Makes the tuner of a new kernel, and notes the kernel."""
        kernel, parent = structure.kernel, structure.parent or self.seed.digest
        if alone := is_whole_kernel(structure.edit) and bool(kernel.space):
            space, start = dict(kernel.space), start_of(kernel, {}, kernel.space)
        else:
            space = space_of(kernel, self.tuners.space_by_digest(parent).values)
            written_over = self.tuners.kernel_by_digest(parent).config or self.state.task.config
            start = start_of(kernel, self.tuners.best_config(parent), space, written_over)
        self.tuners.add(kernel, space, start, None if alone else parent)
        self.state.structures[kernel.digest] = structure

    def _propose(self, number: int, proposal: Proposal, parent: str) -> Structure | None:
        """The proposer's answer; that of a stored trial comes from the record, since a model may not repeat itself."""
        if number < len(self.begun):
            stored = self.begun.structures.get(number)
            return stored if stored and stored.parent and stored.parent in self.tuners else None
        if number <= len(self.starts) and (start := self.starts[number - 1]).kernel.digest not in self.tuners:
            return Structure(start.kernel, number, parent, start.edit, start.rationale)
        known, kernel = self.state.by_kernel.get(parent), self.tuners.kernel_by_digest(parent)
        hints, seen = known.outcome.hints if known else (), frozenset(self.state.structures)
        weights = self.strategy.weights()
        request = Request(kernel, self.state.task, seen, proposal.edit, hints, weights, number, known)
        rewrite = self.proposer.propose(request, random.Random(f"{self.begun.run.facts.seed}/{number}/proposer"))
        if rewrite is None:
            return None
        return Structure(rewrite.kernel, number, rewrite.parent or parent, rewrite.edit, rewrite.rationale)
