"""A proposer's answers for one kernel, how far each gets, and the rates of the stages.

python studies/models/proposals.py TASK.py --proposer openai:URL#MODEL -n 200 --temperature 1 --until compiles
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import click
import proposal_report as report
from proposal_report import ProposalReport, ProposalResult

from kernelsearch.cli.options import (
    OutputFile,
    edit_option,
    json_option,
    kernel_argument,
    price_option,
    quiet_option,
    shape_option,
    target_option,
    task_argument,
)
from kernelsearch.cli.run_page import compose_page
from kernelsearch.core.errors import KernelsearchError, ModelError
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Config, TaskFacts, Verdict, config_key
from kernelsearch.env.judging import STAGES, Parent, judge_kernel, judge_parent
from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Proposer, Request
from kernelsearch.propose.edits import add_edit
from kernelsearch.propose.engines import Ask, Failure, Sample
from kernelsearch.propose.grammar import STAGES as LOCAL
from kernelsearch.propose.grammar import NoGrammar
from kernelsearch.propose.mix import ProposerMix, RunLimits
from kernelsearch.propose.models.answers import SEEN, Form, check_answer
from kernelsearch.propose.models.shared import WHOLE_KERNELS, ModelSettings
from kernelsearch.report.terminal import make_say, print_text
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.verify import gate

AT_ONCE = 8


@dataclass(frozen=True)
class ProposeOptions:
    """The script's options, as its command line names them."""

    proposer: str
    kernel: str | None = None
    edits: tuple[str, ...] = ()
    n: int = 8
    until: str = STAGES[-1]
    temperature: float = 0.8
    seed: int = 0
    price: tuple[float, float] | None = None
    record: str | None = None
    target: str = "auto"
    shapes: tuple[str, ...] = ()
    as_json: bool = False
    quiet: bool = False


@click.command()
@task_argument
@kernel_argument
@click.option("--proposer", required=True, metavar="edits|SPEC", help="Typed edits, or the spec of a model.")
@click.option("-n", "n", default=8, show_default=True, type=click.IntRange(min=1), help="Answers to ask for.")
@click.option(
    "--until", default=STAGES[-1], show_default=True, type=click.Choice(STAGES), help="The last stage to check."
)
@click.option("--temperature", default=0.8, show_default=True, help="The model's sampling temperature.")
@click.option("--seed", default=0, show_default=True, help="Random seed of the ideas and of the model's sampling.")
@edit_option
@price_option
@click.option("--record", type=OutputFile(), help="Write the answers to a file for replay:FILE.")
@target_option
@shape_option
@json_option
@quiet_option
def main(task: str, **options: Any) -> None:
    """Asks for N edits of KERNEL (default: TASK's own) or for whole kernels, and checks each answer stage by stage."""
    try:
        sys.exit(0 if ask(task, ProposeOptions(**options)) else 1)
    except KernelsearchError as error:
        raise click.UsageError(str(error)) from None


def ask(path: str, options: ProposeOptions) -> bool:
    """Asks, judges and prints. False when there was no answer at all or the parent is refused."""
    say = make_say(options.quiet)
    for edit in options.edits:
        add_edit(edit)
    common = {"samples": min(options.n, AT_ONCE), "temperature": options.temperature}
    settings, whole = ModelSettings(**common), replace(WHOLE_KERNELS, **common)
    model = proposers.ModelOptions(
        options.proposer, price=options.price, record=options.record, settings=settings, whole=whole
    )
    if options.proposer == proposers.MIX:
        raise ModelError("one proposer is asked: edits, or the spec of a model")
    text = referee.read_kernel_argument(path, options.kernel)
    if text is not None and not (verdict := referee.check_kernel_file(text)).accepted:
        return _refuse(verdict)
    with ExitStack() as stack:
        bench = stack.enter_context(Bench.open(path, options.target, compiled=default_folder(), say=say))
        bench.check_isolation(say, False)
        facts = narrow_to_shapes(bench.facts, options.shapes)
        evaluation = Evaluation.of(bench, facts)
        proposer = proposers.open_proposer(
            model, proposers.MachineFacts(bench.where, bench.target), RunLimits(options.n), say
        )
        stack.callback(proposer.close)
        proposer.send_sentences_to(say)
        parent = judge_parent(evaluation, facts, text, say)
        if not parent.outcome.verdict.accepted:
            return _refuse(parent.outcome.verdict)
        answers = _collect_answers(facts, parent, proposer, options, say)
        answers.evidence = parent.outcome.measurement.evidence.value
        _judge(evaluation, parent, bench.facts, answers, options)
    if options.as_json:
        print(json.dumps(report.as_dict(answers), indent=2))
    else:
        print_text(report.as_text(answers))
    return bool(answers.proposals)


def _refuse(verdict: Verdict) -> bool:
    print(f"no proposals for a kernel that is refused: {referee.explain(verdict)}", file=sys.stderr)
    return False


# ---------------------------------------------------------------- answers


def _collect_answers(
    facts: TaskFacts, parent: Parent, proposer: Proposer, options: ProposeOptions, say: Say
) -> ProposalReport:
    answers = ProposalReport(
        facts.name, parent.kernel.digest, options.proposer, STAGES[: STAGES.index(options.until) + 1]
    )
    if not isinstance(proposer, ProposerMix):
        answers.proposals.extend(_apply_edits(facts, parent, proposer, options))
        return answers
    model = proposer.models[0]
    proposer.shared.history.tell(parent.trial, parent.kernel, None)
    form = model.make_form(parent.kernel, facts)
    for seed, wanted in enumerate(range(options.n, 0, -AT_ONCE), options.seed):
        page = compose_page(model, parent, facts, seed)
        samples, longest = min(wanted, AT_ONCE), model.health.answer_tokens
        held = None if isinstance(form, NoGrammar) else form.for_engine
        ask = Ask(model.system, page, held, samples, longest, options.temperature, seed, whole=model.whole)
        reply = model.engine.complete(ask)
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
        answers.proposals.extend(_read_sample(s, form) for s in reply.samples)
        say(f"{len(answers.proposals)} of {options.n} answers")
    return answers


def _read_sample(sample: Sample, form: Form) -> ProposalResult:
    end = check_answer(sample, form, gate.check)
    if end.answer is None:
        passed = LOCAL[: LOCAL.index(end.stage)]
        return ProposalResult(sample.text, "", passed=passed, refused=end.stage, reason=end.reason)
    again = end.reason if end.stage == SEEN else ""
    return ProposalResult(sample.text, end.answer.edit, end.answer.kernel, LOCAL, note=again)


def _apply_edits(
    facts: TaskFacts, parent: Parent, proposer: Proposer, options: ProposeOptions
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
    evaluation: Evaluation, parent: Parent, facts: TaskFacts, answers: ProposalReport, options: ProposeOptions
) -> None:
    """Takes each proposal up to the stage `options.until`; equal candidates are judged once."""
    if options.until in LOCAL:
        return
    kernels = [p for p in answers.proposals if p.kernel]
    configs = [parent.config_for(p.kernel, p.edit, facts) for p in kernels]
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
    evaluation: Evaluation, parent: Parent, proposed: ProposalResult, config: Config, until: str
) -> ProposalResult:
    judged = judge_kernel(evaluation, parent, proposed.kernel, config, until)
    passed = (*proposed.passed, *judged.passed)
    return replace(proposed, passed=passed, refused=judged.refused, reason=judged.reason, ratio=judged.ratio)


if __name__ == "__main__":
    main()
