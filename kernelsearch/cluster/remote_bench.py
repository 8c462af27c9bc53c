"""A task opened on every worker of a cluster: what the driver uses in place of a bench and its evaluation."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from kernelsearch.cluster.cards import DRIFT, Cards
from kernelsearch.cluster.crew import Crew, Station, StationLost
from kernelsearch.cluster.holder import PlacedTask, SeedConfig, TaskThere, describe_kernel
from kernelsearch.cluster.ray_actors import Cluster
from kernelsearch.core import formats
from kernelsearch.core.errors import ClusterError, IsolationError, TaskError, WorkerError
from kernelsearch.core.slow_steps import Say, report_progress
from kernelsearch.core.types import Config, Measurement, Outcome, ShapeFact, TaskFacts, Trial, Verdict
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.timing.device import LiveDevice
from kernelsearch.tasks.module import explain_missing_file
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan, ConfirmedShape, Contestant
from kernelsearch.trial.evaluation import Evaluation
from kernelsearch.trial.evaluator import TaskEvaluator

AGREE = "all workers must have one model of GPU: give --device NAME to choose one"


@dataclass
class RemoteBench:
    """A task opened on every worker, with the facts that all of them agree on. Closing it closes the workers' benches.

    cards is None where nothing is timed, or the seed is wrong; ceilings are as in a bench.
    """

    path: str
    placed: PlacedTask
    opened: TaskThere
    facts: TaskFacts
    crew: Crew
    layers: dict[str, tuple[str, ...]]
    cards: Cards | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def open(
        cls, path: str, target: str, cluster: Cluster, crew: Crew, device: str = "", say: Say | None = None
    ) -> RemoteBench:
        """Opens the task on all workers; those with another model of GPU than `device` are ended.

        Raises TaskError, TargetError or ClusterError.
        """
        if not os.path.exists(path):
            raise TaskError(explain_missing_file(path))
        compilers = min(p.station.compilers for p in crew.posts)
        placed = PlacedTask(cluster.files[path], target, compilers, secrets.randbits(30))
        with report_progress(say, f"opening {path} on {formats.format_count(len(crew.posts), 'worker')}"):
            try:
                answers = crew.ask_all("open", placed)
            except TaskError as error:
                if "No module named" in str(error) and not cluster.local:
                    more = (
                        "a worker does not have that module: put it beside the task file, or install it on every node"
                    )
                    raise TaskError(f"{error}; {more}") from None
                raise
        if not answers:
            raise WorkerError(crew.explain_absence())
        chosen = choose_model([(s, o.device.name if o.device else "") for s, o in answers], device)
        for station, _ in answers:
            if station not in chosen:
                crew.set_aside(station, f"it is no {device}")
        kept = [(s, o) for s, o in answers if s in chosen]
        opened = kept[0][1]
        for station, card in crew.ask_all("read_card"):
            station.node = card["node"]
        facts = replace(opened.facts, path=os.path.abspath(path))
        layers = {s.node: o.missing_layers for s, o in kept}
        bench = cls(path, placed, opened, facts, crew, layers)
        if opened.device is not None:
            bench.cards = Cards()
            bench.greet([station for station, _ in kept])
        crew.on_return.append(bench.welcome)
        return bench

    def greet(self, stations: Sequence[Station]) -> None:
        """Times the seed on every card; one on which it is not right, though it is on others, is set aside."""

        wrong: dict[Station, str] = {}

        def greet_one(station: Station) -> None:
            try:
                self.welcome(station)
            except StationLost as lost:
                self.crew.lose(station, str(lost))
            except WorkerError as error:
                wrong[station] = str(error)

        with ThreadPoolExecutor(len(stations)) as pool:
            list(pool.map(greet_one, stations))
        if self.cards is not None and not self.cards.by_station:
            self.cards = None  # the search says what is wrong with the seed
            return
        for station, why in wrong.items():
            self.crew.set_aside(station, why)

    def welcome(self, station: Station) -> None:
        """Opens the task on a worker, and times the seed on its card. Raises WorkerError where it is wrong there."""
        station.ask("open", self.placed)
        if self.cards is None:
            return
        seed = self._time_seed(station)
        if seed is None:
            raise WorkerError("the task's own kernel is not right there")
        self.cards.add(station.name, _name_card(station.ask("read_card")), seed)

    def go_on(self, trials: Sequence[Trial]) -> None:
        """Tells times as the run did that goes on: the first of its trials is the seed."""
        if self.cards is not None and trials and trials[0].outcome.measurement is not None:
            self.cards.unit = trials[0].outcome.measurement.by_shape

    def look_at_drift(self, station: Station) -> None:
        """Times the seed again on a worker's card; one whose times have moved, twice, is set aside."""
        drift, cards = 0.0, self.cards
        assert cards is not None
        for _ in range(2):
            seed = self._time_seed(station, cards.by_station[station.name].first)
            drift = cards.find_drift(station.name, seed) if seed is not None else 0.0
            if abs(drift) <= DRIFT:
                return
        self.crew.set_aside(station, f"its time of the task's own kernel moved by {drift:+.0%} since the start")

    def _time_seed(self, station: Station, rival: Measurement | None = None) -> Measurement | None:
        """The seed's times on a worker's card, judged at full depth unless there is a rival; None if it is wrong."""
        shapes, own = tuple(s.key for s in self.facts.shapes), self.own
        given = self.placed, shapes, own, "evaluate", self.seed, own.config, rival
        return station.ask("ask_evaluation", *given).measurement

    @property
    def own(self) -> SeedConfig:
        return SeedConfig(dict(self.facts.config), self.facts.tuned)

    @cached_property
    def seed(self) -> Kernel:
        return Kernel.parse(self.facts.seed)

    @property
    def device(self) -> LiveDevice | None:
        return self.opened.device

    @property
    def target(self) -> Target:
        return self.opened.target

    @property
    def where(self) -> str:
        """The name of the device that measures, or of the target that times are estimated for."""
        return self.device.name if self.device else self.target.name

    def check_isolation(self, say: Say, required: bool) -> None:
        """Says for each node which isolation layers are missing. Raises IsolationError if all are required."""
        missing = "; ".join(f"{name}: {', '.join(layers)}" for name, layers in self.layers.items() if layers)
        if missing and required:
            raise IsolationError(f"--require-isolation: {missing}; `kernelsearch doctor --ray` shows every layer")
        if missing:
            say(f"note: candidates are not fully isolated: {missing}; --require-isolation refuses that")

    def find_unjudgeable(self) -> tuple[str, ...]:
        return self.crew.ask("task", "ask_bench", lambda station: (self.placed, "find_unjudgeable"))

    @property
    def lanes(self) -> int:
        """How many candidates can be compiled side by side."""
        return self.crew.room

    @property
    def waits(self) -> bool:
        return True

    def close(self) -> None:
        self.crew.on_return.remove(self.welcome)
        self.crew.ask_all("close", self.placed)


