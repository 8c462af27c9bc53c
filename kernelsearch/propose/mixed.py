"""The mix: typed edits, models and their repairs behind one Proposer, chosen among by a cost-aware bandit.

Where the chosen one gives nothing, the typed edits do; where those are used up, the other models may. A model that was
asked ahead gives nothing at first: typed edits go on, and its answer is taken at the first ask after it came. With
`alone` the typed edits are asked only when no model gives anything, and the search waits for one that is thinking.

A strategy may ask for one edit by its name, because hints suggest it or because it gained elsewhere. Such edits gain
more than those that are drawn at random, so that they are an arm of their own (`named`): at such an ask the bandit
chooses between it and the models, which are then asked to do what the named edit does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelsearch.core.model_calls import ModelCall
from kernelsearch.core.types import Trial
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.bandit import Cost, Params, Pull, ranked, standings
from kernelsearch.propose.contract import Proposer, Request, Rewrite
from kernelsearch.propose.models import ahead
from kernelsearch.propose.models.model import ModelProposer, Models
from kernelsearch.propose.typed_edits import TypedEdits

EDITS, NAMED = "edits", "named edits"
PATIENCE = 10.0
"""Without a time budget a model may take this many times a trial's own time before it costs as much as one."""


@dataclass(frozen=True)
class Limits:
    """The run's budgets, by which costs are weighed: trials, and seconds where they are limited."""

    trials: int = 200
    seconds: float | None = None


class Mix(Proposer):
    """Chooses who proposes, and tells all of them what came of it."""

    def __init__(
        self,
        models: Sequence[ModelProposer],
        shared: Models,
        limits: Limits = Limits(),
        *,
        alone: bool = False,
        edits: Proposer | None = None,
        params: Params = Params(),
    ) -> None:
        self.models, self.shared, self.limits = tuple(models), shared, limits
        self.alone, self.params = alone, params
        self.edits = edits or TypedEdits()
        self._seconds = 0.0
        self._trials = 0

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A rewrite by whoever's turn it is; first of all what a model was asked for ahead and has answered since."""
        chance = random.Random(rng.getrandbits(64))
        made = next((made for m in self.models if (made := m.due(request))), None)
        if made is None and self.alone:
            made = self._waited(request)
        made = made or self._chosen(request, chance, rng) or self._waited(request)
        if self.alone and made is not None:
            for model in self.models:
                model.ask_ahead(request, chance)
        return made

    def _chosen(self, request: Request, chance: random.Random, rng: random.Random) -> Rewrite | None:
        asked_model = False
        for arm in self._order(request, chance):
            model = next((m for m in self.models if arm in (m.name, m.repair_name)), None)
            if model is None:
                made = self.edits.propose(request, rng)
            elif asked_model:
                continue
            else:
                asked_model = True
                made = model.repair(request, chance) if arm == model.repair_name else model.propose(request, chance)
                made = made or (self._waited(request) if self.alone else None)
            if made is not None:
                return made
        return None

    def _waited(self, request: Request) -> Rewrite | None:
        """The answer of a model that is thinking, waited for: nothing else is there to be done, or wanted."""
        thinking = (m for m in self.models if m.underway and not m.kept(request.parent.digest, request.seen))
        return next((made for m in thinking if (made := m.due(request, wait=True))), None)

    def tell(self, trial: Trial, kernel: Kernel, parent: str | None) -> None:
        """One finished trial."""
        self._seconds += trial.outcome.seconds
        self._trials += 1
        self.shared.history.tell(trial, kernel, parent)
        self.shared.ledger.begin(trial.kernel)
        for model in self.models:
            model.tell(trial)

    def restore(self, calls: Sequence[ModelCall], told: int) -> None:
        """A resumed run's stored calls, before its trials are told again; told is how many those are."""
        past, underway = self.shared.ledger.restore(calls, told)
        for model in self.models:
            model.restore(past, underway)

    def spending(self) -> str:
        return self.shared.ledger.words()

    def ended(self) -> None:
        """The search is over; said of models and stored before anybody sums up what they cost."""
        for model in self.models:
            model.ended(self._trials)

    def close(self) -> None:
        for model in self.models:
            ahead.closed(model.engine, model.underway)

    # ------------------------------------------------------------ whose turn it is

    def _order(self, request: Request, rng: random.Random) -> list[str]:
        digest, number = request.parent.digest, request.number
        arms = [m.name for m in self.models if m.available(number) or m.kept(digest, request.seen)]
        arms += [m.repair_name for m in self.models if m.can_repair(number)]
        typed = EDITS if request.edit is None else NAMED
        if not arms:
            return [typed]
        found = standings(arms if self.alone else [typed, *arms], self._pulls(), self._costs(), number, self.params)
        first, *others = ranked(found, rng, self.params)
        return list(dict.fromkeys([first, typed, *others]))

    def _pulls(self) -> Iterator[Pull]:
        """Kernels that were told, and calls that gave none; who made a kernel is in its edit's name."""
        names = {n for m in self.models for n in (m.name, m.repair_name)}
        history = self.shared.history
        usual = history.usual_tuning()
        for entry in history.entries.values():
            if entry.parent is not None:
                typed = NAMED if entry.named else EDITS
                yield Pull(entry.number, entry.edit if entry.edit in names else typed, history.earned(entry, usual))
        for call in self.shared.ledger.calls:
            if not any(a.kernel for a in call.answers):
                yield Pull(call.number, call.arm, 0.0, 0.0)

    def _costs(self) -> Iterator[Cost]:
        for call in self.shared.ledger.calls:
            yield Cost(call.number, call.arm, self._in_trials(call))

    def _in_trials(self, call: ModelCall) -> float:
        """What a call cost as a share of each budget that the run has, in units of one trial's share.

        Of its seconds those count for which the search stood still; without a time budget only whole trials of them, so
        that a run that hardly waits is the same run on a slower machine.
        """
        budget, trials = self.shared.ledger.budget, self.limits.trials
        if self.limits.seconds is not None:
            cost = trials * call.waited / self.limits.seconds
        else:
            each = self._seconds / self._trials if self._seconds else 0.0
            cost = call.waited // (PATIENCE * each) if each else 0.0
        if budget.max_tokens:
            cost += trials * (call.tokens_in + call.tokens_out) / budget.max_tokens
        if budget.max_usd:
            cost += trials * call.usd / budget.max_usd
        return cost
