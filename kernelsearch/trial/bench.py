"""A task opened for evaluation: its facts, its target, and the pools of workers that serve it."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from kernelsearch import __version__
from kernelsearch.compile.build import Binary, check_binary
from kernelsearch.core.errors import IsolationError, TaskError, WorkerError
from kernelsearch.core.formats import format_config
from kernelsearch.core.slow_steps import Say, report_progress
from kernelsearch.core.types import Config, DescriptorFact, LaunchFact, TaskFacts, TensorFact, Verdict, Word, config_key
from kernelsearch.kernel import targets
from kernelsearch.kernel.launch import BoundLaunch, LaunchError, Specialisation, bind_launch
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.target_space import fit_to_target
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.timing.device import AMD_CARD, LiveDevice, find_amd_card, find_live_device
from kernelsearch.measure.timing.turns import GpuTurn
from kernelsearch.tasks.module import SLOW_REFERENCE, explain_missing_file
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial.compile_cache import CompileCache
from kernelsearch.trial.run_jobs import make_prover
from kernelsearch.trial.shared_state import Once
from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Pool, Workplace, ask_trusted
from kernelsearch.worker.processes.workers import Spent, WorkerDied, WorkerHung

COMPILE_LIMIT_S = 20.0
SEED_COMPILE_LIMIT_S = 100.0
"""Processor time of one build; the user's own kernel at its own config gets more: products in float32 take 14 s."""
OPEN_LIMIT_S = 120.0
"""For a task file's own import, its inputs and its reference; a slower file counts as an endless loop."""

JUDGE_LIMIT_S, MOST_NAMED = 300.0, 3
FEW_COMPILERS = 2
"""With no more compilers than this, none is free for builds that are not needed yet."""
EVALUATORS_BESIDE = 8
"""Evaluators at most beside a GPU, where compilers and other benches need the processors too."""


def choose_target(name: str) -> tuple[Target, LiveDevice | None]:
    """The target of that name, and the live device if candidates run on it; `auto` is the device, else h100."""
    device = find_live_device()
    if name == "auto":
        if device is None:
            return targets.target_for_gfx(find_amd_card()) or targets.target_by_name("h100"), None
        model = targets.target_for_device(device.name, device.capability)
        return replace(model, num_sms=device.num_sms), device
    target = targets.target_by_name(name)
    if device is not None and targets.target_for_device(device.name, device.capability).name == name:
        return replace(target, num_sms=device.num_sms), device
    return target, None


def versions() -> dict[str, str]:
    """The versions that decide what a kernel compiles to and how it is judged."""
    return {"kernelsearch": __version__, **{name: metadata.version(name) for name in ("triton", "torch", "numpy")}}


