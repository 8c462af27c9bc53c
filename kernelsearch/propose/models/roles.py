"""The roles beside the writer: a planner edits the plan, a critic says what to change in a kernel, or to drop its idea.

Each is one engine, asked in prose within the run's budgets, on a thread where it may be asked ahead. Its words are
data: a planner's count where they are lines of a plan, a critic's are shown to the writer as an opinion. An adviser
whose engine fails or whose advice leads nowhere is not asked, and the writer goes on without.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kernelsearch.core.model_calls import AnswerRecord, ModelCall
from kernelsearch.core.types import Trial
from kernelsearch.propose.engines.base import Ask, Engine, Failure
from kernelsearch.propose.grammar.answer import strip_thinking
from kernelsearch.propose.history import History
from kernelsearch.propose.models import pending_calls
from kernelsearch.propose.models.conversation import Conversations, NextTurn
from kernelsearch.propose.models.health import Health
from kernelsearch.propose.models.pending_calls import PendingCall
from kernelsearch.propose.models.repair import clean
from kernelsearch.propose.models.spending import Ledger

PLANNER, CRITIC = "planner", "critic"
ADVICE = "advice"
"""The kind of ask, and the stage of an answer that makes no kernel."""
TOKENS = {PLANNER: 2000, CRITIC: 800}
"""Most tokens of an answer."""
LONGEST = 1200
"""Characters of a critique that the writer is shown."""
TRIALS = 3
"""Advices without a gain after which an adviser is not asked any more."""
SYSTEM = {
    PLANNER: "You plan how to make a Triton kernel faster; somebody else writes the kernels. You are shown a task, a "
    "kernel with its times and where they go, and the plan so far. Answer with lines and nothing else: `IDEA: what | "
    "why by the numbers shown | expected gain as 1.3x`, `IDEA under ID: ...` for a step of an idea, `DROP ID: why` for "
    "one that cannot work. At most six, different from each other, the largest gain first; none that is refuted.",
    CRITIC: "You review a Triton kernel that somebody else wrote. You are shown the idea, the kernel, and its verdict "
    "with times and findings. Say in at most five sentences what in this kernel to change first, by line, and why; or "
    "that the idea is wrong, then also in a line `DROP ID: why`. No code.",
}

TO_PLAN, LINES = "Say what to try next, in lines of a plan.", "Lines of a plan, nothing else."
HEARD = "A CRITIC SAYS (an opinion: verdicts and times decide)"


@dataclass
class Adviser:
    """An engine in a role; said has its advice by what it was about: a kernel's digest, or a state of the plan."""

    engine: Engine
    role: str
    ledger: Ledger
    say: Callable[[str], None] = lambda text: None
    read: Callable[[ModelCall], int] = lambda call: 0
    underway: PendingCall | None = None
    said: dict[str, str] = field(default_factory=dict)
    idle: int = 0
    waits: bool = False

    def __post_init__(self) -> None:
        self.name = f"{self.role}:{self.engine.label}"
        self.health = Health(self.name, 0, TOKENS[self.role], lambda text: self.say(text))

    def is_available(self, number: int) -> bool:
        """True if it may be asked at this ask of the search."""
        return self.idle < TRIALS and not self.ledger.exhausted and self.health.is_well(number)

    def advise(self, about: str, parent: str, page: str, number: int) -> str | None:
        """Its advice on this page; None while it thinks, "" where there is none."""
        if self.underway is None and about not in self.said and self.is_available(number):
            self._ask(about, parent, page, number)
        self.land(number, self.waits)
        return self.said.get(about, "") if self.underway is None else None

    def _ask(self, about: str, parent: str, page: str, number: int) -> None:
        system = SYSTEM[self.role]
        call = ModelCall(number, self.name, self.engine.name, parent, about, f"{self.role}: {about}", system, page, "",
                         follows=about if self.role == CRITIC else "", ask=ADVICE)  # fmt: skip
        ask = Ask(system, page, None, 1, TOKENS[self.role])
        if stored := self.ledger.take_stored(number, page):
            self.underway = PendingCall(stored)
        elif bounded := ask if self.engine.instant else self.ledger.bound(ask, self.engine.count):
            self.underway = pending_calls.begin_call(self.engine, call, bounded, None)

    def land(self, number: int, wait: bool = False) -> None:
        """Takes in the advice of the call under way, if it is due or waited for."""
        underway = self.underway
        if underway is None or not (underway.is_due(number) or (wait and underway.reply is not None)):
            return
        underway.wait()
        self.underway, call = None, underway.asked
        if underway.reply is not None and underway.ask is not None:
            reply, call = underway.reply.result(), replace(call, landed=number, waited=underway.waited)
            self.engine.note_landing(underway.ask, number - call.number, underway.waited)
            samples = () if isinstance(reply, Failure) else reply.samples
            answers = [AnswerRecord(s.text, s.finish, s.tokens, ADVICE) for s in samples]
            call = self.ledger.record_reply(call, reply, answers)
        self.note(call)
        self.ledger.add(call, again=underway.reply is None)

    def end(self, trials: int) -> None:
        """Stores the advice that came too late: it is paid for all the same."""
        if self.underway is not None and self.underway.reply is not None and self.underway.reply.done():
            self.land(max(trials, self.underway.asked.number), wait=True)

    def note(self, call: ModelCall) -> None:
        """Changes its state by a call, new or restored."""
        self.health.note(call)
        edits = self.read(call)
        text = "\n".join(strip_thinking(a.text) for a in call.answers)
        self.said[call.idea] = "" if call.failure else clean(text, LONGEST)
        if self.role == PLANNER and not call.failure:
            self.idle = 0 if edits else self.idle + 1
            if not edits:
                self.health.tell_once(f"{self.name} answered without a line of a plan: its prose is not read")

    def restore(self, past: list[ModelCall], underway: list[ModelCall]) -> None:
        """Takes the stored calls of a resumed run."""
        for call in (c for c in past if c.arm == self.name):
            self.note(call)
        self.underway = next((PendingCall(c) for c in underway if c.arm == self.name), None)

    def note_trial(self, trial: Trial, follows: str, history: History) -> None:
        """Takes note of a kernel that came after advice on another: advice that helps nothing is not paid for long."""
        entry, before = history.get(trial.kernel), history.get(follows)
        if entry is not None and entry.tried == 1 and self.said.get(follows):
            helped = trial.score is not None and trial.score < (before.score if before else math.inf)
            self.idle = 0 if helped else self.idle + 1


def hear_critic(
    critic: Adviser | None, talks: Conversations, turn: NextTurn, parent: str, number: int
) -> NextTurn | None:
    """The turn with what a critic says of its kernel, if there is one; None while it thinks."""
    if critic is None:
        return turn
    idea, kernel, found = talks.made[turn.kernel][0].action, talks.read(turn.kernel)[2], turn.said
    parts = {"THE IDEA": idea, "THE KERNEL": kernel, "WHAT BECAME OF IT": found.partition("\n\nDO THIS\n")[0]}
    page = "\n\n".join(f"{heading}\n{text}" for heading, text in parts.items())
    advice = critic.advise(turn.kernel, parent, f"{page}\n\nDO THIS\nSay what to change first, and why.", number)
    if advice is None:
        return None
    return replace(turn, said=f"{HEARD}\n{advice}\n\n{found}") if advice else turn
