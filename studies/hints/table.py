"""Which kernels with one known fault `hints` diagnoses rightly here: `python studies/hints/table.py [NAME ...]`.

Runs the whole command on every file of tests/hints (workers, interpreter counts, and measured times where there is a
GPU, but not the hardware's counters), where the test of the same files uses the binary alone. Prints one row
a file; exits with 1 when one is wrong.
Where there are cores for it, the next tasks are opened while one is examined: starting workers is most of the time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/hints")]

import binary_alone  # noqa: E402

from kernelsearch.cli.run_hints import examine, find_ceilings, open_counting_pool  # noqa: E402
from kernelsearch.core.types import Verdict  # noqa: E402
from kernelsearch.measure.hints.changes import word_of  # noqa: E402
from kernelsearch.measure.hints.findings import diagnose  # noqa: E402
from kernelsearch.trial.bench import Bench  # noqa: E402
from kernelsearch.worker.processes.pool import Pool  # noqa: E402


def ready(path: Path) -> tuple[Path, Bench, Pool]:
    bench = Bench.open(path, compile_workers=2)
    return path, bench, open_counting_pool(bench)


def opened(paths: list[Path]) -> Iterator[tuple[Path, Bench, Pool]]:
    """Each task with its workers, opened ahead of time; closed behind the caller's back while the next is examined."""
    ahead = max(1, len(os.sched_getaffinity(0)) // 4)
    with ThreadPoolExecutor(ahead) as pool, ThreadPoolExecutor(1) as closing:
        rest = iter(paths)
        waiting = [pool.submit(ready, p) for p in islice(rest, ahead)]
        while waiting:
            found = waiting.pop(0).result()
            yield found
            closing.submit(found[1].workplace.close)
            waiting += [pool.submit(ready, p) for p in islice(rest, 1)]


def row(path: Path, bench: Bench, counters: Pool) -> tuple[bool, str]:
    """(Right, what is printed) of one file."""
    report = examine(bench, bench.facts, None, counters, profile=False)
    if isinstance(report, Verdict):
        return False, f"refused, {report.word.value}: {report.reason}"
    _, call, _ = report.calls[0]
    findings, said = diagnose(call), binary_alone.said(path)
    first = findings[0].hint
    right = binary_alone.agrees(said, first.bottleneck, word_of(first))
    if said["fault"] == "none":
        right = right and not any(f.lost for f in findings)
    roofline = sum(one.roofline_us for one in call.launches)
    told = "; ".join(f"{f.hint.bottleneck} -> {word_of(f.hint)} ({f.lost:.2f})" for f in findings[:3])
    wanted = "" if right else f" (wanted {said['bottleneck']} -> {said['change']})"
    return right, f"{call.time_us or 0:9.1f} us, roofline {roofline:7.1f} us  {told}{wanted}"


def main(names: list[str]) -> int:
    paths = [p for p in binary_alone.KERNELS if not names or p.stem in names]
    begun, wrong, ceilings = time.perf_counter(), 0, None
    for path, bench, counters in opened(paths):
        if ceilings is None:
            ceilings = find_ceilings(bench, "")
            print(f"ceilings: {ceilings or 'none are measured without a GPU'}")
        bench.ceilings = ceilings
        start = time.perf_counter()
        right, text = row(path, bench, counters)
        wrong += not right
        print(f"{' ' if right else '!'} {path.stem:<22} {text}  [{time.perf_counter() - start:.1f} s]", flush=True)
    print(f"{len(paths) - wrong} of {len(paths)} right, {time.perf_counter() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