def choose_model(stations: Sequence[tuple[Station, str]], device: str) -> list[Station]:
    """The workers with the asked model of GPU (all, if there is one model only). Raises ClusterError."""
    models = list(dict.fromkeys(name for _, name in stations))
    if device:
        chosen = [s for s, name in stations if name and device.lower() in name.lower()]
        if not chosen:
            raise ClusterError(f"no worker has a {device}: they have {', '.join(filter(None, models)) or 'no GPU'}")
        models = list(dict.fromkeys(name for s, name in stations if s in chosen))
        stations = [(s, name) for s, name in stations if s in chosen]
    if len(models) > 1:
        have = "; ".join(
            f"{name or 'no GPU'}: {', '.join(s.name for s, n in stations if n == name)}" for name in models
        )
        raise ClusterError(f"{AGREE} ({have})")
    return [s for s, _ in stations]


def _name_card(card: Mapping[str, Any]) -> str:
    return f"{card['gpu']} of {card['node']}"


class RemoteEvaluation(TaskEvaluator):
    """Evaluates candidates on the workers; the same methods as `Evaluation`, for facts narrowed to some shapes."""

    def __init__(self, bench: RemoteBench, facts: TaskFacts) -> None:
        self.bench, self.shapes = bench, tuple(s.key for s in facts.shapes)
        self.mode, self.protocol = bench.opened.mode, bench.opened.protocol

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        bench = self.bench

        def arguments(station: Station) -> tuple[Any, ...]:
            rival = bench.cards.from_unit(station.name, incumbent) if bench.cards else incumbent
            return bench.placed, self.shapes, bench.own, "evaluate", kernel, config, rival

        return bench.crew.ask(describe_kernel(kernel, config), "ask_evaluation", arguments, on=self._as_recorded)

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        return self._ask(kernel, config, "complete", kernel, config, outcome)

    def work(self, kernel: Kernel, config: Config) -> str:
        return self._ask(kernel, config, "work", kernel, config) if self.bench.device else ""

    def verify(self, kernel: Kernel, config: Config) -> Verdict:
        return self._ask(kernel, config, "verify", kernel, config)

    def estimate(self, kernel: Kernel, config: Config) -> Measurement | None:
        return self._ask(kernel, config, "estimate", kernel, config)

    def time_baseline(self, name: str, shape: str) -> tuple[float, ...]:
        return self._ask(self.bench.seed, {}, "time_baseline", name, shape)

    def _ask(self, kernel: Kernel, config: Config, method: str, *given: Any) -> Any:
        """The answer of a method of the evaluation of the worker that has this candidate."""
        whole = self.bench.placed, self.shapes, self.bench.own, method, *given
        return self.bench.crew.ask(describe_kernel(kernel, config), "ask_evaluation", lambda station: whole)

    def _as_recorded(self, station: Station, outcome: Outcome) -> Outcome:
        """The outcome with times in the run's unit, and the card named."""
        bench = self.bench
        if bench.cards is None or outcome.measurement is None:
            return outcome
        measurement = bench.cards.to_unit(station.name, outcome.measurement, station.ask("read_card"))
        if bench.cards.is_due(station.name):
            bench.look_at_drift(station)
        return replace(outcome, measurement=measurement)