@dataclass
class Bench:
    """A task with its target and its workers. As a context manager it stops the workers at the end.

    runners is None without a GPU, evaluators with one. secret seeds the judge's inputs; compiled keeps the compilers'
    answers beyond this process; ceilings are this device's measured rates, empty where they are not known; right_on has
    the verdicts on the seed at sizes that the task does not name; how_far says which is judged now; spent has what the
    seed took, by what was asked; labels has the sizes of judged shapes; once keeps what may be used again.
    """

    path: str
    target: Target
    device: LiveDevice | None
    facts: TaskFacts
    workplace: Workplace
    judge: Pool
    compilers: Pool
    evaluators: Pool | None = None
    runners: Pool | None = None
    secret: int = field(default_factory=lambda: secrets.randbits(30))
    gpu: AbstractContextManager = field(default_factory=threading.Lock)
    compiled: CompileCache | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)
    right_on: dict[jobs.JudgedCase, Verdict] = field(default_factory=dict)
    how_far: str = ""
    spent: dict[Hashable, Spent] = field(default_factory=dict)
    say: Say | None = None
    labels: dict[str, str] = field(default_factory=dict)
    once: Once = field(default_factory=Once)
    _built: dict[str, Future] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _grids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _described: dict[str, LaunchFact] = field(default_factory=dict)
    _inputs: dict[jobs.JudgedCase, tuple[Any, ...]] = field(default_factory=dict)
    _cases: dict[tuple[str, int, int | None], jobs.JudgedCases] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        path: str | Path,
        target: str = "auto",
        compile_workers: int | None = None,
        compiled: Path | None = None,
        say: Say | None = None,
    ) -> Bench:
        """Starts the workers and loads the task. Raises TaskError or TargetError, one sentence each.

        compiled is the folder of the compile cache; say prints progress of slow steps.
        """
        machine, device = choose_target(target)
        full = os.path.abspath(path)
        if not os.path.exists(full):
            raise TaskError(explain_missing_file(path))
        workplace = Workplace((os.path.dirname(os.path.realpath(full)),))
        try:
            cores = len(os.sched_getaffinity(0))
            judge = workplace.pool("judge", 1, fork=device is None)
            compilers = workplace.pool("compile", compile_workers or max(2, cores - 1))
            others: dict[str, Any] = {}
            if device is None:
                others["evaluators"] = workplace.pool("evaluate", max(2, cores // 2))
            else:
                others |= {"runners": workplace.pool("run", 1), "gpu": GpuTurn(say)}
                others["runners"].proves = make_prover(compilers, machine)
            for pool in workplace.pools:
                pool.warm()
            reading = f"reading {path} (its top level, its get_inputs, its reference; at most {OPEN_LIMIT_S:g} s)"
            with report_progress(say, reading):
                facts = _read_task(judge, jobs.OpenTask(full, machine, device is not None))
                facts = fit_to_target(replace(facts, capability=device.capability if device else 0), machine)
                if device is None and (gfx := find_amd_card()):
                    facts = replace(facts, notes=(*facts.notes, AMD_CARD.format(gfx=gfx)))
            others["compiled"] = CompileCache(compiled, versions()) if compiled else None
            bench = cls(full, machine, device, facts, workplace, judge, compilers, say=say, **others)
            with report_progress(say, "compiling the task's own kernel"):
                bench.facts = bench.choose_own_config()
            return bench
        except BaseException:
            workplace.close()
            raise

    def open_evaluators(self) -> Bench:
        """This task as it is opened without the device, with evaluators and a judge that end with this bench."""
        judge = self.workplace.pool("judge", 1)
        few = max(1, min(EVALUATORS_BESIDE, len(os.sched_getaffinity(0)) // 2))
        evaluators = self.workplace.pool("evaluate", few)
        facts = replace(_read_task(judge, jobs.OpenTask(self.path, self.target)), config=self.facts.config)
        return Bench(self.path, self.target, None, facts, self.workplace, judge, self.compilers, evaluators)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def seed(self) -> Kernel:
        return Kernel.parse(self.facts.seed)

    @property
    def where(self) -> str:
        """The name of the device that measures, or of the target that times are estimated for."""
        return self.device.name if self.device else self.target.name

    @property
    def missing_layers(self) -> tuple[str, ...]:
        """In words, each isolation layer that workers which run candidates wanted and did not get."""
        every = dict.fromkeys((*self.workplace.pools, self.compilers))
        pools = [p for p in every if sandbox.POLICIES[p.source.role].confined]
        return tuple(f"{p.source.role} worker without {layer} ({why})" for p in pools for layer, why in p.missing)

    def check_isolation(self, say: Say, required: bool) -> None:
        """Says which isolation layers are missing. Raises IsolationError if all are required."""
        if missing := "; ".join(self.missing_layers):
            if required:
                raise IsolationError(f"--require-isolation: {missing}; `kernelsearch doctor` shows every layer")
            say(f"note: candidates are not fully isolated: {missing}; --require-isolation refuses that")

    def find_unjudgeable(self) -> tuple[str, ...]:
        """Why the judge cannot tell right from wrong for this task, in words; nothing where it can."""
        return self.ask_judge(jobs.JudgeTask())

    @property
    def lanes(self) -> int:
        """How many candidates can be compiled side by side."""
        return self.compilers.size

    @property
    def waits(self) -> bool:
        """Whether who evaluates only waits for workers, rather than for this machine's cores."""
        return self.device is not None

    def close(self) -> None:
        self.workplace.close()

    # ------------------------------------------------------------ what a candidate is, for workers

    def candidate(self, kernel: Kernel, config: Config, *, code: bool) -> jobs.CandidateJob:
        """The message for a worker; without code it lacks the functions' texts (the run worker gets none)."""
        seed = self.seed
        if not code:
            kernel, seed = _without_code(kernel), _without_code(seed)
        fills = tuple(dict.fromkeys(f for name in kernel.unfilled for f in self.facts.find_fills(name)))
        own = dict(self.facts.config)
        return jobs.CandidateJob(kernel, dict(config), seed, own, self.facts.sites, self.target, fills)

    def bind_launches(
        self, kernel: Kernel, config: Config, shapes: tuple[str, ...]
    ) -> list[tuple[LaunchFact, BoundLaunch]]:
        """Every launch of these shapes with the plan of what runs there. Raises LaunchError."""
        return [
            (fact, self._bind(kernel, config, shape, index, fact))
            for shape in shapes
            for index, fact in enumerate(self._launches(shape, config))
        ]

    def _launches(self, shape: str, config: Config) -> Iterator[LaunchFact]:
        """The launches of a shape; hooks of the launcher's autotuner set the tiles of its descriptors by the config."""
        for index, fact in enumerate(self.facts.traces[shape].launches):
            if any(isinstance(a, DescriptorFact) and a.hooked for a in fact.args.values()):
                key = repr((shape, index, config_key(config)))
                if key not in self._described:
                    job = jobs.DescribeLaunch(shape, index, dict(config))
                    self._described[key] = ask_trusted(self.judge, job, JUDGE_LIMIT_S)
                yield self._described[key]
            else:
                yield fact

    def _bind(self, kernel: Kernel, config: Config, shape: str, index: int, fact: LaunchFact) -> BoundLaunch:
        def grid_of(meta: Mapping[str, Any]) -> tuple[int, ...]:
            if fact.grid is not None:
                return fact.grid
            plain = {k: v for k, v in meta.items() if isinstance(v, (bool, int, float, str)) or v is None}
            key = repr((shape, index, sorted(plain.items(), key=lambda item: item[0])))
            if key not in self._grids:
                self._grids[key] = ask_trusted(self.judge, jobs.LauncherGrid(shape, index, plain), JUDGE_LIMIT_S)
            return self._grids[key]

        facts = self.facts
        return bind_launch(kernel, config, self.seed, facts.config, facts.sites, fact, grid_of, self.target.num_sms)

    # ------------------------------------------------------------ compiling

    def choose_own_config(self) -> TaskFacts:
        """The facts with the first config of each of the seed's own lists that compiles, as Triton's autotuner skips
        the others. Where none does, it stays the first, and the compiler's reason is the verdict on the seed.
        """
        facts = self.facts
        shapes = tuple(dict.fromkeys((*(s.key for s in narrow_to_shapes(facts, ()).shapes), *first_by_dtypes(facts))))
        for configs in facts.own_configs:
            taken = next((c for c in configs if self._compiles({**facts.config, **c}, shapes, c)), None)
            if taken is not None and taken != configs[0]:
                note = (
                    f"the first config of its own list does not compile for {self.where}: {format_config(taken)} does"
                )
                facts = replace(facts, config={**facts.config, **taken}, notes=(*facts.notes, note))
        return facts

    def _compiles(self, config: Config, shapes: tuple[str, ...], part: Config) -> bool:
        """True if the seed's launches of these shapes compile at a config; of part's one kernel, if it names one."""
        sites = {name.rpartition(".")[0] for name in part} - {""}
        try:
            launches = self.bind_launches(self.seed, config, shapes)
            specs = [
                (spec, False)
                for fact, bound in launches
                if not sites or fact.site in sites
                for spec in bound.specialise_steps(fact)
            ]
        except LaunchError:
            return False
        binaries, verdict = self.build_binaries(self.seed, tuple(dict.fromkeys(specs)))
        refused = verdict is not None and verdict.word is Word.COMPILE
        return not refused and not any(b.unsupported for b in binaries.values())

    def build_binaries(
        self, kernel: Kernel, specs: tuple[tuple[Specialisation, bool], ...]
    ) -> tuple[dict[str, Binary], Verdict | None]:
        """The binaries of these specialisations by `jobs.spec_key`, or the first refusal of a compiler."""
        binaries: dict[str, Binary] = {}
        self.begin_builds(kernel, specs)
        for spec, of_seed in specs:
            answer = self._begin_build(self.seed if of_seed else kernel, spec).result()
            if isinstance(answer, Verdict):
                return {}, answer
            binaries[jobs.spec_key(spec, of_seed)] = answer
        return binaries, None

    def begin_builds(self, kernel: Kernel, specs: tuple[tuple[Specialisation, bool], ...]) -> None:
        """Begins these builds without waiting for them; does nothing where others need the compilers."""
        if self.compilers.size > FEW_COMPILERS:
            for spec, of_seed in specs:
                self._begin_build(self.seed if of_seed else kernel, spec)

    def _begin_build(self, kernel: Kernel, spec: Specialisation) -> Future:
        """The future of one specialisation's build, which begins at most once."""
        key = spec.key(kernel.digest, self.target.name, "")
        with self._lock:
            future = self._built.get(key)
            if future is not None:
                return future
            future = self._built[key] = Future()
        cached = self.compiled.get(self._cache_key(self.compiled, kernel, spec)) if self.compiled else None
        if cached is not None:
            future.set_result(cached.verdict or cached.binaries[0])
        elif self.compilers.size > FEW_COMPILERS:
            threading.Thread(target=self._build, args=(kernel, spec, future), daemon=True).start()
        else:
            self._build(kernel, spec, future)
        return future

    def _build(self, kernel: Kernel, spec: Specialisation, future: Future) -> None:
        job = jobs.Compile(kernel.code, kernel.digest, (spec,), self.target, self.facts.precision)
        is_own = kernel.digest == self.seed.digest and spec.is_at(self.facts.config)
        limit_s = SEED_COMPILE_LIMIT_S if is_own else COMPILE_LIMIT_S
        try:
            answer = self.compilers.ask(job, limit_s)
            answer = replace(answer, binaries=tuple(map(check_binary, answer.binaries)))
            if self.compiled:
                self.compiled.put(self._cache_key(self.compiled, kernel, spec), answer)
            future.set_result(answer.verdict or answer.binaries[0])
        except WorkerHung:
            reason = f"the compiler took more than {limit_s:g} s of processor time"
            future.set_result(Verdict(Word.TIMEOUT, "compile", reason))
        except WorkerDied as died:
            future.set_result(Verdict(Word.COMPILE, "compile", f"the compiler crashed: {died}"))
        except ValueError as error:
            future.set_result(Verdict(Word.COMPILE, "compile", f"the compiler's answer is {error}"))
        except WorkerError as error:  # reported by whoever waits for the build
            future.set_exception(error)
        except BaseException as error:
            future.set_exception(error)
            raise

    def _cache_key(self, compiled: CompileCache, kernel: Kernel, spec: Specialisation) -> str:
        return compiled.key(kernel, spec, self.target, self.facts.precision)

    # ------------------------------------------------------------ judging

    def cases(self, depth: str, draw: int = 0, sizes: int | None = None) -> jobs.JudgedCases:
        if (depth, draw, sizes) not in self._cases:
            planned = self.ask_judge(jobs.Cases(depth, self.secret + draw, sizes))
            notes = (*self.facts.notes, *(n for n in planned.notes if n not in self.facts.notes))
            self.facts = replace(self.facts, traces={**self.facts.traces, **planned.traces}, notes=notes)
            self.labels.update(planned.labels)
            self._cases[depth, draw, sizes] = planned.cases
        return self._cases[depth, draw, sizes]

    def inputs(self, cases: jobs.JudgedCases) -> tuple[tuple[Any, ...], ...]:
        missing = tuple(c for c in cases if c not in self._inputs)
        if missing:
            inputs = self.ask_judge(jobs.CaseInputs(missing), missing)
            self._inputs.update(zip(missing, inputs, strict=True))
        return tuple(self._inputs[c] for c in cases)

    def judge_runs(self, cases: jobs.JudgedCases, runs: Any, depth: str, *, atomics: bool = False) -> Verdict:
        return self.ask_judge(jobs.JudgeRuns(cases, runs, depth, atomics), cases)

    def ask_judge(self, job: Any, cases: jobs.JudgedCases = ()) -> Any:
        """The judge's answer on cases, or on the test shapes. Raises TaskError if right answers take too long."""
        judged = [s.label for s in self.facts.test_shapes or self.facts.shapes]
        at = [self.labels.get(key, key) for key in dict.fromkeys(c.shape for c in cases)] or judged
        slow = f"its right answers at {' or '.join(at[:MOST_NAMED])} took more than {JUDGE_LIMIT_S:g} s"
        return ask_trusted(self.judge, job, JUDGE_LIMIT_S, f"{self.facts.name}: {slow}: {SLOW_REFERENCE}")


def _read_task(judge: Pool, job: jobs.OpenTask) -> TaskFacts:
    """The judge's answer to a task file, which it serves from now on. Raises TaskError for one that does not finish."""
    slow = (
        f"{job.path} was not read within {OPEN_LIMIT_S:g} s: does its top level, its get_inputs or its reference "
        'loop or wait? What only a script should do belongs under `if __name__ == "__main__":`'
    )
    facts = ask_trusted(judge, job, OPEN_LIMIT_S, slow)
    judge.opening = job, OPEN_LIMIT_S  # a judge that is lost is replaced by one with the same task
    return facts


def first_by_dtypes(facts: TaskFacts) -> tuple[str, ...]:
    """The keys of the first test shape for each set of argument dtypes."""
    first: dict[str, str] = {}
    for shape in facts.test_shapes:
        launches = facts.traces[shape.key].launches
        kinds = [[n, a.dtype] for f in launches for n, a in f.args.items() if isinstance(a, TensorFact)]
        first.setdefault(repr(kinds), shape.key)
    return tuple(first.values())


def _without_code(kernel: Kernel) -> Kernel:
    return replace(kernel, functions=tuple(replace(f, text="") for f in kernel.functions), constants=())
