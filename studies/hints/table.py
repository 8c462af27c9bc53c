"""Which kernels with one known fault `hints` diagnoses rightly on this machine: `python studies/hints/table.py`.

Runs the whole command on every file of tests/hints (workers, interpreter counts, and measured times where there is a
GPU), where the test of the same files uses the binary alone. Prints one row a file; exits with 1 when one is wrong.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/hints")]

import binary_alone  # noqa: E402

from kernelsearch.hinting import examine  # noqa: E402
from kernelsearch.measure.changes import word_of  # noqa: E402
from kernelsearch.measure.hints import diagnose  # noqa: E402
from kernelsearch.types import Verdict  # noqa: E402
from kernelsearch.worker.bench import Bench  # noqa: E402


def main(names: list[str]) -> int:
    wrong = 0
    for path in binary_alone.KERNELS:
        if names and path.stem not in names:
            continue
        start = time.perf_counter()
        with Bench.open(path) as bench:
            report = examine(bench, bench.facts)
        if isinstance(report, Verdict):
            print(f"! {path.stem}: refused, {report.word.value}: {report.reason}", flush=True)
            wrong += 1
            continue
        _, call, _ = report.calls[0]
        findings, said = diagnose(call), binary_alone.said(path)
        first = findings[0].hint
        right = (first.bottleneck, word_of(first)) == (said["bottleneck"], said["change"])
        wrong += not right
        roofline = sum(one.roofline_us for one in call.launches)
        told = "; ".join(f"{f.hint.bottleneck} -> {word_of(f.hint)} ({f.lost:.2f})" for f in findings[:3])
        wanted = "" if right else f" (wanted {said['bottleneck']} -> {said['change']})"
        timed = f"{call.time_us or 0:9.1f} us, roofline {roofline:7.1f} us"
        took = time.perf_counter() - start
        print(f"{' ' if right else '!'} {path.stem:<22} {timed}  {told}{wanted}  [{took:.0f} s]", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
