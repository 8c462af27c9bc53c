"""The mix: one Proposer of typed edits, models and their repairs, among which a cost-aware bandit chooses.

If its choice gives nothing, the typed edits are asked, then the other models. A model that is asked ahead gives nothing
at first: typed edits go on, and its answer is taken at the first ask after it came. With `alone` the typed edits are
asked only when no model gives anything, and the search waits for a model that is thinking.

A strategy may ask for one edit by its name, because hints suggest it or because it gained elsewhere; a model that is
chosen then implements this edit. All rounds of a conversation about a whole kernel are one arm, which also pays for
advisers (`models/roles.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelsearch.core.model_calls import ModelCall
from kernelsearch.core.types import TaskFacts, Trial
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.bandit import DEFAULTS, BanditParams, Cost, Pull, compute_standings, rank_arms
from kernelsearch.propose.contract import Proposer, Request, Rewrite
from kernelsearch.propose.models import pending_calls
from kernelsearch.propose.models.model import ModelProposer, Models
from kernelsearch.propose.models.roles import Adviser
from kernelsearch.propose.typed_edits import TypedEdits

EDITS = "edits"
PATIENCE = 10.0
"""Without a time budget, a wait for a model costs one trial for each of this many times a trial's own time."""

USD_A_TRIAL = 0.1
"""What a trial is worth where a price is known and no budget in dollars: that of $20 for the usual 200 trials."""


@dataclass(frozen=True)
class RunLimits:
    """The run's budgets, which weigh costs: trials, and seconds where they are limited."""

    trials: int = 200
    seconds: float | None = None


