"""Records a whole space on the GPU, every config judged at `screen` depth, then timed: `record.py TASK.py OUT`.

Compilers run ahead: many threads have one config each, most wait for their compile, one uses the GPU. Finished rows go
to `OUT.part` one by one, so that a recording that was interrupted goes on from there.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kernelsearch.cli.options import quiet_option, shape_option
from kernelsearch.core import files, formats
from kernelsearch.core.errors import KernelsearchError, SpaceError, TargetError
from kernelsearch.core.interrupts import Interrupts
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Config, TaskFacts, Value, Verdict, Word, config_key
from kernelsearch.kernel.space import Space, TaskPredicate, require_possible_config
from kernelsearch.record.rows import geometric_mean
from kernelsearch.report.terminal import make_say
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation
from kernelsearch.trial import bench as benches
from kernelsearch.trial.bench import Bench

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recorded import space as recorded_space
from recorded.space import RecordedSpace, SpaceRow

AHEAD = 3
"""Configs in flight per core: enough compiles are finished before the GPU asks for them."""

KEPT_SAMPLES = 9
DIGITS = 4
SLOW = 4.0
"""A config that takes this many times the best one's time is not sampled further than a few times."""

FAILURE = {Word.STATIC: "compile", Word.COMPILE: "compile", Word.TIMEOUT: "timeout"}
FAILURE |= {Word.CRASH: "runtime", Word.TIMING: "runtime"}
FAILURE |= dict.fromkeys((Word.WRONG, Word.PRECISION, Word.MEMORY, Word.RACE), "correctness")
"""The recorded word of every rejection."""


@click.command()
@click.argument("task", type=click.Path(dir_okay=False), metavar="TASK.py")
@click.argument("out", type=click.Path(dir_okay=False))
@shape_option
@quiet_option
def main(task: str, out: str, shapes: tuple[str, ...], quiet: bool) -> None:
    """Measures every config of TASK's own kernel and writes OUT (.json, .json.gz or .json.xz). Exit code 1: cut short.

    Ctrl-C keeps what was measured; the same command goes on from there.
    """
    say = make_say(quiet)
    try:
        files.refuse_unwritable(out)
        if benches.choose_target("auto")[1] is None:
            raise TargetError("record needs a GPU: a recorded space holds measured times, and there is no CUDA device")
        with Bench.open(task, "auto") as bench:
            bench.check_isolation(say, False)
            done = record_space(bench, narrow_to_shapes(bench.facts, shapes), out, say)
    except KernelsearchError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(0 if done else 1)


def record_space(bench: Bench, facts: TaskFacts, out: str, say: Say) -> bool:
    """Measures the task's space and writes it; False if it was cut short. Raises KernelsearchError."""
    empty, configs = plan_recording(bench, facts)
    header = recorded_space.as_json(empty) | {"digest": facts.digest}
    del header["rows"]
    with PartFile(Path(f"{out}.part"), header) as part, Interrupts(True, say) as interrupts:
        if part.rows:
            say(f"{facts.name}: {len(part.rows)} rows were recorded before; going on")
        recording = SpaceRecorder(Evaluation.of(bench, facts), facts, say)
        for row in recording.rows([c for c in configs if config_key(c) not in part.rows], interrupts):
            part.add(row)
        if len(part.rows) < len(configs):
            done = f"{len(part.rows)} of {len(configs)} rows"
            say(f"interrupted: {done} are in {out}.part; the same command goes on from there")
            return False
        space = replace(empty, rows=tuple(part.rows[config_key(c)] for c in configs))
        recorded_space.write(space, out)
    os.remove(f"{out}.part")
    say(f"wrote {out}: {_summarise(space)}")
    return True


def plan_recording(bench: Bench, facts: TaskFacts) -> tuple[RecordedSpace, list[dict[str, Value]]]:
    """The recorded space without its rows, and the configs to record: every possible one, in enumeration order."""
    space, possible = Space(facts.space), TaskPredicate(facts)
    require_possible_config(space, bench.seed, possible)
    labels = tuple(s.label for s in facts.shapes)
    empty = RecordedSpace(facts.name, bench.device.name, benches.versions(), space.values, (), labels)
    return empty, [c for c in space.iterate_configs() if possible(bench.seed, {**facts.config, **c})]


