"""`propose`: a proposer's answers for one kernel, how far each gets, and the rates of the stages."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from kernelsearch.cli.say import make_say
from kernelsearch.core.errors import ModelError, TaskError
from kernelsearch.core.types import Config, Outcome, Proposal, ProposalKind, TaskFacts, Trial, Verdict, config_key
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Proposer, Request
from kernelsearch.propose.engines import Ask, Failure, Sample
from kernelsearch.propose.grammar import STAGES as LOCAL
from kernelsearch.propose.grammar import Grammar, NoGrammar
from kernelsearch.propose.history import History
from kernelsearch.propose.mix import ProposerMix, RunLimits
from kernelsearch.propose.models import ideas, prompt
from kernelsearch.propose.models.answers import SEEN, check_answer
from kernelsearch.propose.models.model import ModelSettings
from kernelsearch.record.rows import geometric_mean
from kernelsearch.report import proposal_report as report
from kernelsearch.report.proposal_report import ProposalReport, ProposalResult
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.trial.slow_steps import Say
from kernelsearch.verify import gate

STAGES = (*LOCAL, "compiles", "right", "faster")
NOTICED = 0.995
"""A time over the parent's below which a proposal counts as faster."""
NO_PAGE = "--page is for models: typed edits read no prompt"

AT_ONCE = 8


@dataclass(frozen=True)
class ProposeOptions:
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
        return Trial(0, Proposal(ProposalKind.SEED), self.kernel.digest, self.config, self.outcome, 1.0)


def main(path: str, options: ProposeOptions) -> int:
    """Asks, judges and prints. Returns 0, or 1 when there was no answer at all or the parent is refused."""
    say = make_say(options.quiet)
    settings = ModelSettings(min(options.n, AT_ONCE), temperature=options.temperature)
    model = proposers.ModelOptions(options.proposer, price=options.price, record=options.record, settings=settings)
    if options.proposer == proposers.MIX:
        raise ModelError("propose asks one proposer: edits, or the spec of a model")
    if options.page and options.proposer == proposers.EDITS:
        raise ModelError(NO_PAGE)
    text = referee.read_kernel_argument(path, options.kernel)
    if text is not None and not (verdict := referee.check_kernel_file(text)).accepted:
        return _print_refusal(verdict)
    with ExitStack() as stack:
        bench = stack.enter_context(Bench.open(path, options.target, compiled=default_folder(), say=say))
        facts = narrow_to_shapes(bench.facts, options.shapes)
        evaluation = Evaluation.of(bench, facts)
        proposer = proposers.open_proposer(
            model, proposers.MachineFacts(bench.where, bench.target), RunLimits(options.n), say
        )
        stack.callback(proposer.close)
        kernel = Kernel.parse(text) if text is not None else bench.seed
        config = referee.config_of(kernel, bench.facts) if text is not None else dict(facts.config)
        say(f"{facts.name}: judging the parent {kernel.digest[:8]} first")
        parent = _Parent(kernel, config, evaluation.evaluate(kernel, config))
        if not parent.outcome.verdict.accepted:
            return _print_refusal(parent.outcome.verdict)
        if options.page:
            if not isinstance(proposer, ProposerMix):
                raise ModelError(NO_PAGE)
            page = _write_page(proposer, _make_grammar(proposer, parent, facts), parent, facts, options.seed)
            print(f"{prompt.SYSTEM}\n\n{page}")
            return 0
        answers = _collect_answers(facts, parent, proposer, options, say)
        _judge(evaluation, parent, bench.facts, answers, options)
    if options.as_json:
        print(json.dumps(report.as_dict(answers), indent=2))
    else:
        print(report.as_text(answers), end="")
    return 0 if answers.proposals else 1


# ---------------------------------------------------------------- answers


def _collect_answers(
    facts: TaskFacts, parent: _Parent, proposer: Proposer, options: ProposeOptions, say: Say
) -> ProposalReport:
    answers = ProposalReport(
        facts.name, parent.kernel.digest, options.proposer, STAGES[: STAGES.index(options.until) + 1]
    )
    if not isinstance(proposer, ProposerMix):
        answers.proposals.extend(_apply_edits(facts, parent, proposer, options))
        return answers
    (model,) = proposer.models
    grammar = _make_grammar(proposer, parent, facts)
    for seed, wanted in enumerate(range(options.n, 0, -AT_ONCE), options.seed):
        page = _write_page(proposer, grammar, parent, facts, seed)
        samples, longest = min(wanted, AT_ONCE), model.settings.max_tokens
        reply = model.engine.complete(Ask(prompt.SYSTEM, page, grammar, samples, longest, options.temperature, seed))
        if isinstance(reply, Failure):
            say(f"model: {reply.reason}")
            answers.failures.append(reply.reason)
            if reply.kind != "busy":
                break
            continue
        for note in reply.notes:
            say(f"model: {note}")
        answers.tokens_in += reply.tokens_in
        answers.tokens_out += reply.tokens_out
        answers.tokens_cached += reply.tokens_cached
        answers.seconds += reply.seconds
        answers.usd += proposer.shared.ledger.budget.price.of(reply.tokens_in, reply.tokens_out)
        answers.proposals.extend(_read_sample(s, grammar) for s in reply.samples)
        say(f"{len(answers.proposals)} of {options.n} answers")
    return answers


