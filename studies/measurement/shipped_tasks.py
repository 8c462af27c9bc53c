"""Every shipped task at one shape: PyTorch's baselines, Liger-Kernel, the seed, and a short search's find, confirmed.

`python studies/measurement/shipped_tasks.py [NAME:SHAPE:TRIALS ...] [--json FILE] [--limit SECONDS]` needs a CUDA
device. Each task is searched, its finalists confirmed, and one row is printed as soon as it is done. Where the search
finds nothing faster, the seed itself is confirmed. Three tasks are under way at a time, so that one compiles while
another has the GPU: they take turns on it, and a confirmation has it alone.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelsearch.api import optimization
from kernelsearch.core import formats
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.record.store import Store
from kernelsearch.report import findings
from kernelsearch.tasks import shipped
from kernelsearch.trial.bench import Bench, versions
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan, Contestant
from kernelsearch.worker.processes.pool import Pool
from kernelsearch.worker.processes.workers import Worker

CASES = ("softmax:0:16", "layernorm:0:12", "rmsnorm:0:12", "swiglu:0:16", "column_sum:0:64", "cross_entropy:0:56",
         "softmax_wide:0:72", "attention:0:24", "linear_gelu:0:24", "matmul:0:32")  # fmt: skip
COLUMNS = ("eager", "compile", "max-autotune", "liger", "seed")
BESIDE, COMPILERS = 3, 8
"""Tasks under way at a time, and compile workers of each."""
SECONDS = 3.0
"""Sampling time of each confirmation."""


GPU = threading.RLock()


class Turns:
    """A pool of run workers that waits for the GPU before it is asked anything."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    @contextmanager
    def lease(self) -> Iterator[Worker]:
        with GPU, self.pool.lease() as worker:
            yield worker

    def ask(self, job: Any, timeout: float) -> Any:
        with GPU:
            return self.pool.ask(job, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)


def measured_ceilings(name: str) -> dict[str, float]:
    """What this GPU can do at best, while nothing else of ours is there."""
    with Bench.open(shipped.path(name), compile_workers=2) as bench, Confirmation(bench) as confirmation:
        return confirmation.measure_ceilings()


def whole(name: str, shape: int, trials: int, latest: float, ceilings: dict[str, float]) -> tuple[dict | None, float]:
    """(A task's finding, its seconds) from opening to confirming; None when it is too late to begin."""
    begun = time.perf_counter()
    if begun > latest:
        return None, 0.0
    with Bench.open(shipped.path(name), compile_workers=COMPILERS) as bench, Store.open_in_memory() as store:
        store.add_ceilings(bench.device.name, ceilings, versions())
        bench.gpu, bench.runners = GPU, Turns(bench.runners)
        return finding(bench, store, shape, trials), time.perf_counter() - begun


def finding(bench: Bench, store: Store, shape: int, trials: int) -> dict:
    """The best confirmed finding of one search, else the seed's own."""
    facts = replace(bench.facts, shapes=(bench.facts.shapes[shape],))
    options = optimization.OptimizeOptions(trials=trials, quiet=True, confirm_seconds=SECONDS, fresh=True)
    result, found = optimization.Optimization(bench, facts, store, options, lambda text: None).run()
    good = [f for f in found if f["shapes"]]
    if good:
        return {**good[0], "trials": len(result.trials)}
    seed = Contestant(SEED, bench.seed, dict(facts.config))
    with Confirmation(bench, ConfirmationPlan(SECONDS)) as confirmation:
        ceilings = confirmation.find_ceilings(store)
        runs = confirmation.confirm_shapes(facts.shapes, [seed])
    return {**findings.build_finding(seed, runs, bench.device.name, ceilings), "trials": len(result.trials)}


def row(name: str, found: dict, seconds: float) -> str:
    """One line: times in microseconds, the found kernel's share of the measured roofline, speed-up over the fastest."""
    shape = found["shapes"][0]
    times = {b["name"]: b.get("time_us") for b in shape["baselines"]}
    if found["name"] == SEED:
        times[SEED] = shape["time_us"]
    cells = " ".join(f"{times[c]:8.1f}" if times.get(c) else f"{'-':>8}" for c in COLUMNS)
    share = f"{shape['roofline']:6.1%}" if shape["roofline"] else "     -"
    over = formats.format_interval(found["vs_fastest"]) if found["vs_fastest"] else "-"
    verdict = "faster" if found["faster"] else found["status"]
    return (f"{name:<14} {cells} {shape['time_us']:8.1f} {share}  {over} {shape['fastest']:<12} {verdict:<9} "
            f"A/A {found['aa_spread']:.2%} {found['trials']} trials {seconds:.0f} s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--limit", type=float, default=float("inf"))
    options = parser.parse_args()
    cases = [(name, int(shape), int(trials)) for name, shape, trials in (c.split(":") for c in options.cases)]
    begun, kept = time.perf_counter(), {}
    ceilings = measured_ceilings(cases[0][0])
    print(f"ceilings: {ceilings}")
    print(f"{'':<14} " + " ".join(f"{c[:8]:>8}" for c in (*COLUMNS, "found")) + "  roofline  found against the fastest")
    with ThreadPoolExecutor(BESIDE) as pool:
        done = [
            (name, pool.submit(whole, name, shape, trials, begun + options.limit, ceilings))
            for name, shape, trials in cases
        ]
        for name, future in done:
            found, seconds = future.result()
            if found is None:
                print(f"{name:<14} left out: no time is left", flush=True)
            elif not found["shapes"]:
                print(f"{name:<14} {found['status']}: {found['reason']}", flush=True)
            else:
                kept[name] = found
                print(row(name, found, seconds), flush=True)
            if options.json:
                options.json.write_text(json.dumps(kept, indent=1))
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
