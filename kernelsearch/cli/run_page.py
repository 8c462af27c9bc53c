"""`page`: what a model would be shown of a kernel, printed."""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from kernelsearch.core.errors import TaskError
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import TaskFacts, Verdict
from kernelsearch.env.judging import Parent, judge_parent
from kernelsearch.propose.contract import Request
from kernelsearch.propose.engines import Engine
from kernelsearch.propose.grammar import NoGrammar
from kernelsearch.propose.history import History
from kernelsearch.propose.models.lessons import load_lessons, read_shipped
from kernelsearch.propose.models.model import ModelProposer
from kernelsearch.propose.models.plan import IdeaPlan
from kernelsearch.propose.models.sections import TooLong
from kernelsearch.propose.models.shared import WHOLE_KERNELS, Models, ModelSettings
from kernelsearch.propose.proposers import load_machine_facts, recall_plan
from kernelsearch.record.store import Store
from kernelsearch.report.terminal import make_say
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.verify import gate

RUNS = 20
"""The newest runs whose kernels are recalled."""


@dataclass(frozen=True)
class PageOptions:
    """The command's options, as the command line names them."""

    kernel: str | None = None
    answers: str = "kernel"
    tokens: int | None = None
    seed: int = 0
    db: str = ""
    target: str = "auto"
    shapes: tuple[str, ...] = ()
    quiet: bool = False


def main(path: str, options: PageOptions) -> int:
    """Judges the kernel and prints the page. Returns 0, or 1 for a kernel that is refused."""
    say = make_say(options.quiet)
    text = referee.read_kernel_argument(path, options.kernel)
    if text is not None and not (verdict := referee.check_kernel_file(text)).accepted:
        return _print_refusal(verdict)
    with Bench.open(path, options.target, compiled=default_folder(), say=say) as bench:
        page = write_page(bench, text, options, say)
    if isinstance(page, Verdict):
        return _print_refusal(page)
    print(page)
    return 0


def write_page(bench: Bench, text: str | None, options: PageOptions, say: Say) -> str | Verdict:
    """The page of a kernel file's text, or of the task's own kernel; or the verdict that refuses it."""
    facts, history = narrow_to_shapes(bench.facts, options.shapes), History()
    plan, lessons = IdeaPlan(history), read_shipped()
    with ExitStack() as stack:
        store = None
        if Path(options.db).is_file():
            store = stack.enter_context(Store.open(options.db, write=False))  # others may write it meanwhile
            _recall(store, facts, bench.where, history)
            recall_plan(plan, store, facts.digest, bench.where)
            lessons += tuple(load_lessons(store, facts.digest))
            bench.ceilings = store.load_ceilings(bench.device.name) if bench.device else {}
        place = load_machine_facts(store, facts, bench.where, bench.target)
    parent = judge_parent(Evaluation.of(bench, facts), facts, text, say)
    if not parent.outcome.verdict.accepted:
        return parent.outcome.verdict
    if not history.entries:
        history.tell(parent.trial, parent.kernel, None)
    engine, whole = Engine(), options.answers == "kernel"
    engine.name = engine.label = "page"
    settings = WHOLE_KERNELS if whole else ModelSettings()
    settings = replace(settings, page_tokens=options.tokens or settings.page_tokens)
    models = Models(gate.check, place, history=history, lessons=lessons)
    models.plan = plan
    model = ModelProposer(engine, models, settings, whole=whole)
    return f"{model.system}\n\n{compose_page(model, parent, facts, options.seed)}"


def _recall(store: Store, facts: TaskFacts, where: str, history: History) -> None:
    """Tells the history what the newest runs of this task have tried there."""
    runs = [run for run in store.load_runs(facts.digest) if run.facts.target == where]
    for run in reversed(runs[:RUNS]):
        structures = store.load_structures(run.id)
        for trial in store.load_trials(run.id):
            structure = structures[trial.kernel]
            history.tell(trial, structure.kernel, structure.parent)


def compose_page(model: ModelProposer, parent: Parent, facts: TaskFacts, seed: int) -> str:
    """The page as a search would show it; each seed draws an idea. Raises TaskError where there is none."""
    request = Request(parent.kernel, facts, hints=parent.outcome.hints, trial=parent.trial)
    try:
        return model.compose_page(request, random.Random(seed))
    except NoGrammar as none:
        raise TaskError(f"no model can be asked for this kernel: {none}") from None
    except TooLong as least:
        most = model.health.page_tokens
        raise TaskError(f"the shortest prompt for this kernel has {least.tokens} tokens, {most} are allowed") from None


def _print_refusal(verdict: Verdict) -> int:
    print(f"no page for a kernel that is refused: {referee.explain(verdict)}", file=sys.stderr)
    return 1
