"""`propose`: a proposer's answers for one kernel, each with its fate at every stage, and the rates of the stages."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from kernelsearch.core.errors import ModelError, TaskError
from kernelsearch.core.types import Config, Outcome, TaskFacts, Trial, Verdict, config_key
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Proposer, Request
from kernelsearch.propose.engines import Ask, Failure, Sample
from kernelsearch.propose.grammar import STAGES as LOCAL
from kernelsearch.propose.grammar import Grammar, NoGrammar
from kernelsearch.propose.history import History
from kernelsearch.propose.mixed import Limits, Mix
from kernelsearch.propose.models import ideas, prompt
from kernelsearch.propose.models.answers import SEEN, fate
from kernelsearch.propose.models.launches import launched
from kernelsearch.propose.models.model import ModelProposer, Settings
from kernelsearch.propose.models.spending import Price
from kernelsearch.report import proposals as report
from kernelsearch.report.proposals import Proposed, Report
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.verify import gate

STAGES = (*LOCAL, "compiles", "right", "faster")
NOTICED = 0.995
"""A time over the parent's below which a proposal counts as faster."""
NO_PAGE = "--page is for models: typed edits read no prompt"

AT_ONCE = 8


@dataclass(frozen=True)
class Options:
    """The command's options, as the command line names them."""

    proposer: str
    kernel: str | None = None
    n: int = 8
    until: str = STAGES[-1]
    temperature: float = 0.8
    seed: int = 0
    price: tuple[float, float] | None = None
    record: str | None = None
    target: str = "auto"
    shapes: tuple[str, ...] = ()
    page: bool = False
    as_json: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class _Parent:
    kernel: Kernel
    config: Config
    outcome: Outcome

    @property
    def trial(self) -> Trial:
        from kernelsearch.core.types import Proposal, ProposalKind

        return Trial(0, Proposal(ProposalKind.SEED), self.kernel.digest, self.config, self.outcome, 1.0)


def main(path: str, options: Options) -> int:
    """Asks, judges and prints. Returns 0, or 1 when there was no answer at all or the parent is refused."""
    say = (lambda text: None) if options.quiet else (lambda text: print(text, file=sys.stderr, flush=True))
    settings = Settings(min(options.n, AT_ONCE), temperature=options.temperature)
    asked = proposers.ModelOptions(options.proposer, price=options.price, record=options.record, settings=settings)
    if options.proposer == proposers.MIX:
        raise ModelError("propose asks one proposer: edits, or the spec of a model")
    if options.page and options.proposer == proposers.EDITS:
        raise ModelError(NO_PAGE)
    text = referee.asked(path, options.kernel)
    if text is not None and not (verdict := referee.checked(text)).accepted:
        return _refused(verdict)
    with ExitStack() as stack:
        bench = stack.enter_context(Bench.open(path, options.target, compiled=default_folder(), say=say))
        facts = narrow_to_shapes(bench.facts, options.shapes)
        evaluation = Evaluation(bench, tuple(s.key for s in facts.shapes))
        place = proposers.Place(bench.device.name if bench.device else bench.target.name, bench.target)
        proposer = proposers.opened(asked, place, Limits(options.n), say)
        stack.callback(proposers.close, proposer)
        kernel = Kernel.parse(text) if text is not None else bench.seed
        config = referee.config_of(kernel, bench.facts) if text is not None else dict(facts.config)
        say(f"{facts.name}: judging the parent {kernel.digest[:8]} first")
        parent = _Parent(kernel, config, evaluation.evaluate(kernel, config))
        if not parent.outcome.verdict.accepted:
            return _refused(parent.outcome.verdict)
        if options.page:
            print(_page_only(proposer, parent, facts, options))
            return 0
        found = _report(facts, parent, proposer, options, say)
        _judge(evaluation, parent, bench.facts, found, options)
    if options.as_json:
        print(json.dumps(report.as_dict(found), indent=2))
    else:
        print(report.as_text(found), end="")
    return 0 if found.proposals else 1


# ---------------------------------------------------------------- answers


def _report(
    facts: TaskFacts, parent: _Parent, proposer: Proposer, options: Options, say: Callable[[str], None]
) -> Report:
    found = Report(facts.name, parent.kernel.digest, options.proposer, STAGES[: STAGES.index(options.until) + 1])
    if not isinstance(proposer, Mix):
        found.proposals.extend(_typed(facts, parent, proposer, options))
        return found
    (model,) = proposer.models
    price = Price(*(options.price or (0.0, 0.0)))
    grammar = _grammar(proposer, parent, facts)
    for round_, asked in enumerate(_rounds(options.n)):
        page = _page(model, grammar, parent, facts, options.seed + round_)
        longest, seed = model.settings.max_tokens, options.seed + round_
        ask = Ask(prompt.SYSTEM, page, grammar, asked, longest, options.temperature, seed)
        reply = model.engine.complete(ask)
        if isinstance(reply, Failure):
            say(f"model: {reply.reason}")
            found.failures.append(reply.reason)
            if reply.kind != "busy":
                break
            continue
        for note in reply.notes:
            say(f"model: {note}")
        found.tokens_in += reply.tokens_in
        found.tokens_out += reply.tokens_out
        found.tokens_cached += reply.tokens_cached
        found.seconds += reply.seconds
        found.usd += price.of(reply.tokens_in, reply.tokens_out)
        found.proposals.extend(_local(s, grammar) for s in reply.samples)
        say(f"{len(found.proposals)} of {options.n} answers")
    return found


def _rounds(n: int) -> Iterator[int]:
    while n > 0:
        yield min(n, AT_ONCE)
        n -= AT_ONCE