class RemoteConfirmation(Confirmation):
    """Confirms on one worker's card, which every shape's notes name; the same methods as `Confirmation`."""

    def __init__(self, bench: RemoteBench, plan: ConfirmationPlan, say: Say) -> None:
        self.remote, self.bench, self.plan, self.say = bench, cast(Bench, bench), plan, say

    def __exit__(self, *_: object) -> None:
        self.remote.crew.ask_all("end_confirmation")

    def prepare(self) -> None:
        """Nothing: the worker prepares itself at the first question."""

    def measure_ceilings(self) -> dict[str, float]:
        return self._ask("measure_ceilings")[0]

    def compile_ahead(self, shapes: Sequence[ShapeFact]) -> None:
        self._ask("compile_ahead", shapes)

    def confirm_shape(self, shape: ShapeFact, contestants: Sequence[Contestant]) -> ConfirmedShape:
        confirmed, card = self._ask("confirm_shape", shape, contestants)
        return replace(confirmed, notes=(*confirmed.notes, f"timed on {_name_card(card)} at {card.get('sm_mhz')} MHz"))

    def _ask(self, method: str, *args: Any) -> tuple[Any, Mapping[str, Any]]:
        bench = self.remote
        given = bench.placed, bench.own, self.plan, method, *args
        answer, said, card = bench.crew.ask("confirmation", "ask_confirmation", lambda station: given)
        for text in said:
            self.say(text)
        return answer, card


def make_evaluation(bench: Bench | RemoteBench, facts: TaskFacts) -> Evaluation | RemoteEvaluation:
    """An evaluation that times the shapes of these facts, wherever the bench is."""
    return RemoteEvaluation(bench, facts) if isinstance(bench, RemoteBench) else Evaluation.of(bench, facts)


def make_confirmation(bench: Bench | RemoteBench, plan: ConfirmationPlan, say: Say) -> Confirmation:
    """The confirmation of a bench's finalists, wherever it is."""
    return RemoteConfirmation(bench, plan, say) if isinstance(bench, RemoteBench) else Confirmation(bench, plan, say)
