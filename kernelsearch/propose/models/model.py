"""A model as a proposer: a page for the parent, answers under its grammar, each checked here; failed ones go back.

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

from kernelsearch.core.model_calls import AnswerRecord, ModelCall
from kernelsearch.core.types import WHOLE, WHOLE_REPAIR, TaskFacts, Trial, Word, content_digest
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Request, Rewrite
from kernelsearch.propose.engines.base import Ask, Engine, Failure, Sample
from kernelsearch.propose.grammar import STAGES, NoGrammar, WholeKernel
from kernelsearch.propose.grammar.unwrapped import strip_thinking
from kernelsearch.propose.grammar.whole_kernel import find_file
from kernelsearch.propose.models import ideas, kernel_page, pending_calls, prompt
from kernelsearch.propose.models.answers import CheckedAnswer, Form, check_answer
from kernelsearch.propose.models.health import Health
from kernelsearch.propose.models.ideas import Idea
from kernelsearch.propose.models.pending_calls import PendingCall
from kernelsearch.propose.models.repair import FailedAnswer, Repairs, clean, report_verdict
from kernelsearch.propose.models.sections import TooLong
from kernelsearch.propose.models.shared import EDITS, Models, ModelSettings

REPAIRABLE = frozenset({Word.COMPILE, Word.WRONG, Word.PRECISION, Word.CRASH, Word.TIMEOUT, Word.MEMORY, Word.RACE})


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
        self.repairs = Repairs(settings.repairs)
        longest = engine.answer_tokens or settings.max_tokens if whole else settings.max_tokens
        self.health = Health(engine.label, settings.page_tokens, longest, models.say)
        if whole:
            self.health.outside_means = "answers without a kernel file"
        self.underway: PendingCall | None = None
        self._due: list[Rewrite] = []
        self._looked = -1
        self._kept: dict[str, list[Rewrite]] = {}
        self._stored: dict[str, list[ModelCall]] = {}
        self._made: dict[str, tuple[ModelCall, str]] = {}
        self._sent_back: set[str] = set()
        self._refused: set[str] = set()
        self._reports: dict[str, str] = {}

    # ------------------------------------------------------------ what may be asked now

    def is_available(self, number: int) -> bool:
        """True if the model may be asked at this ask of the search."""
        spent = self.models.ledger.exhausted
        if spent:
            self.health.tell_once(f"the budget of {spent} is used up; the search goes on with typed edits")
        return not spent and self.underway is None and self.health.is_well(number)

    def can_repair(self, number: int) -> bool:
        return self.is_available(number) and self.repairs.next() is not None

    def can_propose(self, number: int) -> bool:
        """True if a new question may be asked; a conversation about a whole kernel is ended first."""
        return self.is_available(number) and not (self.whole and self.can_repair(number))

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
            self._land(request)
        return _take_new(self._due, request.seen)

    def ask_ahead(self, request: Request, rng: random.Random) -> None:
        """Begins a call for this parent, if the engine may be asked ahead and no answer is there for the next ask."""
        if self._due or not self.engine.ahead or not self.is_available(request.number):
            return
        if self.whole and self.can_repair(request.number):
            self._ask_repair(request, rng)
            return
        grammar = self._prepare(request)
        if grammar and not self.has_kept(request.parent.digest, request.seen):
            self._ask(request, grammar, self._idea(request, grammar, rng), rng)

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
        rewrite = _take_new(self._kept.get(request.parent.digest, []), request.seen)
        if rewrite is not None or not self.is_available(request.number):
            return rewrite
        self._ask(request, grammar, self._idea(request, grammar, rng), rng)
        return _take_new(self._due, request.seen)

    def make_form(self, parent: Kernel, task: TaskFacts) -> Form | NoGrammar:
        """What answers for a parent are read as."""
        if self.whole:
            return WholeKernel.of_task(parent, task)
        return self.models.grammar(parent, task)

    def compose_page(self, request: Request, rng: random.Random) -> str:
        """The page for a request, with a drawn idea. Raises TooLong, or NoGrammar where nothing can be asked."""
        form = self.make_form(request.parent, request.task)
        if isinstance(form, NoGrammar):
            raise form
        return self.write_page(self._page(request, form, self._idea(request, form, rng)))

    def write_page(self, page: prompt.PromptPage) -> str:
        """The text of a page within the budget of tokens. Raises TooLong."""
        write = kernel_page.write_page if self.whole else prompt.write_page
        return write(page, self.engine.count, self.health.page_tokens)

    def _prepare(self, request: Request) -> Form | None:
        """The form for a request's parent; answers of restored calls for it become kernels again."""
        grammar = self.make_form(request.parent, request.task)
        if isinstance(grammar, NoGrammar):
            return None
        for call in self._stored.pop(request.parent.digest, ()):
            self._kept.setdefault(call.parent, []).extend(self._good_answers(call, grammar, request.seen))
        return grammar

    def repair(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A corrected answer to a refused one; its parent is that of the refused one, not the request's."""
        self._ask_repair(request, rng)
        return _take_new(self._due, request.seen)

    def _ask_repair(self, request: Request, rng: random.Random) -> None:
        failed = self.repairs.next()
        above = self.models.history.get(failed.parent) if failed else None
        if failed is None or above is None:
            return
        del self.repairs.waiting[failed.kernel]
        self._sent_back.add(failed.kernel)
        form = self.make_form(above.kernel, request.task)
        if not isinstance(form, NoGrammar):
            of_parent = Request(above.kernel, request.task, request.seen, number=request.number, trial=above.best)
            self._ask(of_parent, form, failed, rng)

    def _idea(self, request: Request, grammar: Form, rng: random.Random) -> Idea:
        """The edit that the strategy asks for by name, else a drawn idea."""
        if self.whole:
            calls = (c for c in self.models.ledger.calls if c.arm == self.name and c.parent == request.parent.digest)
            others = kernel_page.choose_others(self.models.history, request.parent.digest, 1)
            every = ideas.list_kernel_ideas(request.hints, bool(others))
            return ideas.draw_kernel_idea(every, Counter(c.idea for c in calls), rng)
        wanted = ideas.idea_of_edit(request.edit) if request.edit else None
        every = ideas.list_ideas(request.hints, grammar.edits)
        return wanted or ideas.choose_idea(every, request.parent.digest, self.models.history, rng)

    def _ask(self, request: Request, form: Form, what: Idea | FailedAnswer, rng: random.Random) -> None:
        """Asks the engine: afterwards a good answer is due, or there is none, or the call is under way."""
        settings, seed = self.settings, rng.getrandbits(31)
        failed = what if isinstance(what, FailedAnswer) else None
        page = self._page(request, form, what)
        arm, samples = (self.repair_name, 1) if failed else (self.name, settings.samples)
        idea = failed.idea if failed else what.id
        call = ModelCall(
            request.number, arm, self.engine.name, request.parent.digest, idea, what.action, self.system, "",
            form.digest, repairs=failed.kernel if failed else "",
        )  # fmt: skip
        for _ in range(3):  # again, shorter, when the context is too small
            budget = self.health.page_tokens
            try:
                text, turns = (
                    self._conversation(failed.kernel) if failed and self.whole else (self.write_page(page), ())
                )
            except TooLong as least:
                reason = f"the least prompt for a kernel has {least.tokens} tokens and {budget} are allowed"
                self.health.tell_once(f"{reason}; such kernels are left to the typed edits")
                return
            longest = self.health.answer_tokens
            ask = Ask(self.system, text, form.for_engine, samples, longest, settings.temperature, seed, turns)
            stored = self.models.ledger.take_stored(request.number, ask.text)
            self.underway = (
                PendingCall(stored, ask, form=form)
                if stored
                else pending_calls.begin_call(self.engine, replace(call, page=ask.text), ask, form)
            )
            if self.underway.threaded or not self.underway.is_due(request.number):
                return
            self._land(request)
            if self.health.page_tokens == budget or self.health.given_up:
                return

    def _land(self, request: Request) -> None:
        """Takes in the answers of the call under way: the first good one is due, the others are kept."""
        underway, self.underway = self.underway, None
        call = self._complete(underway, request.number, request.seen) if underway.reply else underway.asked
        self._note(call)
        self.models.ledger.add(call, again=underway.reply is None)
        above = self.models.history.get(call.parent)
        if underway.form:
            grammar = underway.form
        elif above is None:
            return
        else:
            grammar = self.make_form(above.kernel, request.task)
        if not isinstance(grammar, NoGrammar):
            first, *others = self._good_answers(call, grammar, request.seen) or [None]
            self._due += [first] if first else []
            self._kept.setdefault(call.parent, []).extend(others)

    def _good_answers(self, call: ModelCall, grammar: Form, seen: Container[str]) -> list[Rewrite]:
        """The answers of a call that make new kernels, each kernel once."""
        unique: dict[str, Rewrite] = {}
        for answer in call.answers:
            checked = check_answer(Sample(answer.text, answer.finish, answer.tokens), grammar, self.models.gate, seen)
            if checked.good:
                kernel = checked.answer.kernel
                why = clean(checked.answer.why) or call.action
                unique.setdefault(kernel.digest, Rewrite(kernel, call.arm, why, call.parent))
        return list(unique.values())

    def _complete(self, underway: PendingCall, number: int, seen: Container[str]) -> ModelCall:
        """The record of a call whose answers have come."""
        reply, ask, form = underway.reply.result(), underway.ask, underway.form
        call = replace(underway.asked, landed=number, waited=underway.waited)
        self.engine.note_landing(ask, number - call.number, underway.waited)
        answers = []
        if not isinstance(reply, Failure):
            answers = [_as_answered(check_answer(s, form, self.models.gate, seen)) for s in reply.samples]
            for note in reply.notes:
                self.health.tell_once(note)
        return self.models.ledger.record_reply(call, reply, answers)

    def _conversation(self, refused: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The page of a refused whole kernel, and the answers to it so far, each with the report that goes back."""
        call, text = self._made[refused]
        page, earlier = self._conversation(call.repairs) if call.repairs else (call.page, ())
        file = find_file(text, False)
        shown = f"```python\n{file}```" if file else strip_thinking(text).strip()[-4000:] or "(thinking only)"
        return page, (*earlier, (shown, kernel_page.REFUSED.format(report=self._reports[refused])))

    def _page(self, request: Request, form: Form, what: Idea | FailedAnswer) -> prompt.PromptPage:
        history, digest = self.models.history, request.parent.digest
        seed = next(iter(history.entries.values()), None)
        page = prompt.PromptPage(
            form, request.task, self.models.device, what, request.trial, seed.best if seed else None,
            request.hints, rules=tuple(self.repairs.rules()),
        )  # fmt: skip
        if isinstance(what, FailedAnswer):
            return page
        children = prompt.describe_children(history, digest)
        page = replace(
            page, children=children, elsewhere=prompt.describe_others(history, digest, 12 if self.whole else 3)
        )
        others = kernel_page.choose_others(history, digest) if self.whole else ()
        return replace(page, others=tuple(map(kernel_page.show_kernel, others)))

    # ------------------------------------------------------------ state out of calls and trials

    def tell(self, trial: Trial) -> None:
        """Takes note of a finished trial of a kernel that this model made; a refused one waits to be sent back."""
        if trial.edit not in (self.name, self.repair_name) or trial.kernel not in self._made:
            return
        verdict, known = trial.outcome.verdict, self.models.history.get(trial.kernel)
        if known is not None and known.best is not None:  # it is right; what failed is one of its configs
            self.repairs.waiting.pop(trial.kernel, None)
            return
        if trial.accepted or trial.kernel in self._refused:
            return
        self._refused.add(trial.kernel)
        self._send_back(trial.kernel, report_verdict(verdict), trial.number, verdict.word in REPAIRABLE)

    def _send_back(self, refused: str, why: str, number: int, repairable: bool = True) -> None:
        """Lets a refused answer wait for its turn to go back to the model, unless it went already."""
        call, text = self._made[refused]
        self._reports[refused] = why
        if repairable and refused not in self._sent_back:
            tries = self._count_repairs(refused)
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

    def _count_repairs(self, kernel: str) -> int:
        """The number of repairs in a row that led to a kernel."""
        repaired = self._made[kernel][0].repairs if kernel in self._made else ""
        return 1 + self._count_repairs(repaired) if repaired else 0

    def _note(self, call: ModelCall) -> None:
        """Changes this model's state by a call, new or restored."""
        self.health.note(call)
        good = any(a.kernel for a in call.answers)
        for answer in call.answers:
            if answer.kernel:
                self._made.setdefault(answer.kernel, (call, answer.text))
            elif self.whole and not good and answer.text.strip() and answer.stage in STAGES:
                unread = content_digest(answer.text)
                self._made.setdefault(unread, (call, answer.text))
                self._send_back(unread, answer.reason, call.landed)
            elif answer.stage in ("parses", "names", "gate"):
                self.repairs.count(answer.reason)
        if call.repairs:
            self._sent_back.add(call.repairs)
            self.repairs.waiting.pop(call.repairs, None)


def _take_new(waiting: list[Rewrite], seen: Container[str]) -> Rewrite | None:
    """Takes answers out of a queue up to the first whose kernel is still new."""
    while waiting:
        rewrite = waiting.pop(0)
        if rewrite.kernel.digest not in seen:
            return rewrite
    return None


def _as_answered(checked: CheckedAnswer) -> AnswerRecord:
    sample, kernel = checked.sample, checked.answer.kernel.digest if checked.good else ""
    return AnswerRecord(sample.text, sample.finish, sample.tokens, checked.stage, clean(checked.reason), kernel)
