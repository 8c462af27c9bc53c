"""What a verdict costs for each shipped task: `python studies/referee/cost.py [TASK...] [--json OUT]`.

A copy of the seed with one more assignment is judged after the seed, so that expectations and inputs exist as they do
in a search (the seed itself would be spared the sizes on which it has been judged already). CPU seconds are those of
the interpreter and judge processes (user + system, from /proc); without /proc, or on a GPU, only wall seconds mean
anything. Compiling is not part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench

STUDIES = Path(__file__).resolve().parents[1]
TASKS = ("softmax", "softmax_wide", "layernorm", "rmsnorm", "column_sum", "cross_entropy", "swiglu", "matmul",
         "linear_gelu", "attention")  # fmt: skip


def cpu_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def workers(bench: Bench) -> list[int]:
    pools = [p for p in (bench.judge, bench.evaluators, bench.runners) if p is not None]
    return [w.pid for p in pools for w in list(p.free.queue) if w is not None]


def spent(bench: Bench, work) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of a call, the best of three."""
    found = []
    for _ in range(3):
        before, start = cpu_seconds(workers(bench)), time.perf_counter()
        verdict = work()
        found.append((cpu_seconds(workers(bench)) - before, time.perf_counter() - start))
        assert verdict.accepted, verdict
    return min(found)


def another(seed: str) -> str:
    """The seed's source with an assignment that nothing uses, so that it is another kernel."""
    return seed.replace("):\n", "):\n    unused = 0\n", 1)


def measured(task: str) -> dict:
    with Bench.open(STUDIES / task / f"{task}.py") as bench:
        kernel, config = Kernel.parse(another(bench.facts.seed)), dict(bench.facts.config)
        assert kernel.digest != bench.seed.digest
        start = time.perf_counter()
        first = Evaluation(bench)
        assert first.verify(bench.seed, config).accepted
        opened = time.perf_counter() - start
        row = {"task": task, "first_full_s": round(opened, 2)}
        for depth in ("screen", "full"):

            def judged(depth: str = depth, row: dict = row):
                again = Evaluation(bench)
                cases = again._cases(depth)
                row[f"{depth}_cases"] = len(cases)
                candidate = again.bind(kernel, config)
                if bench.device is None:
                    return again.stages.judge(candidate, cases, depth)
                if depth == "full":
                    return again.stages.judge_full(candidate, cases)
                binaries = candidate.compile(tuple({c.shape for c in cases}))
                return again.stages.run_cases(candidate, binaries, cases, depth)

            judged()
            cpu, wall = spent(bench, judged)
            row |= {f"{depth}_cpu_s": round(cpu, 3), f"{depth}_wall_s": round(wall, 3)}
        return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("tasks", nargs="*", default=list(TASKS))
    options.add_argument("--json", dest="out")
    given = options.parse_args()
    rows = []
    print("| task | screen: cases | CPU s | wall s | full: cases | CPU s | wall s |")
    print("|---|---|---|---|---|---|---|")
    for task in given.tasks:
        row = measured(task)
        rows.append(row)
        print(
            "| "
            + " | ".join(
                str(row[k])
                for k in (
                    "task",
                    "screen_cases",
                    "screen_cpu_s",
                    "screen_wall_s",
                    "full_cases",
                    "full_cpu_s",
                    "full_wall_s",
                )
            )
            + " |",
            flush=True,
        )
    if given.out:
        Path(given.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
