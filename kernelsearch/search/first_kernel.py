"""The first kernel of a task that has none: a model writes the body of a launch skeleton, judged like any candidate.

The skeleton and the launcher are ours (`propose/first`), so that no host code of a model runs. The result is a task
file of its own, NAME_seeded.py beside NAME.py: the task, a launcher, and the first kernel that the referee accepted at
full depth. The search then goes on with that file as with any other. Answers that are refused go back with the reason,
a few times each; the command ends if no model writes a right kernel.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernelsearch.core.errors import ModelError, TaskError
from kernelsearch.core.files import write_user_file
from kernelsearch.core.model_calls import AnswerRecord, ModelCall
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose import proposers
from kernelsearch.propose.engines import Ask, EngineCache, Failure
from kernelsearch.propose.engines.base import CUT, Sample
from kernelsearch.propose.first import body_page
from kernelsearch.propose.first.body import Body
from kernelsearch.propose.first.template import NoTemplate, choose_template
from kernelsearch.propose.grammar import AnswerRejection
from kernelsearch.propose.mix import ProposerMix, RunLimits
from kernelsearch.propose.models.model import ModelProposer
from kernelsearch.propose.models.repair import clean, report_verdict
from kernelsearch.tasks.outline import Outline
from kernelsearch.trial import Evaluation
from kernelsearch.trial import bench as benches
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.trial.slow_steps import Say
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Workplace, ask_trusted

CALLS = 9
"""Requests to each model until it counts as one that writes no right kernel."""
SEED_LIMIT_S = 300.0
"""Seconds that TorchInductor may take for a reference."""
REPAIRS = 2
"""How many of them in a row correct one refused answer."""
UNFINISHED = "# ---- This file is being written; if no kernelsearch runs, delete it.\n"


def write_first_kernel(
    path: str, options: proposers.ModelOptions, target: str, say: Say, engines: EngineCache
) -> tuple[str, tuple[ModelCall, ...]]:
    """The task file with a first kernel, and the calls that wrote it; an earlier run's file is taken as it is.

    engines opens the models, and keeps what it loaded for the search that follows.
    Raises TaskError where no skeleton fits the reference or no answer is right, ModelError where no model answers.
    """
    original, file, earlier = _find_seeded(path, say)
    if earlier:
        return str(file), ()
    text = original.read_text(encoding="utf-8")
    draft = Draft(*_outline(original, target), options, say)
    say(f"{original.name} has no kernel: a model writes the first one, into {file.name}")
    skeleton = draft.body.template
    try:
        file.write_text(UNFINISHED + skeleton.file(text, draft.stand_in), encoding="utf-8")
        with Bench.open(str(file), target, compiled=default_folder()) as bench:
            lines = draft.write(bench, engines)
        file.write_text(skeleton.file(text, lines), encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{file} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            if file.exists() and file.read_text(encoding="utf-8").startswith(UNFINISHED):
                file.unlink()
    return str(file), tuple(draft.calls)


def write_inductor_kernel(path: str, target: str, say: Say) -> str:
    """The task file with TorchInductor's kernels; an earlier run's file is taken as it is.

    Raises TaskError where Inductor writes no kernel that can be read.
    """
    original, file, earlier = _find_seeded(path, say)
    if not earlier:
        write_seed(str(original), str(file), target)
        say(f"{original.name} has no kernel: seeded by TorchInductor, see {file.name}")
    return str(file)


def write_seed(path: str, out: str, target: str) -> str:
    """Writes a task file with TorchInductor's kernels as its seed, and the other start beside it; says what it wrote.

    Raises TaskError.
    """
    text, start = make_seeded_text(path, target)
    beside = _name_start(out)
    for file, content in ((out, text), (beside, start)):
        if content:
            write_user_file(file, content)
    return f"{out} and {beside}, a second start" if start else out


def list_starts(path: str) -> list[str]:
    """Kernel files beside a seeded task file with which a search may begin too."""
    return [start] if Path(start := _name_start(path)).exists() else []


def _name_start(path: str) -> str:
    return f"{path.removesuffix('.py')}_start.py"


def make_seeded_text(path: str, target: str) -> tuple[str, str]:
    """(A task file's text with TorchInductor's kernels as its seed, a kernel file with another start or "").

    Raises TaskError.
    """
    machine, _ = benches.choose_target(target)
    with Workplace((str(Path(path).resolve().parent),)) as place:
        judge = place.pool("judge", 1, fork=True)
        text, start = ask_trusted(judge, jobs.SeedTask(str(Path(path).resolve()), machine), SEED_LIMIT_S)
        return str(text), str(start)


def _find_seeded(path: str, say: Say) -> tuple[Path, Path, bool]:
    """(The task's file, the file for its first kernel, true if an earlier run wrote that). Raises TaskError."""
    original, file = Path(path), Path(path).with_name(f"{Path(path).stem}_seeded.py")
    earlier = file.read_text(encoding="utf-8") if file.exists() else UNFINISHED
    if earlier.startswith(UNFINISHED):
        return original, file, False
    if not earlier.startswith(original.read_text(encoding="utf-8").rstrip()):
        raise TaskError(f"{file} is in the way: it does not begin with the text of {original.name}; move it away")
    say(f"{original.name} has no kernel; {file.name} has it with the first one of an earlier run")
    return original, file, True


def _outline(path: Path, target: str) -> tuple[Outline, Body]:
    machine, _ = benches.choose_target(target)
    with Workplace((str(path.resolve().parent),)) as place:
        judge = place.pool("judge", 1, fork=True)
        outline = ask_trusted(judge, jobs.OutlineTask(str(path.resolve()), machine), benches.OPEN_LIMIT_S)
    try:
        return outline, Body.of(choose_template(outline))
    except NoTemplate as none:
        raise TaskError(
            f"{path.name} has no kernel, and a model can write none: {none}. Add a kernel and the function "
            "that launches it"
        ) from None


@dataclass
class Draft:
    """A first kernel in the making: the calls so far, and how many answers each stage refused."""

    outline: Outline
    body: Body
    options: proposers.ModelOptions
    say: Say
    calls: list[ModelCall] = field(default_factory=list)
    stages: Counter[str] = field(default_factory=Counter)
    last: str = ""

    @property
    def stand_in(self) -> str:
        """A body that compiles, for a file that can be opened before the right one is known; its result is not used."""
        x = self.body.template.widest
        return f"    out = {f'tl.sum(tl.where(mask, {x}, 0.0), axis=0)' if self.body.template.reduces else x}\n"

    def write(self, bench: Bench, engines: EngineCache) -> str:
        """The lines of a right body. Raises TaskError or ModelError."""
        place, evaluation = proposers.MachineFacts(bench.where, bench.target), Evaluation(bench)
        proposer = proposers.open_proposer(self.options, place, RunLimits(), self.say, make=engines.engine)
        if not isinstance(proposer, ProposerMix):
            raise ModelError("a first kernel needs a model: name one with --model")
        try:
            for model in proposer.models:
                lines = self._ask_model(model, evaluation, proposer.shared.ledger)
                if lines is not None:
                    return lines
        finally:
            proposer.close()
        if not self.stages:
            raise ModelError(f"no model answered: {self.last or 'its budget is used up'}")
        counts = ", ".join(f"{n} {stage}" for stage, n in self.stages.most_common())
        raise TaskError(
            f"no model wrote a right first kernel of {self.outline.name} in {len(self.calls)} requests "
            f"(answers by what refused them: {counts}); the last one: {clean(self.last)}"
        )

    def _ask_model(self, model: ModelProposer, evaluation: Evaluation, ledger: proposers.Ledger) -> str | None:
        """Asks one model until an answer is right; None where none was."""
        refused: list[tuple[str, str]] = []
        for number in range(CALLS):
            if ledger.exhausted:
                self.say(f"model: the budget of {ledger.exhausted} is used up")
                return None
            text = body_page.write_page(self.outline, self.body, evaluation.bench.where, refused)
            s = self.options.settings
            ask = Ask(body_page.SYSTEM, text, self.body, s.samples, self.body.longest, s.temperature, number)
            reply = model.engine.complete(ask)
            right, answers = None, []
            for sample in () if isinstance(reply, Failure) else reply.samples:
                right, answer = self._judge(sample, evaluation)
                answers.append(answer)
                if right:
                    break
            arm, action = f"first:{model.name.partition(':')[2]}", "Write the first kernel."
            call = ModelCall(
                0, arm, model.engine.name, "", "first", action, ask.system, text, self.body.digest, waited=reply.seconds
            )
            self.calls.append(ledger.record_reply(call, reply, answers))
            ledger.add(self.calls[-1], again=True)
            if isinstance(reply, Failure):
                self.last = reply.reason
                self.say(f"model: {reply.reason}")
                return None  # the engine has tried again by itself
            if right:
                count = sum(self.stages.values()) + 1
                self.say(f"the first kernel is right: answer {count}, request {len(self.calls)}")
                return right
            repairable = [(a.text, a.reason) for a in answers if a.stage not in ("stopped", "grammar")]
            refused = repairable[-1:] if (number + 1) % (REPAIRS + 1) else []
        return None

    def _judge(self, sample: Sample, evaluation: Evaluation) -> tuple[str | None, AnswerRecord]:
        """The body's lines if its kernel is right, and the answer with the stage that it reached."""
        lines = self.body.read(sample.text, sample.finish != CUT)
        if isinstance(lines, AnswerRejection):
            return None, self._refuse(sample, lines.stage, lines.reason)
        kernel, config = Kernel.parse(self.body.template.kernel_file(lines)), evaluation.facts.config
        verdict = evaluation.try_compile(kernel, config)
        if verdict.accepted:
            verdict = evaluation.verify(kernel, config)
        if verdict.accepted:
            return lines, AnswerRecord(sample.text, sample.finish, sample.tokens, "right", "", kernel.digest)
        return None, self._refuse(sample, verdict.word.value, report_verdict(verdict))

    def _refuse(self, sample: Sample, stage: str, reason: str) -> AnswerRecord:
        self.stages[stage] += 1
        self.last = reason
        return AnswerRecord(sample.text[:4096], sample.finish, sample.tokens, stage, reason)