class PartFile:
    """The unfinished file: a header line, then one line per row. Raises SpaceError when it is of another recording."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path, self.header = path, header
        self.rows: dict[str, SpaceRow] = {}

    def __enter__(self) -> PartFile:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        if lines:
            self._read(lines)
        try:
            self.file = open(self.path, "a")
        except OSError as error:
            raise KernelsearchError(f"{self.path} cannot be written: {error.strerror}") from None
        print("" if lines else json.dumps(self.header), file=self.file, flush=True)  # an empty line ends a torn one
        return self

    def _read(self, lines: list[str]) -> None:
        if _load_line(lines[0]) != self.header:
            differ = "task, device, versions or space differ"
            raise SpaceError(f"{self.path} is of another recording ({differ}): delete it first")
        for line in lines[1:]:
            fields = _load_line(line)
            if fields:  # a line may be torn, or empty
                samples = tuple(fields.get("samples_us", ()))
                row = SpaceRow(fields["config"], fields.get("time_us"), fields.get("failure"), samples)
                self.rows[config_key(row.config)] = row

    def add(self, row: SpaceRow) -> None:
        self.rows[config_key(row.config)] = row
        print(json.dumps(recorded_space.row_as_json(row)), file=self.file, flush=True)

    def __exit__(self, *_: object) -> None:
        self.file.close()


class SpaceRecorder:
    """Evaluates configs with compiles running ahead; gives rows as they finish, in any order."""

    def __init__(self, evaluation: Evaluation, facts: TaskFacts, say: Say) -> None:
        self.evaluation, self.facts, self.say = evaluation, facts, say
        self._best: dict[str, float] = {}
        self._lock = threading.Lock()

    def rows(self, configs: Sequence[dict[str, Value]], interrupts: Interrupts) -> Iterator[SpaceRow]:
        """Ctrl-C finishes what is in flight, a second one drops it."""
        ahead = AHEAD * max(self.evaluation.bench.lanes, len(os.sched_getaffinity(0)))
        pool = ThreadPoolExecutor(ahead, thread_name_prefix="record")
        progress = _Progress(self.facts.name, len(configs), self.say)
        left, flight = iter(configs), set[Future]()
        try:
            while True:
                while len(flight) < ahead and not interrupts.noted() and (config := next(left, None)) is not None:
                    flight.add(pool.submit(self._measure_row, config))
                if not flight:
                    return
                done, flight = interrupts.wait(flight, FIRST_COMPLETED)
                for future in done:
                    row, verdict = future.result()
                    progress.add(row, verdict)
                    yield row
        except KeyboardInterrupt:
            return
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _measure_row(self, config: dict[str, Value]) -> tuple[SpaceRow, Verdict]:
        facts = self.facts
        one = len(facts.shapes) == 1  # of several shapes all are needed for the mean
        limits = {s: SLOW * t for s, t in self._best.items()} if one else {}
        verdict, samples = self.evaluation.sample_times(self.evaluation.bench.seed, {**facts.config, **config}, limits)
        if not verdict.accepted:
            return SpaceRow(config, failure=FAILURE[verdict.word]), verdict
        with self._lock:
            for shape, times in samples.items():
                self._best[shape] = min(self._best.get(shape, math.inf), statistics.median(times))
        return make_row(config, list(samples.values())), verdict


def make_row(config: Config, samples_us: Sequence[Sequence[float]]) -> SpaceRow:
    """A row from the raw samples of every shape: geometric means over the shapes, of medians and of single samples."""
    time_us = geometric_mean([statistics.median(s) for s in samples_us])
    single = [geometric_mean(at) for at in zip(*samples_us, strict=False)]
    step = max(1.0, len(single) / KEPT_SAMPLES)  # spread over the whole measurement, not its first samples
    kept = [single[int(i * step)] for i in range(min(len(single), KEPT_SAMPLES))]
    return SpaceRow(config, _round(time_us, DIGITS + 1), samples_us=tuple(_round(t, DIGITS) for t in kept))


class _Progress:
    """A line for each twentieth of the space, and the reason of the first failure of each kind."""

    def __init__(self, name: str, total: int, say: Say) -> None:
        self.name, self.total, self.say = name, total, say
        self.started, self.best, self.done = time.monotonic(), math.inf, 0
        self.failed: Counter[str] = Counter()

    def add(self, row: SpaceRow, verdict: Verdict) -> None:
        self.done += 1
        if row.failure:
            self.failed[row.failure] += 1
            if self.failed[row.failure] == 1:
                reason = f"{verdict.reason[:300]} at {dict(row.config)}"
                self.say(f"{self.name}: first failure of the kind {row.failure}: {reason}")
        else:
            self.best = min(self.best, row.time_us)
        if self.done % max(1, self.total // 20) == 0 or self.done == self.total:
            rate = self.done / max(1e-9, time.monotonic() - self.started)
            best = formats.format_time(self.best) if self.best < math.inf else "none"
            failed = "".join(f", {n} {kind}" for kind, n in self.failed.items())
            left = formats.format_duration((self.total - self.done) / rate)
            self.say(f"{self.name}: {self.done}/{self.total}  best {best}{failed}  {rate:.1f}/s  {left} left")


def _summarise(space: RecordedSpace) -> str:
    times = [row.time_us for row in space.rows if row.time_us is not None]
    near = sum(t <= 1.02 * space.optimum_us for t in times)
    optimum, failed = formats.format_time(space.optimum_us), len(space.rows) - len(times)
    return f"{len(space.rows)} configs, {failed} failed, optimum {optimum}, {near} within 2 % of it"


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _load_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


if __name__ == "__main__":
    main()
