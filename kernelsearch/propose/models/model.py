"""A model as a proposer: a page for the parent, answers under its grammar, each checked here; results go back.

One call asks for several answers; those that are not needed now are kept for the next ask of the same parent. An engine
that may be asked ahead answers later (`pending_calls.py`): the ask gives nothing, and the first good answer is due at
the ask at which the call is taken in, whatever parent that ask has. A fault of the engine is a value: the ask gives
nothing, the user reads the reason once, and after several failures in a row the model rests. The state is a function of
the stored calls and of the finished trials, so that a resumed run goes on as it was.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any, cast

from kernelsearch.core.model_calls import ModelCall
from kernelsearch.core.types import WHOLE, WHOLE_REPAIR, TaskFacts, Trial, Word, content_digest
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Request, Rewrite
from kernelsearch.propose.engines.base import Ask, Engine, Failure
from kernelsearch.propose.grammar import STAGES, Grammar, NoGrammar, WholeKernel
from kernelsearch.propose.models import ideas, kernel_page, pending_calls, prompt, roles
from kernelsearch.propose.models.answers import Form, check_answer, list_rewrites, record_answer, take_new
from kernelsearch.propose.models.conversation import Conversations, NextTurn
from kernelsearch.propose.models.health import Health
from kernelsearch.propose.models.ideas import Idea
from kernelsearch.propose.models.pending_calls import PendingCall
from kernelsearch.propose.models.repair import REPAIR, FailedAnswer, Repairs, report_verdict
from kernelsearch.propose.models.sections import FittedPage, TooLong
from kernelsearch.propose.models.shared import EDITS, Models, ModelSettings

REPAIRABLE = frozenset({Word.COMPILE, Word.WRONG, Word.PRECISION, Word.CRASH, Word.TIMEOUT, Word.MEMORY, Word.RACE})
REPORT = 1000
"""Tokens that are kept for what is said to an answer."""
ENOUGH = 2
"""Open ideas of a plan with which no planner is asked for more."""


class ModelProposer:
    """One engine as a proposer of rewrites and of repairs; whole: it answers with whole kernels, not with edits."""

    def __init__(
        self,
        engine: Engine,
        models: Models,
        settings: ModelSettings = EDITS,
        name: str = "",
        whole: bool = False,
    ) -> None:
        self.engine, self.models, self.settings, self.whole = engine, models, settings, whole
        arm, repair = (WHOLE, WHOLE_REPAIR) if whole else ("model", "repair")
        self.name, self.repair_name = f"{arm}:{name or engine.label}", f"{repair}:{name or engine.label}"
        self.system = kernel_page.system() if whole else prompt.SYSTEM
        self.rounds = engine.rounds or settings.rounds
        self.repairs = Repairs(self.rounds - 1)
        self.talks = Conversations(models.history)
        longest = engine.answer_tokens or settings.max_tokens if whole else settings.max_tokens
        self.health = Health(engine.label, settings.page_tokens, longest, models.say)
        if whole:
            self.health.outside_means = "answers without a kernel file"
        self.underway: PendingCall | None = None
        self._due: list[Rewrite] = []
        self._looked = -1
        self._kept: dict[str, list[Rewrite]] = {}
        self._stored: dict[str, list[ModelCall]] = {}
        self._refused: set[str] = set()

    # ------------------------------------------------------------ what may be asked now

    def is_available(self, number: int) -> bool:
        """True if the model may be asked at this ask of the search."""
        spent = self.models.ledger.exhausted
        if spent:
            self.health.tell_once(f"the budget of {spent} is used up; the search goes on with typed edits")
        return not spent and self.underway is None and self.health.is_well(number)

    def _may_ask(self, request: Request) -> bool:
        """True if the model may be asked about the request's parent; one that it wrote is tuned first."""
        tuned = not self.whole or self.talks.is_tuned(request.parent.digest, request.number)
        return tuned and self.is_available(request.number)

    def can_repair(self, number: int) -> bool:
        return self.is_available(number) and self._next_failed() is not None

    def has_kept(self, parent: str, seen: Container[str]) -> bool:
        """True if an answer for this parent is there already."""
        stored = (a.kernel for call in self._stored.get(parent, ()) for a in call.answers if a.kernel)
        return any(d not in seen for d in (*stored, *(k.kernel.digest for k in self._kept.get(parent, ()))))

    # ------------------------------------------------------------ answers that come later

    def take_due(self, request: Request, wait: bool = False) -> Rewrite | None:
        """A good answer of a call that was begun earlier and is due now; wait: whose answers are waited for.

        Only the first look of each ask of the search counts, so that a replayed run looks when this one did.
        """
        number, look = request.number, request.number != self._looked or wait
        self._looked = number
        if self.underway is not None and look and (wait or self.underway.is_due(number)):
            self.underway.wait()
            self._land(request, self.underway)
        return take_new(self._due, request.seen)

    def ask_ahead(self, request: Request, rng: random.Random) -> None:
        """Begins a call for this parent, if the engine may be asked ahead and no answer is there for the next ask."""
        if self._due or not self.engine.ahead or not self.is_available(request.number):
            return
        if self.whole and self.can_repair(request.number):
            self._ask_repair(request, rng)
            return
        grammar = self._prepare(request)
        if grammar and self._may_ask(request) and not self.has_kept(request.parent.digest, request.seen):
            self._ask_next(request, grammar, rng)

    def end(self, trials: int) -> None:
        """Ends the search after so many trials: answers that came too late are paid for all the same, and stored.

        A resumed run takes them in first. A call without an answer is lost, and the user reads so.
        """
        underway = self.underway
        if underway is None or underway.reply is None:
            return
        if not underway.reply.done():
            trouble = self.engine.trouble and f": {self.engine.trouble}"
            self.health.tell_once(f"{self.engine.label} was still being asked when the search ended{trouble}")
            return
        self.underway = None
        call = self._complete(underway, max(trials, underway.asked.number + (underway.after or 0)), ())
        self._note(call)
        self.models.ledger.add(call)

    # ------------------------------------------------------------ proposing

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A rewrite of the request's parent, or None when no answer makes a new kernel or it comes later."""
        grammar = self._prepare(request)
        if grammar is None:
            return None
        rewrite = take_new(self._kept.get(request.parent.digest, []), request.seen)
        if rewrite is not None or not self._may_ask(request):
            return rewrite
        self._ask_next(request, grammar, rng)
        return take_new(self._due, request.seen)

    def _ask_next(self, request: Request, form: Form, rng: random.Random) -> None:
        """Asks for what is chosen, unless an adviser is still to be heard."""
        what = self._choose(request, form, rng)
        if what is not None:
            self._ask(request, form, what, rng)

    def make_form(self, parent: Kernel, task: TaskFacts) -> Form | NoGrammar:
        """What answers for a parent are read as."""
        return WholeKernel.of_task(parent, task) if self.whole else self.models.grammar(parent, task)

    def compose_page(self, request: Request, rng: random.Random) -> str:
        """The page for a request, with a drawn idea. Raises TooLong, or NoGrammar where nothing can be asked."""
        form = self.make_form(request.parent, request.task)
        if isinstance(form, NoGrammar):
            raise form
        return self.write_page(self._page(request, form, self._idea(request, form, rng))).text

    def write_page(self, page: prompt.PromptPage) -> FittedPage:
        """A page within the budget of tokens. Raises TooLong."""
        page = replace(page, **dict.fromkeys(self.engine.without, cast(Any, ())))
        return (kernel_page if self.whole else prompt).write_page(page, self.engine.count, self.health.page_tokens)

    def _prepare(self, request: Request) -> Form | None:
        """The form for a request's parent; answers of restored calls for it become kernels again."""
        grammar = self.make_form(request.parent, request.task)
        if isinstance(grammar, NoGrammar):
            return None
        for call in self._stored.pop(request.parent.digest, ()):
            self._kept.setdefault(call.parent, []).extend(list_rewrites(call, grammar, self.models.gate, request.seen))
        return grammar.without(request.seen) if isinstance(grammar, Grammar) else grammar

    def repair(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A corrected answer to a refused one; its parent is that of the refused one, not the request's."""
        self._ask_repair(request, rng)
        return take_new(self._due, request.seen)

    def _ask_repair(self, request: Request, rng: random.Random) -> None:
        failed = self._next_failed()
        above = self.models.history.get(failed.parent) if failed else None
        form = self.make_form(above.kernel, request.task) if above else None
        if failed is None or above is None or form is None or isinstance(form, NoGrammar):
            return
        of_parent = replace(request, parent=above.kernel, edit=None, hints=(), trial=above.best)
        said = kernel_page.REFUSED.format(report=failed.report)
        own = NextTurn(failed.kernel, said, failed.id, failed.action, failed.kind)
        critic = self.models.critic if self.whole and failed.tries else None  # the first correction is the writer's own
        turn = roles.hear_critic(critic, self.talks, own, above.kernel.digest, request.number)
        if turn is not None:
            self._ask(of_parent, form, turn if self.whole else failed, rng)

    def _next_failed(self) -> FailedAnswer | None:
        """The refused answer whose turn it is."""
        return next((f for f in self.repairs.in_order() if not self.whole or self._fits(f.kernel)), None)

    def _fits(self, kernel: str) -> bool:
        """Whether there is room for one more turn after this answer."""
        if self.health.room is None:
            return True
        page, turns, shown = self.talks.read(kernel)
        text = Ask(self.system, page, None, turns=(*turns, (shown, ""))).plain
        return self.engine.count(text) + REPORT <= self.health.room

    def _is_planned(self, request: Request, form: Form) -> bool:
        """Whether the plan is ready: a planner whose ideas ran out is heard first."""
        planner, plan, number = self.models.planner, self.models.plan, request.number
        about = f"plan after {len(plan.made)} kernels"
        if planner is None or about in planner.said or plan.count_open(number) >= ENOUGH:
            return True
        page = replace(self._page(request, form, Idea(roles.TO_PLAN, 1.0)), answer=roles.LINES)
        try:
            return planner.advise(about, request.parent.digest, self.write_page(page).text, number) is not None
        except TooLong:
            return True

    def _choose(self, request: Request, form: Form, rng: random.Random) -> Idea | NextTurn | None:
        """The next turn of a conversation whose best kernel is the request's parent, else an idea for a new page.

        None while an adviser thinks.
        """
        if not self.whole:
            return self._idea(request, form, rng)
        history, parent = self.models.history, request.parent.digest
        kernels = self.talks.list_open(parent, request.number, self.rounds)
        kernel = next((k for k in kernels if self._fits(k)), None)
        if kernel is None:
            return self._idea(request, form, rng) if self._is_planned(request, form) else None
        entry = history.entries[kernel]
        hints = entry.best.outcome.hints if entry.best else ()
        others = kernel_page.choose_others(history, kernel)
        idea = Idea(ideas.SLOWER, 1.0, ideas.REWRITE)
        if kernel == parent:
            every = ideas.list_kernel_ideas(hints, bool(others))
            idea = self.models.plan.draw(every, Counter(), request.number, rng)
        of_kernel = replace(request, parent=entry.kernel, hints=hints, trial=entry.best)
        page = self._page(of_kernel, WholeKernel(entry.kernel, request.task.sites), idea)
        page = replace(page, others=page.others if idea.kind == ideas.COMBINE else ())
        said = kernel_page.write_report(page, entry, history, idea)
        turn, critic = NextTurn(kernel, said, idea.id, idea.action, idea.kind), self.models.critic
        return turn if kernel == parent else roles.hear_critic(critic, self.talks, turn, parent, request.number)

    def _idea(self, request: Request, form: Form, rng: random.Random) -> Idea:
        """The edit that the strategy asks for by name, else a drawn idea."""
        wanted = ideas.idea_of_edit(request.edit) if request.edit and not self.whole else None
        if wanted is not None:
            return wanted
        others = self.whole and bool(kernel_page.choose_others(self.models.history, request.parent.digest, 1))
        listed = ideas.list_kernel_ideas(request.hints, others) if self.whole else None
        every = listed or ideas.list_ideas(request.hints, form.offered if isinstance(form, Grammar) else ())
        calls = (c for c in self.models.ledger.calls if c.arm == self.name and c.parent == request.parent.digest)
        return self.models.plan.draw(every, Counter(c.idea for c in calls), request.number, rng)

    def _ask(self, request: Request, form: Form, what: Idea | FailedAnswer | NextTurn, rng: random.Random) -> None:
        """Asks the engine: afterwards a good answer is due, or there is none, or the call is under way."""
        settings, seed = self.settings, rng.getrandbits(31)
        arm, samples = (self.repair_name, 1) if what.kind == REPAIR else (self.name, settings.samples)
        call = ModelCall(
            request.number, arm, self.engine.name, request.parent.digest, what.id, what.action, self.system, "",
            form.digest, follows="" if isinstance(what, Idea) else what.kernel, ask=what.kind,
        )  # fmt: skip
        for _ in range(3):  # again, shorter, when the context is too small
            budget = self.health.page_tokens
            try:
                if isinstance(what, NextTurn):
                    text, turns, shown = self.talks.read(what.kernel)
                    turns, left_out = (*turns, (shown, what.said)), ""
                else:
                    (text, left_out), turns = self.write_page(self._page(request, form, what)), ()
            except TooLong as least:
                reason = f"the least prompt for a kernel has {least.tokens} tokens and {budget} are allowed"
                self.health.tell_once(f"{reason}; such kernels are left to the typed edits")
                self.repairs.waiting.pop(call.follows, None)
                return
            given = (form.for_engine, samples, self.health.answer_tokens, settings.temperature, seed, turns, self.whole)
            full = Ask(self.system, text, *given)
            stored = self.models.ledger.take_stored(request.number, full.text)
            free = stored or self.engine.instant  # those cost nothing
            ask = full if free else self.models.ledger.bound(full, self.engine.count)
            if ask is None:
                self.health.tell_once("the rest of the token budget is too small for another ask")
                return
            self.underway = (
                PendingCall(stored, ask, form=form)
                if stored
                else pending_calls.begin_call(self.engine, replace(call, page=ask.text, left_out=left_out), ask, form)
            )
            if self.underway.threaded or not self.underway.is_due(request.number):
                return
            self._land(request, self.underway)
            if isinstance(what, NextTurn) or self.health.page_tokens == budget or self.health.given_up:
                return

    def _land(self, request: Request, underway: PendingCall) -> None:
        """Takes in the answers of the call under way: the first good one is due, the others are kept."""
        self.underway = None
        call = self._complete(underway, request.number, request.seen) if underway.reply else underway.asked
        self._note(call)
        self.models.ledger.add(call, again=underway.reply is None)
        above = self.models.history.get(call.parent)
        grammar = underway.form or (self.make_form(above.kernel, request.task) if above else None)
        if grammar is not None and not isinstance(grammar, NoGrammar):
            made = list_rewrites(call, grammar, self.models.gate, request.seen)
            self._due += made[:1]
            self._kept.setdefault(call.parent, []).extend(made[1:])

    def _complete(self, underway: PendingCall, number: int, seen: Container[str]) -> ModelCall:
        """The record of a call whose answers have come."""
        ask, form = underway.ask, underway.form
        assert underway.reply and ask and form  # it was begun in this run
        reply = underway.reply.result()
        call = replace(underway.asked, landed=number, waited=underway.waited)
        self.engine.note_landing(ask, number - call.number, underway.waited)
        answers = []
        if not isinstance(reply, Failure):
            answers = [record_answer(check_answer(s, form, self.models.gate, seen)) for s in reply.samples]
            for note in reply.notes:
                self.health.tell_once(note)
        return self.models.ledger.record_reply(call, reply, answers)

    def _page(self, request: Request, form: Form, what: Idea | FailedAnswer) -> prompt.PromptPage:
        history, digest = self.models.history, request.parent.digest
        seed = next(iter(history.entries.values()), None)
        page = prompt.PromptPage(
            form, request.task, self.models.device, what, request.trial, seed.begun if seed else None,
            request.hints, rules=tuple(self.repairs.rules()), plan=self.models.plan.describe(request.number),
        )  # fmt: skip
        if isinstance(what, FailedAnswer):
            return page
        page = replace(page, children=prompt.describe_children(history, digest))
        if not self.whole:
            return page
        others = tuple(map(kernel_page.show_kernel, kernel_page.choose_others(history, digest)))
        return replace(page, others=others, lessons=self.models.choose_lessons(request.task, request.hints))

    # ------------------------------------------------------------ state out of calls and trials

    def tell(self, trial: Trial) -> None:
        """Takes note of a finished trial of a kernel that this model made; a refused one waits to be sent back."""
        if trial.edit not in (self.name, self.repair_name) or trial.kernel not in self.talks.made:
            return
        verdict, known = trial.outcome.verdict, self.models.history.get(trial.kernel)
        self.models.plan.name_kernel(trial)
        if self.models.critic is not None:
            self.models.critic.note_trial(trial, self.talks.made[trial.kernel][0].follows, self.models.history)
        if known is not None and known.best is not None:  # it is right; what failed is one of its configs
            self.repairs.waiting.pop(trial.kernel, None)
            return
        if trial.accepted or trial.kernel in self._refused:
            return
        self._refused.add(trial.kernel)
        self._send_back(trial.kernel, report_verdict(verdict), trial.number, verdict.word in REPAIRABLE)

    def _send_back(self, refused: str, why: str, number: int, repairable: bool = True) -> None:
        """Lets a refused answer wait for its turn to go back to the model, unless it went already."""
        call, text = self.talks.made[refused]
        if repairable and refused not in self.talks.followed:
            tries = self.talks.count_before(refused)
            self.repairs.tell(FailedAnswer(refused, call.parent, call.idea, call.action, text, why, tries, number))
        else:
            self.repairs.count(why)

    def restore(self, past: Sequence[ModelCall], underway: Sequence[ModelCall] = ()) -> None:
        """Takes the stored calls of a resumed run: their kernels are known again, their other answers kept again.

        The one that was under way is taken in at the ask that its record names.
        """
        mine = (self.name, self.repair_name)
        for call in past:
            if call.arm in mine:
                self._stored.setdefault(call.parent, []).append(call)
                self._note(call)
        for call in underway:
            if call.arm in mine:
                self.underway = PendingCall(call)

    def _note(self, call: ModelCall) -> None:
        """Changes this model's state by a call, new or restored."""
        self.health.note(call)
        self.models.plan.note(call)
        good = any(a.kernel for a in call.answers)
        for answer in call.answers:
            if answer.kernel:
                self.talks.made.setdefault(answer.kernel, (call, answer.text))
            elif self.whole and not good and answer.text.strip() and answer.stage in STAGES:
                unread = content_digest(answer.text)
                self.talks.made.setdefault(unread, (call, answer.text))
                self._send_back(unread, answer.reason, call.landed)
            elif answer.stage in ("parses", "names", "gate"):
                self.repairs.count(answer.reason)
        if call.follows and not call.failure:  # else the turn is asked for again
            self.talks.followed.add(call.follows)
            self.repairs.waiting.pop(call.follows, None)