class ProposerMix(Proposer):
    """Chooses who proposes, and tells all of them the results."""

    def __init__(
        self,
        models: Sequence[ModelProposer],
        shared: Models,
        limits: RunLimits = RunLimits(),
        *,
        alone: bool = False,
        edits: Proposer | None = None,
        params: BanditParams = DEFAULTS,
    ) -> None:
        self.models, self.shared, self.limits = tuple(models), shared, limits
        self.alone, self.params = alone, params
        self.edits = edits or TypedEdits()
        self._arms = {m.name: m.name for m in models}
        self._arms |= {m.repair_name: m.name if m.whole else m.repair_name for m in models}
        self._advisers = {a.name for a in shared.advisers}
        self._arms |= dict.fromkeys(self._advisers, self.models[0].name)
        for adviser in shared.advisers:
            adviser.waits = alone
        self._everyone: tuple[Adviser | ModelProposer, ...] = (*shared.advisers, *self.models)
        self._seconds = 0.0
        self._trials = 0

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A rewrite: an answer of a model asked earlier if one is due, else by the arm whose turn it is."""
        chance = random.Random(rng.getrandbits(64))
        rewrite = next((rewrite for m in self.models if (rewrite := m.take_due(request))), None)
        if rewrite is None and self.alone:
            rewrite = self._wait(request)
        rewrite = rewrite or self._choose(request, chance, rng) or self._wait(request)
        if self.alone and rewrite is not None:
            for model in self.models:
                model.ask_ahead(request, chance)
        return rewrite

    def _choose(self, request: Request, chance: random.Random, rng: random.Random) -> Rewrite | None:
        asked_model = False
        for arm in self._order(request, chance):
            model = next((m for m in self.models if arm in (m.name, m.repair_name)), None)
            if model is None:
                rewrite = self.edits.propose(request, rng)
            elif asked_model:
                continue
            else:
                asked_model = True
                again = arm == model.repair_name or (model.whole and model.can_repair(request.number))
                rewrite = model.repair(request, chance) if again else model.propose(request, chance)
                rewrite = rewrite or (self._wait(request) if self.alone else None)
            if rewrite is not None:
                return rewrite
        return None

    def _wait(self, request: Request) -> Rewrite | None:
        """Waits for the answer of a model that is thinking."""
        thinking = (m for m in self.models if m.underway and not m.has_kept(request.parent.digest, request.seen))
        return next((rewrite for m in thinking if (rewrite := m.take_due(request, wait=True))), None)

    def list_edits(self, kernel: Kernel, task: TaskFacts) -> tuple[str, ...]:
        return () if self.alone else self.edits.list_edits(kernel, task)

    def list_usual_gains(self) -> Mapping[str, float]:
        return self.edits.list_usual_gains()

    def tell(self, trial: Trial, kernel: Kernel, parent: str | None) -> None:
        self._seconds += trial.outcome.seconds
        self._trials += 1
        self.shared.history.tell(trial, kernel, parent)
        for model in self.models:
            model.tell(trial)

    def restore(self, calls: Sequence[ModelCall], trials: int) -> None:
        """Takes the stored calls of a run that is resumed after so many trials, before those are told again."""
        past, underway = self.shared.ledger.restore(calls, trials)
        for one in self._everyone:
            one.restore(past, underway)

    def spending(self) -> str:
        return self.shared.ledger.words()

    def may_wait(self) -> bool:
        return any(m.engine.ahead for m in self.models)

    def send_sentences_to(self, say: Callable[[str], None]) -> None:
        self.shared.say = say
        self.edits.send_sentences_to(say)
        for model in self.models:
            model.health.say = say

    def list_failures(self) -> list[str]:
        called = {self._arm_of(call) for call in self.shared.ledger.calls if call.arm not in self._advisers}
        never = [m.engine.label for m in self.models if m.name not in called]
        return [
            *self.edits.list_failures(),
            *(f"{label} was not asked in these {self._trials} trials: more trials leave it turns" for label in never),
        ]

    def end(self) -> None:
        """Ends the search: last calls are stored before their cost is summed up."""
        for one in self._everyone:
            one.end(self._trials)

    def close(self) -> None:
        """Closes the engines."""
        for one in self._everyone:
            pending_calls.close_engine(one.engine, one.underway)

    # ------------------------------------------------------------ whose turn it is

    def _order(self, request: Request, rng: random.Random) -> list[str]:
        digest, number = request.parent.digest, request.number
        arms = [m.name for m in self.models if m.is_available(number) or m.has_kept(digest, request.seen)]
        arms += [m.repair_name for m in self.models if not m.whole and m.can_repair(number)]
        if not arms:
            return [EDITS]
        every = compute_standings(
            arms if self.alone else [EDITS, *arms], self._pulls(), self._costs(), number, self.params
        )
        first, *others = rank_arms(every, rng, self.params)
        return list(dict.fromkeys([first, EDITS, *others]))

    def _pulls(self) -> Iterator[Pull]:
        """The kernels of the history, and calls that gave none; a kernel's edit names its arm."""
        history = self.shared.history
        usual = history.usual_tuning()
        for entry in history.entries.values():
            if entry.parent is not None:
                arm = self._arms.get(entry.edit, EDITS)
                judged = history.count_judged(entry)
                cost = judged * self._share_of(entry.seconds / entry.tried, 1.0)
                yield Pull(entry.number, arm, history.earned_gain(entry, usual), cost, judged)
        for call in self.shared.ledger.calls:
            if call.arm not in self._advisers and not any(a.kernel for a in call.answers):
                yield Pull(call.number, self._arm_of(call), 0.0, 0.0)

    def _costs(self) -> Iterator[Cost]:
        calls = self.shared.ledger.calls
        return (Cost(call.number, self._arm_of(call), self._in_trials(call)) for call in calls)

    def _arm_of(self, call: ModelCall) -> str:
        """The arm that a call is booked on."""
        return self._arms.get(call.arm, call.arm)

    def _in_trials(self, call: ModelCall) -> float:
        """The cost of a call as a share of each budget of the run, in units of one trial's share.

        Dollars count wherever a price is known.
        Only the seconds count for which the search stood still. Without a time budget they count in whole trials, so
        that a run that hardly waits is the same run on a slower machine.
        """
        budget, trials = self.shared.ledger.budget, self.limits.trials
        each = self._seconds / self._trials if self._seconds else 0.0
        cost = self._share_of(call.waited, call.waited // (PATIENCE * each) if each else 0.0)
        if budget.max_tokens:
            cost += trials * (call.tokens_in + call.tokens_out) / budget.max_tokens
        return cost + call.usd / (budget.max_usd / trials if budget.max_usd else USD_A_TRIAL)

    def _share_of(self, seconds: float, otherwise: float) -> float:
        """Seconds in trials, by the run's time budget; another number where there is none."""
        return otherwise if self.limits.seconds is None else self.limits.trials * seconds / self.limits.seconds