def _make_grammar(proposer: ProposerMix, parent: _Parent, facts: TaskFacts) -> Grammar:
    grammar = proposer.shared.grammar(parent.kernel, facts, proposer.models[0].settings.max_tokens)
    if isinstance(grammar, NoGrammar):
        raise TaskError(f"no model can be asked for this kernel: {grammar}")
    return grammar


def _write_page(proposer: ProposerMix, grammar: Grammar, parent: _Parent, facts: TaskFacts, seed: int) -> str:
    """The page as a search would show it, with nothing tried yet; each seed draws an idea."""
    (model,), history = proposer.models, History()
    history.tell(parent.trial, parent.kernel, None)
    hints = parent.outcome.hints
    idea = ideas.choose_idea(ideas.list_ideas(hints, grammar.edits), parent.kernel.digest, history, random.Random(seed))
    page = prompt.PromptPage(grammar, facts, proposer.shared.device, idea, parent.trial, hints=hints)
    try:
        return prompt.write_page(page, model.engine.count, model.settings.page_tokens)
    except prompt.TooLong as least:
        most = model.settings.page_tokens
        raise TaskError(f"the shortest prompt for this kernel has {least.tokens} tokens, {most} are allowed") from None


def _read_sample(sample: Sample, grammar: Grammar) -> ProposalResult:
    end = check_answer(sample, grammar, gate.check)
    if end.answer is None:
        passed = LOCAL[: LOCAL.index(end.stage)]
        return ProposalResult(sample.text, "", passed=passed, refused=end.stage, reason=end.reason)
    again = end.reason if end.stage == SEEN else ""
    return ProposalResult(sample.text, end.answer.edit, end.answer.kernel, LOCAL, note=again)


def _apply_edits(
    facts: TaskFacts, parent: _Parent, proposer: Proposer, options: ProposeOptions
) -> Iterator[ProposalResult]:
    """n rewrites by typed edits, each once; they pass the stages before the gate by construction."""
    seen: set[str] = set()
    for number in range(options.n):
        request = Request(parent.kernel, facts, seen, hints=parent.outcome.hints, number=number)
        rewrite = proposer.propose(request, random.Random(f"{options.seed}/{number}"))
        if rewrite is None:
            return
        seen.add(rewrite.kernel.digest)
        verdict = gate.check(rewrite.kernel.render())
        if verdict.accepted:
            yield ProposalResult(rewrite.rationale, rewrite.edit, rewrite.kernel, LOCAL)
        else:
            yield ProposalResult(rewrite.rationale, rewrite.edit, None, LOCAL[:-1], LOCAL[-1], verdict.reason)


# ---------------------------------------------------------------- compiler, referee, clock


def _judge(
    evaluation: Evaluation, parent: _Parent, facts: TaskFacts, answers: ProposalReport, options: ProposeOptions
) -> None:
    """Takes each proposal up to the stage `options.until`; equal candidates are judged once."""
    if options.until in LOCAL:
        return
    kernels = [p for p in answers.proposals if p.kernel]
    configs = [{**parent.config, **referee.config_of(p.kernel, facts), **p.kernel.config} for p in kernels]
    keys = [(p.kernel.digest, config_key(config)) for p, config in zip(kernels, configs)]
    with ThreadPoolExecutor(2 + len(os.sched_getaffinity(0))) as pool:
        futures = {
            key: pool.submit(_judge_one, evaluation, parent, proposed, config, options.until)
            for key, (proposed, config) in dict(zip(keys, zip(kernels, configs))).items()
        }
    results = iter(keys)
    answers.proposals[:] = [
        replace(futures[next(results)].result(), answer=p.answer, edit=p.edit, note=p.note) if p.kernel else p
        for p in answers.proposals
    ]


def _judge_one(
    evaluation: Evaluation, parent: _Parent, proposed: ProposalResult, config: Config, until: str
) -> ProposalResult:
    verdict = evaluation.try_compile(proposed.kernel, config)
    if not verdict.accepted:
        return _stop(proposed, "compiles", verdict)
    proposed = replace(proposed, passed=(*proposed.passed, "compiles"))
    if until == "compiles":
        return proposed
    outcome = evaluation.evaluate(proposed.kernel, config, parent.outcome.measurement)
    if outcome.measurement is None:
        return _stop(proposed, "right", outcome.verdict)
    ratio = _ratio(outcome, parent.outcome)
    proposed = replace(proposed, passed=(*proposed.passed, "right"), ratio=ratio)
    if until == "right":
        return proposed
    if ratio >= NOTICED:
        return replace(proposed, refused="faster", reason=f"{ratio:.3f} of the parent's time")
    return replace(proposed, passed=(*proposed.passed, "faster"))


def _stop(proposed: ProposalResult, stage: str, verdict: Verdict) -> ProposalResult:
    return replace(proposed, refused=stage, reason=f"{verdict.word.value}: {verdict.reason}")


def _ratio(outcome: Outcome, parent: Outcome) -> float:
    """Time over the parent's, geometric mean over the shapes that both have."""
    times = [(t.time_us, parent.measurement.time_us(t.shape)) for t in outcome.measurement.times]
    return geometric_mean([time / base for time, base in times if base]) or 1.0


def _print_refusal(verdict: Verdict) -> int:
    print(f"no proposals for a kernel that is refused: {referee.explain(verdict)}", file=sys.stderr)
    return 1
