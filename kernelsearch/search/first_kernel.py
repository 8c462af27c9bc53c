"""The first kernel of a task that has none: a model writes the body of a launch skeleton, judged like any candidate.

The skeleton and the launcher are ours (`propose/first`), so that no host code of a model runs. What comes out is a task
file of its own, NAME_seeded.py beside NAME.py: the task, a launcher, and the first kernel that the referee accepted at
full depth. The search then goes on with that file as with any other. Answers that are refused go back with the reason,
a few times each; a model that writes no right kernel ends the command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernelsearch.core.errors import ModelError, TaskError
from kernelsearch.core.model_calls import Answered, ModelCall
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose import proposers
from kernelsearch.propose.engines import Ask, Failure, Opened
from kernelsearch.propose.engines.base import CUT, Engine, Sample
from kernelsearch.propose.first import page
from kernelsearch.propose.first.body import Body, Refused
from kernelsearch.propose.first.template import NoTemplate, template
from kernelsearch.propose.mixed import Limits
from kernelsearch.propose.models.repair import clean, report
from kernelsearch.tasks.outline import Outline
from kernelsearch.trial import Evaluation
from kernelsearch.trial import bench as benches
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.verify import gate
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import trusted

CALLS = 9
"""Requests to each model before it is said to write no right kernel."""
REPAIRS = 2
"""Of them how many in a row correct one refused answer."""
UNFINISHED = "# ---- This file is being written; if no kernelsearch runs, delete it.\n"

Say = Callable[[str], None]


@dataclass
class Draft:
    """A first kernel in the making: the calls so far, and why answers were refused."""

    outline: Outline
    body: Body
    calls: list[ModelCall] = field(default_factory=list)
    stages: Counter[str] = field(default_factory=Counter)
    last: str = ""


def seeded(
    path: str, options: proposers.ModelOptions, target: str, say: Say, engines: Opened
) -> tuple[str, tuple[ModelCall, ...]]:
    """The task file with a first kernel, and what it cost to write; an earlier run's is taken as it is.

    engines gives the models, and keeps what it loaded for the search that follows.
    Raises TaskError where no skeleton fits the reference or no answer is right, ModelError where no model answers.
    """
    original, file = Path(path), Path(path).with_name(f"{Path(path).stem}_seeded.py")
    text = original.read_text(encoding="utf-8")
    if file.exists():
        known = file.read_text(encoding="utf-8")
        if not known.startswith(UNFINISHED):
            if not known.startswith(text.rstrip()):
                raise TaskError(
                    f"{file} is in the way: it does not begin with the text of {original.name}; move it away"
                )
            say(f"{original.name} has no kernel; {file.name} has it with the first one of an earlier run")
            return str(file), ()
    draft = _outlined(original, target)
    say(f"{original.name} has no kernel: a model writes the first one, into {file.name}")
    try:
        lines = _drafted(draft, file, text, options, target, say, engines)
        file.write_text(draft.body.template.file(text, lines), encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{file} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            if file.exists() and file.read_text(encoding="utf-8").startswith(UNFINISHED):
                file.unlink()
    return str(file), tuple(draft.calls)


def _outlined(path: Path, target: str) -> Draft:
    machine, _ = benches.choose_target(target)
    place = benches.Workplace((str(path.resolve().parent),))
    try:
        judge = place.pool("judge", 1, fork=True)
        outline = trusted(judge, jobs.OutlineTask(str(path.resolve()), machine), benches.OPEN_LIMIT_S)
    finally:
        place.close()
    try:
        return Draft(outline, Body.of(template(outline)))
    except NoTemplate as none:
        raise TaskError(
            f"{path.name} has no kernel, and a model can write none: {none}. Add a kernel and the function "
            "that launches it"
        ) from None


def _drafted(
    draft: Draft, file: Path, text: str, options: proposers.ModelOptions, target: str, say: Say, engines: Opened
) -> str:
    """The lines of a right body. Raises TaskError or ModelError."""
    skeleton = draft.body.template
    file.write_text(UNFINISHED + skeleton.file(text, _stand_in(draft)), encoding="utf-8")
    with Bench.open(str(file), target, compiled=default_folder()) as bench:
        evaluation = Evaluation(bench)
        place = proposers.Place(bench.device.name if bench.device else bench.target.name, bench.target)
        proposer = proposers.opened(options, place, Limits(), say, make=engines.engine)
        try:
            for model in proposer.models:
                lines = _asked(
                    draft,
                    model.engine,
                    model.name.replace("model:", "first:"),
                    place.device,
                    evaluation,
                    options,
                    proposer.shared.ledger,
                    say,
                )
                if lines is not None:
                    return lines
        finally:
            proposers.close(proposer)
    if not draft.stages:
        raise ModelError(f"no model answered: {draft.last or 'its budget is used up'}")
    counts = ", ".join(f"{n} {stage}" for stage, n in draft.stages.most_common())
    raise TaskError(
        f"no model wrote a right first kernel of {draft.outline.name} in {len(draft.calls)} requests "
        f"(answers by what refused them: {counts}); the last one: {clean(draft.last)}"
    )


def _asked(
    draft: Draft,
    engine: Engine,
    arm: str,
    device: str,
    evaluation: Evaluation,
    options: proposers.ModelOptions,
    ledger: proposers.Ledger,
    say: Say,
) -> str | None:
    """Asks one model until an answer is right; None where none was."""
    refused: list[tuple[str, str]] = []
    for number in range(CALLS):
        if ledger.exhausted:
            say(f"model: the budget of {ledger.exhausted} is used up")
            return None
        text = page.written(draft.outline, draft.body, device, refused)
        s = options.settings
        ask = Ask(page.SYSTEM, text, draft.body, s.samples, draft.body.longest, s.temperature, number)
        reply = engine.complete(ask)
        common = dict(
            number=0,
            arm=arm,
            engine=engine.name,
            parent="",
            idea="first",
            action="Write the first kernel.",
            system=page.SYSTEM,
            page=text,
            grammar=draft.body.digest,
            seconds=reply.seconds,
            waited=reply.seconds,
        )
        if isinstance(reply, Failure):
            call, draft.last = ModelCall(**common, failure=reply.reason, kind=reply.kind), reply.reason
            say(f"model: {reply.reason}")
            _paid(draft, ledger, call)
            return None  # the engine has tried again by itself
        right, answers = None, []
        for sample in reply.samples:
            lines, answer = (None, None) if right else _judged(draft, sample, evaluation)
            if answer is None:
                break
            answers.append(answer)
            right = lines
        usd = ledger.budget.price.of(reply.tokens_in, reply.tokens_out)
        _paid(
            draft,
            ledger,
            ModelCall(
                **common,
                answers=tuple(answers),
                tokens_in=reply.tokens_in,
                tokens_cached=reply.tokens_cached,
                tokens_out=reply.tokens_out,
                usd=usd,
            ),
        )
        if right:
            say(f"the first kernel is right: answer {sum(draft.stages.values()) + 1}, request {len(draft.calls)}")
            return right
        told = [(a.text, a.reason) for a in answers if a.stage not in ("stopped", "grammar")]
        refused = told[-1:] if (number + 1) % (REPAIRS + 1) else []
    return None


def _paid(draft: Draft, ledger: proposers.Ledger, call: ModelCall) -> None:
    draft.calls.append(call)
    ledger.add(call, again=True)


def _judged(draft: Draft, sample: Sample, evaluation: Evaluation) -> tuple[str | None, Answered]:
    """The body's lines if its kernel is right, and the answer with the stage that it reached."""
    lines = draft.body.read(sample.text, sample.finish != CUT)
    if isinstance(lines, Refused):
        return None, _refused(draft, sample, lines.stage, lines.reason)
    kernel = Kernel.parse(draft.body.template.kernel_file(lines))
    verdict = gate.check(kernel.render())
    if verdict.accepted:
        verdict = evaluation.compiles(kernel, evaluation.facts.config)
    if verdict.accepted:
        verdict = evaluation.verify(kernel, evaluation.facts.config)
    if verdict.accepted:
        return lines, Answered(sample.text, sample.finish, sample.tokens, "right", "", kernel.digest)
    return None, _refused(draft, sample, verdict.word.value, report(verdict))


def _refused(draft: Draft, sample: Sample, stage: str, reason: str) -> Answered:
    draft.stages[stage] += 1
    draft.last = reason
    return Answered(sample.text[:4096], sample.finish, sample.tokens, stage, reason)


def _stand_in(draft: Draft) -> str:
    """A body that compiles, for a file that can be opened before the right one is known; nobody is shown its result."""
    x = draft.body.template.widest
    return (
        f"    out = tl.sum(tl.where(mask, {x}, 0.0), axis=0)\n" if draft.body.template.reduces else f"    out = {x}\n"
    )
