"""One attempt at one shape by the confirmed protocol, from the driver's side.

A contestant that spoils the `confirm` worker raises `ProcessLost`, and `confirmation` starts a fresh worker without it.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kernelsearch.core.errors import WorkerError
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Config, ShapeFact, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing import confirm_rules as protocol
from kernelsearch.measure.timing import paired_statistics as paired
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.measure.timing.nvml import Reading
from kernelsearch.trial.bench import JUDGE_LIMIT_S, Bench
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.rejection import Rejection
from kernelsearch.trial.run_jobs import ask_with_binaries
from kernelsearch.worker.messages import confirm_jobs, jobs
from kernelsearch.worker.processes.pool import ask_trusted
from kernelsearch.worker.processes.workers import Worker, WorkerDied, WorkerHung

CONTENTS = 3
ENTER_LIMIT_S = 120.0
COMPILE_LIMIT_S = 600.0
PEER_LIMIT_S = 300.0
"""Seconds for a library's baseline to be imported, compiled and tuned."""
BLOCKS_LIMIT_S = 120.0
SECONDS = 10.0
"""Seconds of sampling one shape, unless the caller gives another limit; preparing and judging come on top."""

ALONE = 24
"""Calls of each contestant by itself, to find out which one spoils the process."""


@dataclass(frozen=True)
class Contestant:
    """A kernel with its config, under the name that reports use. The seed's name is `seed`.

    beside: it is timed in the others' blocks, but decides nothing, is no baseline, and nothing is claimed for it.
    """

    name: str
    kernel: Kernel
    config: Config
    beside: bool = False


@dataclass(frozen=True)
class ConfirmationPlan:
    """How to confirm: seconds of sampling per shape, the level at which all the candidates' intervals hold together."""

    seconds: float = SECONDS
    level: float = paired.LEVEL
    seed: int = field(default_factory=lambda: secrets.randbits(30))


@dataclass(frozen=True)
class ConfirmedShape:
    """The results at one shape: the blocks that count, failures, verdicts on candidates, other clocks, peak memory.

    refused: why the values of a timed baseline are refused: it is no rival, because it does not compute what was asked.
    """

    shape: ShapeFact
    kept: protocol.ValidBlocks
    candidates: tuple[str, ...]
    fastest: str | None = None
    failures: Mapping[str, str] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)
    clocks: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    peaks: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def time(self, name: str) -> protocol.ContestantTime | None:
        return protocol.time_of(self.kept.blocks, name)

    def baselines(self) -> tuple[str, ...]:
        """The baselines that were timed, the fastest first, by their medians."""
        others = {*self.candidates, *self.beside, *self.refused, protocol.CONTROL}
        timed = {n for block in self.kept.blocks for n, _ in block} - others
        timed |= {SEED} & set(self.candidates)
        times = {n: own.time_us for n in timed if (own := self.time(n))}
        return tuple(sorted(times, key=lambda n: times[n]))

    def interval(self, candidate: str, other: str, level: float) -> paired.Interval | None:
        return paired.bootstrap_interval([protocol.log_ratios_of(self.kept.blocks, candidate, other)], level)

    def control(self) -> paired.Interval | None:
        """The A/A control: the fastest baseline against a second copy of itself."""
        return self.interval(protocol.CONTROL, self.fastest, paired.LEVEL) if self.fastest else None


