"""Proposers by name: typed edits, a model, or the mix of both, opened with budgets and bound to a run's record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from kernelsearch.core.errors import ModelError
from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.propose import engines
from kernelsearch.propose.contract import Proposer
from kernelsearch.propose.engines.recorded_answers import RecordingEngine
from kernelsearch.propose.grammar import NoGrammar
from kernelsearch.propose.mix import ProposerMix, RunLimits
from kernelsearch.propose.models import prompt
from kernelsearch.propose.models.lessons import load_lessons
from kernelsearch.propose.models.model import ModelProposer
from kernelsearch.propose.models.plan import IdeaPlan
from kernelsearch.propose.models.roles import CRITIC, PLANNER, Adviser
from kernelsearch.propose.models.sections import TooLong
from kernelsearch.propose.models.shared import WHOLE_KERNELS, Models, ModelSettings
from kernelsearch.propose.models.spending import Budget, Ledger, Price, format_count
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.record import plan_rows, queries
from kernelsearch.record.rows import Run, task_row
from kernelsearch.record.store import Store
from kernelsearch.verify import gate

EDITS, MIX = "edits", "mix"
USUAL_ANSWER = 140
USUAL_KERNEL = 4000
"""Tokens of a typical answer, for the estimate before a run; that of a whole kernel is a guess, thinking included."""

Say = Callable[[str], None]
MachineFacts = prompt.PromptDevice


@dataclass(frozen=True)
class ModelOptions:
    """Options of the command line for who proposes.

    proposer is empty (the mix when a model is named, else typed edits), `edits`, `mix`, or the spec of one engine;
    models are specs for the mix, each of one engine, or of several in roles (`planner=SPEC,writer=SPEC,critic=SPEC`);
    price is in US dollars for a million tokens, in and out; record is a file for answers.
    """

    proposer: str = ""
    models: tuple[str, ...] = ()
    max_tokens: int | None = None
    max_usd: float | None = None
    price: tuple[float, float] | None = None
    record: str | None = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    whole: ModelSettings = WHOLE_KERNELS

    def __post_init__(self) -> None:
        if self.proposer == MIX and not self.models:
            raise ModelError("--proposer mix needs a model: name one with --model, as openai:http://HOST:PORT/v1#MODEL")
        if self.models and self.proposer not in ("", MIX):
            raise ModelError(f"--model belongs to --proposer mix, not to {self.proposer}")
        if self.max_usd is not None and self.price is None:
            raise ModelError("--max-usd needs --price IN OUT, in US dollars for a million tokens")
        if not self.specs and (self.max_usd is not None or self.max_tokens is not None or self.record):
            raise ModelError("--max-tokens, --max-usd and --record speak of a model: name one with --model")
        for spec in self.specs:
            kind = engines.parse_spec(spec).kind
            if missing := engines.ENGINES[kind].missing:
                raise ModelError(engines.describe_missing(kind, missing))

    @property
    def roles(self) -> tuple[tuple[str, str], ...]:
        """The role and the spec of each engine. Raises ModelError as `specs` does."""
        named = [one for text in self._texts for one in engines.split_roles(text)]
        counts = Counter(role for role, _ in named)
        if twice := [r for r in (PLANNER, CRITIC) if counts[r] > 1]:
            raise ModelError(f"a run has one {twice[0]}, and --model names {counts[twice[0]]}")
        if named and not counts[engines.WRITER]:
            raise ModelError("--model names no writer: add writer=SPEC, or give one engine that plays all roles")
        return tuple(named)

    @property
    def specs(self) -> tuple[str, ...]:
        """The engines' specs; none for typed edits alone. Raises ModelError for a proposer that is unknown."""
        return tuple(spec for _, spec in self.roles)

    @property
    def _texts(self) -> tuple[str, ...]:
        if self.proposer in ("", MIX):
            return self.models
        if self.proposer == EDITS:
            return ()
        (_, first), *_ = engines.split_roles(self.proposer)
        if ":" not in first or engines.find_kind(first.partition(":")[0]) is None:
            forms = ", ".join(k.form for k in engines.ENGINES.values())
            raise ModelError(f"unknown proposer {self.proposer!r}: one of {EDITS}, {MIX}, {forms}")
        return (self.proposer,)

    @property
    def name(self) -> str:
        """The proposer's name in a run's record."""
        if not self.specs:
            return EDITS
        return self.proposer if self.proposer not in ("", MIX) else f"{MIX} {' '.join(self.models)}"

    @property
    def budget(self) -> Budget:
        return Budget(self.max_tokens, self.max_usd, Price(*(self.price or (0.0, 0.0))))