def _grammar(proposer: Mix, parent: _Parent, facts: TaskFacts) -> Grammar:
    grammar = proposer.shared.grammar(parent.kernel, facts, proposer.models[0].settings.max_tokens)
    if isinstance(grammar, NoGrammar):
        raise TaskError(f"no model can be asked for this kernel: {grammar}")
    return grammar


def _page(model: ModelProposer, grammar: Grammar, parent: _Parent, facts: TaskFacts, seed: int) -> str:
    """The page as a search would show it, with nothing tried yet; each seed draws an idea."""
    history = History()
    history.tell(parent.trial, parent.kernel, None)
    hints = parent.outcome.hints
    idea = ideas.choose(ideas.ideas(hints, grammar.edits), parent.kernel.digest, history, random.Random(seed))
    page = prompt.Page(
        facts,
        model.models.device,
        grammar.lines,
        idea,
        prompt.configured(parent.config),
        parent.trial,
        None,
        hints,
        edits=prompt.offered(grammar),
        fresh=prompt.fresh(grammar),
        launch=launched(grammar.parent, facts),
    )
    try:
        return prompt.written(page, model.engine.count, model.settings.page_tokens)
    except prompt.TooLong as least:
        most = model.settings.page_tokens
        raise TaskError(f"the least prompt for this kernel has {least.tokens} tokens, {most} are allowed") from None


def _page_only(proposer: Proposer, parent: _Parent, facts: TaskFacts, options: Options) -> str:
    if not isinstance(proposer, Mix):
        raise ModelError(NO_PAGE)
    (model,) = proposer.models
    return f"{prompt.SYSTEM}\n\n{_page(model, _grammar(proposer, parent, facts), parent, facts, options.seed)}"


def _local(sample: Sample, grammar: Grammar) -> Proposed:
    found = fate(sample, grammar, gate.check)
    if found.answer is None:
        passed = LOCAL[: LOCAL.index(found.stage)]
        return Proposed(sample.text, "", passed=passed, refused=found.stage, reason=found.reason)
    again = found.reason if found.stage == SEEN else ""
    return Proposed(sample.text, found.answer.edit, found.answer.kernel, LOCAL, note=again)


def _typed(facts: TaskFacts, parent: _Parent, proposer: Proposer, options: Options) -> Iterator[Proposed]:
    """n rewrites by typed edits, each once; the stages before the gate are theirs by construction."""
    seen: set[str] = set()
    for number in range(options.n):
        request = Request(parent.kernel, facts, seen, hints=parent.outcome.hints, number=number)
        made = proposer.propose(request, random.Random(f"{options.seed}/{number}"))
        if made is None:
            return
        seen.add(made.kernel.digest)
        verdict = gate.check(made.kernel.render())
        if verdict.accepted:
            yield Proposed(made.rationale, made.edit, made.kernel, LOCAL)
        else:
            yield Proposed(made.rationale, made.edit, None, LOCAL[:-1], LOCAL[-1], verdict.reason)


# ---------------------------------------------------------------- compiler, referee, clock


def _judge(evaluation: Evaluation, parent: _Parent, facts: TaskFacts, found: Report, options: Options) -> None:
    """Takes each proposal as far as was asked for; equal candidates are judged once."""
    if options.until in LOCAL:
        return
    futures: dict[tuple[str, str], Future[Proposed]] = {}
    with ThreadPoolExecutor(2 + len(os.sched_getaffinity(0))) as pool:
        waiting = []
        for proposed in found.proposals:
            if proposed.kernel is None:
                waiting.append((proposed, None))
                continue
            config = {**parent.config, **referee.config_of(proposed.kernel, facts), **proposed.kernel.config}
            key = (proposed.kernel.digest, config_key(config))
            if key not in futures:
                futures[key] = pool.submit(_judged, evaluation, parent, proposed, config, options.until)
            waiting.append((proposed, futures[key]))
        judged = [replace(f.result(), answer=p.answer, edit=p.edit, note=p.note) if f else p for p, f in waiting]
    found.proposals[:] = judged


def _judged(evaluation: Evaluation, parent: _Parent, proposed: Proposed, config: Config, until: str) -> Proposed:
    verdict = evaluation.compiles(proposed.kernel, config)
    if not verdict.accepted:
        return _stopped(proposed, "compiles", verdict)
    proposed = replace(proposed, passed=(*proposed.passed, "compiles"))
    if until == "compiles":
        return proposed
    outcome = evaluation.evaluate(proposed.kernel, config, parent.outcome.measurement)
    if outcome.measurement is None:
        return _stopped(proposed, "right", outcome.verdict)
    ratio = _ratio(outcome, parent.outcome)
    proposed = replace(proposed, passed=(*proposed.passed, "right"), ratio=ratio)
    if until == "right":
        return proposed
    if ratio >= NOTICED:
        return replace(proposed, refused="faster", reason=f"{ratio:.3f} of the parent's time")
    return replace(proposed, passed=(*proposed.passed, "faster"))


def _stopped(proposed: Proposed, stage: str, verdict: Verdict) -> Proposed:
    return replace(proposed, refused=stage, reason=f"{verdict.word.value}: {verdict.reason}")


def _ratio(outcome: Outcome, parent: Outcome) -> float:
    """Time over the parent's, geometric mean over the shapes that both have."""
    from kernelsearch.record.rows import geometric_mean

    times = [(t.time_us, parent.measurement.time_us(t.shape)) for t in outcome.measurement.times]
    return geometric_mean([time / base for time, base in times if base]) or 1.0


def _refused(verdict: Verdict) -> int:
    print(f"no proposals for a kernel that is refused: {referee.explained(verdict)}", file=sys.stderr)
    return 1