class ProcessLost(Exception):
    """The process died, hung or lost its CUDA context over this contestant; an empty name: over one of several."""

    def __init__(self, name: str, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.name, self.verdict = name, verdict


def ask_session(worker: Worker, job: object, limit_s: float, name: str = "") -> object:
    """The worker's answer. Raises ProcessLost, or WorkerError when the fault is nobody's."""
    try:
        answer = worker.ask(job, limit_s)
    except WorkerHung:
        raise ProcessLost(name, Verdict(Word.TIMEOUT, "confirm", f"did not finish within {limit_s:g} s")) from None
    except WorkerDied as died:
        raise ProcessLost(name, Verdict(Word.CRASH, "confirm", f"the worker died: {died}")) from None
    if isinstance(answer, jobs.JobFailure):
        if answer.kind == confirm_jobs.CRASHED:
            worker.kill()
            raise ProcessLost(name, Verdict(Word.CRASH, "confirm", answer.message))
        raise WorkerError(answer.message)
    return answer


@dataclass
class ShapeSession:
    """The confirmation of one shape: `run` is one attempt in one process, the other public methods are its steps.

    failures and verdicts stay from one attempt to the next, which goes on without those that failed.
    """

    bench: Bench
    plan: ConfirmationPlan
    say: Say
    facts: ShapeFact
    everyone: Sequence[Contestant]
    failures: dict[str, str] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def run(self, worker: Worker, *, alone: bool = False) -> ConfirmedShape:
        """The results at the shape. alone: calls each contestant by itself first, to name the one that fails."""
        baselines = self.open(worker)
        for contestant in self.contestants:
            self.enter_kernel(contestant)
        for name in baselines:
            if name not in self.failures:
                self.enter_baseline(name)
        beside = tuple(c.name for c in self.everyone if c.beside)
        entered = tuple(c.name for c in self.contestants if c.name in self.pilot and not c.beside)
        candidates = tuple(n for n in entered if n != SEED) or entered
        rivals = {n: t for n, t in self.pilot.items() if n not in (*candidates, *beside, *self.refused) or n == SEED}
        fastest = min(rivals, key=lambda n: rivals[n], default=None)
        nothing = protocol.ValidBlocks(())
        dtypes = protocol.list_dtypes(self.bench.facts, self.facts.key)
        shape = ConfirmedShape(
            self.facts, nothing, candidates, None, self.failures, self.verdicts, dtypes=dtypes, beside=beside
        )
        if not candidates or fastest is None:
            return shape
        if alone:
            for name in sorted(self.pilot, key=lambda n: n not in candidates):
                self._ask(confirm_jobs.Blocks(((name,) * ALONE,)), BLOCKS_LIMIT_S, name)
        self.sample(candidates, fastest)
        kept = protocol.drop_spoiled(self.blocks, self.edges)
        judged = {name: self._judge_candidate(name) for name in candidates}
        clocks = {name: self._check_clocks(name, kept) for name in candidates}
        notes = tuple(dict.fromkeys(self.notes))
        shape = replace(shape, kept=kept, fastest=fastest, peaks=self.peaks, refused=self.refused)
        return replace(shape, judged=judged, clocks=clocks, notes=notes)

    def leave_out(self, name: str, verdict: Verdict) -> None:
        """Reports a contestant, with its verdict, or a baseline as failed."""
        self.failures[name] = verdict.reason
        if name in {c.name for c in self.everyone}:
            self.verdicts[name] = verdict

    # ------------------------------------------------------------ getting ready

    def open(self, worker: Worker) -> tuple[str, ...]:
        """Begins an attempt and makes the inputs; returns the baselines that exist here besides the seed."""
        self.worker = worker
        self.contestants = [c for c in self.everyone if c.name not in self.failures]
        self.rng = random.Random(f"{self.plan.seed}/{self.facts.key}")
        self.pilot: dict[str, float] = {}
        self.peaks: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.blocks: list[protocol.Block] = []
        self.edges: list[tuple[Reading | None, Reading | None]] = []
        self.notes: list[str] = []
        one_set = self.bench.facts.form == "kernelbench"  # its weights come from the same seed as its inputs
        seeds = tuple(self.rng.randrange(1 << 30) for _ in range(CONTENTS))
        job = confirm_jobs.OpenShape(self.bench.path, self.facts.key, seeds, one_set)
        try:
            opened = self._ask(job, COMPILE_LIMIT_S, "")
        except WorkerError as error:
            raise WorkerError(f"{self.facts.label}: {error}") from None
        assert isinstance(opened, confirm_jobs.OpenedShape)
        self.notes += opened.notes
        self.peers = opened.peers
        return opened.baselines

    def enter_kernel(self, contestant: Contestant) -> None:
        name = contestant.name
        self.say(f"{self.facts.label}: {name}")
        candidate = BoundCandidate(self.bench, contestant.kernel, contestant.config)
        message = candidate.message(code=False)
        try:
            answer = ask_with_binaries(
                lambda job: self._ask(job, ENTER_LIMIT_S, name),
                candidate.compile((self.facts.key,)),
                lambda binaries: confirm_jobs.Enter(name, message, dict(binaries), not contestant.beside),
                candidate.build,
            )
        except Rejection as rejected:
            answer = rejected.verdict
        if isinstance(answer, Verdict):
            self.leave_out(name, answer)
        else:
            self._take_entry(name, answer)

    def enter_baseline(self, name: str) -> None:
        """Prepares a baseline. The values of one that the task names are judged too: it is other people's code."""
        self.say(f"{self.facts.label}: {name}")
        judged = name in self.peers
        limit_s = PEER_LIMIT_S if judged else COMPILE_LIMIT_S
        self._take_entry(name, self._ask(confirm_jobs.Enter(name, judged=judged), limit_s, name))
        if judged and name in self.pilot and (refusal := self._judge_outputs(name)[1]):
            self.refused[name] = refusal.reason

    def _take_entry(self, name: str, answer: object) -> None:
        assert isinstance(answer, confirm_jobs.EnteredContestant)
        if answer.verdict is not None:
            if answer.verdict.detail.get("poisoned"):
                self.worker.kill()
                raise ProcessLost(name, answer.verdict)
            self.leave_out(name, answer.verdict)
        elif answer.failure:
            self.failures[name] = answer.failure
        else:
            self.pilot[name], self.peaks[name] = answer.pilot_us, answer.peak_bytes

    # ------------------------------------------------------------ sampling

    def sample(self, candidates: tuple[str, ...], fastest: str) -> None:
        """Times blocks of all contestants and the A/A control until the intervals are narrow enough."""
        names = [*self.pilot, protocol.CONTROL]
        slow = [n for n in protocol.find_slow(self.pilot) if n not in candidates and n != fastest]
        same = {protocol.CONTROL: fastest}
        deciding = [(c, fastest) for c in candidates if c != fastest] + [(protocol.CONTROL, fastest)]
        deadline = time.monotonic() + self.plan.seconds
        number = 0
        self.say(f"{self.facts.label}: timing {len(self.pilot)} contestants")
        while number < protocol.MAX_BLOCKS and (number < protocol.MIN_BLOCKS or time.monotonic() < deadline):
            if number and time.monotonic() > deadline + 3 * self.plan.seconds:
                break
            orders = tuple(protocol.draw_order(names, slow, number + i, self.rng) for i in range(protocol.CHUNK))
            answer = self._ask(confirm_jobs.Blocks(orders, same), BLOCKS_LIMIT_S, "")
            assert isinstance(answer, confirm_jobs.Sampled)
            self._take(orders, answer)
            number += len(orders)
            if number >= protocol.MIN_BLOCKS:
                blocks = protocol.drop_spoiled(self.blocks, self.edges).blocks
                if protocol.are_narrow(blocks, deciding, self.plan.level):
                    break

    def _take(self, orders: Sequence[tuple[str, ...]], answer: confirm_jobs.Sampled) -> None:
        for order, times in zip(orders, answer.times_us, strict=True):
            self.blocks.append(tuple(zip(order, times, strict=True)))
        readings = [Reading(*e) if e is not None else None for e in answer.edges]
        self.edges += pairwise(readings)
        if answer.why:
            self.notes.append(answer.why)
        self.notes += [f"{name}: in some samples the GPU waited for the host" for name in answer.late]
        for name in answer.changed:
            self.verdicts[name] = Verdict(Word.MEMORY, "confirm", "a timed call changed an input", depth="full")

    # ------------------------------------------------------------ afterwards

    def _judge_candidate(self, name: str) -> int:
        """How many of a candidate's timed outputs the judge saw, or found equal bit for bit to one that it saw."""
        sampled, refusal = self._judge_outputs(name)
        if refusal:
            self.verdicts.setdefault(name, refusal)
        return sampled

    def _judge_outputs(self, name: str) -> tuple[int, Verdict | None]:
        """(How many outputs of a contestant stand for themselves or equal ones that were judged, the first refusal)."""
        handed = self._ask(confirm_jobs.Outputs(name), ENTER_LIMIT_S, name)
        assert isinstance(handed, confirm_jobs.Handed)
        cases = [(jobs.JudgedCase(self.facts.key, "randn", seed), ran) for seed, ran in handed.outputs]
        verdicts = [ask_trusted(self.bench.judge, jobs.JudgeSeeded(*judged), JUDGE_LIMIT_S) for judged in cases]
        return handed.sampled, next((v for v in verdicts if not v.accepted), None)

    def _check_clocks(self, name: str, kept: protocol.ValidBlocks) -> tuple[float, float | None]:
        """Wall and kernel time per call; a verdict when the event time is smaller than they allow, or impossible."""
        event = protocol.time_of(kept.blocks, name) or protocol.time_of(self.blocks, name)
        assert event is not None  # `sample` has timed it
        clocked = self._ask(confirm_jobs.Clocks(name, event.time_us), ENTER_LIMIT_S, name)
        assert isinstance(clocked, confirm_jobs.Clocked)
        wrong = protocol.find_disagreement(event.time_us, clocked.wall_us, clocked.kernel_us)
        if slow := protocol.explain_slow_host(event.time_us, clocked.wall_us, clocked.kernel_us):
            self.notes.append(f"{name}: {slow}")
        facts = self.bench.facts
        wrong = protocol.explain_impossible(self.bench.target, facts, self.facts.key, event.time_us) or wrong
        if wrong:
            self.verdicts.setdefault(name, Verdict(Word.TIMING, "confirm", wrong, depth="full"))
        return clocked.wall_us, clocked.kernel_us

    def _ask(self, job: object, limit_s: float, name: str) -> object:
        return ask_session(self.worker, job, limit_s, name)