def open_proposer(
    options: ModelOptions,
    place: MachineFacts,
    limits: RunLimits,
    say: Say,
    edits: Proposer | None = None,
    make: Callable[[str], engines.Engine] = engines.open_engine,
) -> Proposer:
    """Makes the proposer and loads its engines. Raises ModelError. Call `close` in the end.

    edits makes the typed edits, for runs that share one; make gives the engine of a spec.
    """
    if not options.specs:
        return edits or TypedEdits()
    shared = Models(gate.check, place, Ledger(options.budget), say=say)
    names: dict[str, int] = {}
    models = []
    for role, spec in options.roles:
        engine = make(spec)
        if options.record:
            engine = cast(engines.Engine, RecordingEngine(engine, options.record))
        if role != engines.WRITER:
            adviser = Adviser(engine, role, shared.ledger, lambda text: shared.say(text), shared.plan.note)
            setattr(shared, role, adviser)
            continue
        names[engine.label] = names.get(engine.label, 0) + 1
        name = engine.label if names[engine.label] == 1 else f"{engine.label}-{names[engine.label]}"
        if engine.answers != "edit":
            models.append(ModelProposer(engine, shared, options.whole, name, whole=True))
        if engine.answers != "kernel":
            models.append(ModelProposer(engine, shared, options.settings, name))
    return ProposerMix(models, shared, limits, alone=options.proposer not in ("", MIX), edits=edits)


def bind_record(proposer: Proposer, store: Store, run: Run, resumed: Run | None) -> None:
    """Stores the calls of a run from now on; a resumed run first gets its own back.

    Runs of a study know nothing of each other: they have no plan and no lessons out of the record.
    """
    if not isinstance(proposer, ProposerMix):
        return
    if "study" not in run.facts.settings:
        recall_plan(proposer.shared.plan, store, run.task, run.facts.target, run.started)
        proposer.shared.lessons += tuple(load_lessons(store, run.task))
    if resumed is not None:
        proposer.restore(store.load_calls(resumed.id), len(store.load_trials(resumed.id)))
    proposer.shared.ledger.keep = lambda call: store.add_call(run, call)
    proposer.shared.plan.keep = partial(plan_rows.add_idea, store, run.task, run.facts.target, run.started)


def recall_plan(plan: IdeaPlan, store: Store, task: str, device: str, without: str | None = None) -> IdeaPlan:
    """The plan with what the record has of a task (its digest) on a device, without a run that began then."""
    with store.explain_contents():
        ideas = plan_rows.load_ideas(store, task, device, without)
        plan.recall(ideas, plan_rows.load_tries(store, task, device, without))
    return plan


def edit_plan(store: Store, task: TaskFacts, device: str, text: str, author: str) -> IdeaPlan:
    """The plan of a task after the edits in a text, which are stored."""
    with store.transaction():
        store.add("task", task_row(task), "OR IGNORE")
    keep = partial(plan_rows.add_idea, store, task.digest, device, "")
    plan = recall_plan(IdeaPlan(keep=keep), store, task.digest, device)
    plan.edit(text, author)
    return plan


def estimate_cost(proposer: Proposer, task: TaskFacts, trials: int) -> str:
    """The most that the models may cost, in a sentence, from the seed's prompt; empty without a model."""
    if not isinstance(proposer, ProposerMix):
        return ""
    model, settings = proposer.models[0], proposer.models[0].settings
    form = model.make_form(Kernel.parse(task.seed), task)
    if isinstance(form, NoGrammar):
        return ""
    try:
        text = model.write_page(prompt.PromptPage(form, task, proposer.shared.device)).text
    except TooLong as least:
        most = settings.page_tokens
        return f"the seed's prompt has {least.tokens} tokens and {most} are allowed: no model will be asked"
    usual = USUAL_KERNEL if model.whole else USUAL_ANSWER
    tokens_in, tokens_out = model.engine.count(model.system + text), settings.samples * usual
    calls = max(1, trials // 2)
    budget = proposer.shared.ledger.budget
    usd = budget.price.of(calls * tokens_in, calls * tokens_out)
    cost = f", ${usd:.2f}" if usd else ""
    sentence = (
        f"at most about {calls} calls of {format_count(tokens_in)} tokens in and {format_count(tokens_out)} out: "
        f"{format_count(calls * (tokens_in + tokens_out))} tokens{cost}"
    )
    stop = [f"{format_count(budget.max_tokens)} tokens"] if budget.max_tokens else []
    stop += [f"${budget.max_usd:g}"] if budget.max_usd else []
    return sentence + (f"; it stops at {' or '.join(stop)}" if stop else "")


def load_machine_facts(store: Store | None, task: TaskFacts, where: str, target: Target | None) -> MachineFacts:
    """The machine as a page shows it, with what the record knows of it: baselines of the task, the copy bandwidth."""
    if store is None:
        return MachineFacts(where, target)
    baselines: dict[str, dict[str, float]] = {}
    for row in queries.newest_baselines(store, task.digest, where):
        if row["time_us"] and row["name"] != "seed":
            baselines.setdefault(row["shape"], {})[row["name"]] = row["time_us"]
    return MachineFacts(where, target, store.load_ceilings(where).get("copy_gbps"), baselines)


def as_facts(options: ModelOptions) -> dict[str, Any]:
    """Settings that must match on resume."""
    if not options.specs:
        return {}
    s = options.settings
    edits = dict(samples=s.samples, answer_tokens=s.max_tokens, page_tokens=s.page_tokens, temperature=s.temperature)
    return {**edits, "whole": vars(options.whole)}
