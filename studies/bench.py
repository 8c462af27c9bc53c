"""Prints the project's own figures as a table: time and memory of a search, start-up, kills and resumes, gain.

Run by scripts/bench; what it printed on which day and machine is kept in studies/README.md. With a GPU it also
times PyTorch's baselines in the same run as the found kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TASK = ROOT / "studies" / "softmax" / "softmax.py"
COMMAND = [sys.executable, "-m", "kernelsearch"]


def start_up() -> float:
    """Seconds of `kernelsearch --help`, the median of five."""
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([*COMMAND, "--help"], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        queue.extend(parents.get(found[-1], ()))
    return found


def pss_gib(pid: int) -> float:
    """Proportional set size of a process family, in GiB."""
    total = 0
    for member in family(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 2**20


def search(trials: int, database: Path) -> tuple[float, float, dict]:
    """(seconds, peak GiB of all processes, summary) of one search of softmax."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [
            *COMMAND,
            "optimize",
            str(TASK),
            "--trials",
            str(trials),
            "--db",
            str(database),
            "--json",
            "--quiet",
            "--no-confirm",
        ],  # confirming compiles PyTorch's baselines, which is not part of the search
        stdout=subprocess.PIPE,
    ) as process:
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, pss_gib(process.pid))
            time.sleep(0.5)
        summary = json.loads(process.stdout.read())
    return time.perf_counter() - begun, peak, summary


def against_baselines(database: Path, shape: str) -> list[tuple[str, str, str]]:
    """Rows of times at one shape, all taken in one process one after the other: found kernel and baselines."""
    from kernelsearch.kernel.source import Kernel
    from kernelsearch.record import family_tree
    from kernelsearch.record.store import Store
    from kernelsearch.report.kernel_file import render_kernel_file
    from kernelsearch.trial import Evaluation
    from kernelsearch.trial.bench import Bench

    with Store.open(database, write=False) as store:
        best = Kernel.parse(render_kernel_file(store, family_tree.find_best_kernel(store)))
    rows = []
    with Bench.open(TASK) as bench:
        evaluation = Evaluation(bench, (shape,))
        outcome = evaluation.evaluate(best, best.config)
        found = outcome.measurement.time_us(shape)
        label = next(s.label for s in bench.facts.shapes if s.key == shape)
        rows.append((f"found kernel, {label}", f"{found:.1f} us", "measured"))
        for name in ("eager", "compile", "max-autotune"):
            time_us = statistics.median(evaluation.time_baseline(name, shape))
            aim = ">= 1.3x" if name == "max-autotune" else ""
            rows.append((f"  against torch {name}", f"{time_us:.1f} us, {time_us / found:.2f}x", aim))
    return rows


def try_times(database: Path, folder: Path, count: int = 5) -> list[float]:
    """Seconds of `try` for kernels of a search, one after the other on the same workers, as `mcp` has them.

    What the search compiled is not used.
    """
    from kernelsearch.cli.run_try import TryOptions, try_kernel
    from kernelsearch.record.store import Store
    from kernelsearch.report.kernel_file import render_kernel_file
    from kernelsearch.trial.bench import Bench

    with Store.open(database, write=False) as store:
        (run,) = store.load_runs()
        every = list(dict.fromkeys(t.kernel for t in store.load_trials(run.id) if t.accepted))[1 : count + 1]
        texts = [render_kernel_file(store, digest) for digest in every]
    times = []
    with Bench.open(TASK) as bench, Store.open(folder / "try.db") as store:
        for text in texts:
            begun = time.perf_counter()
            try_kernel(bench, store, text, TryOptions())
            times.append(time.perf_counter() - begun)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from kernelsearch.measure.timing.device import find_live_device

    device = find_live_device()
    limit_s, where = (90, device.name) if device else (120, f"no GPU, {len(os.sched_getaffinity(0))} cores")
    rows = [("kernelsearch --help", f"{start_up():.2f} s", "<= 0.3 s")]
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "bench.db"
        seconds, peak, summary = search(options.trials, database)
        verdicts = ", ".join(f"{n} {word}" for word, n in summary["verdicts"].items())
        rows.append((f"{options.trials} trials of softmax", f"{seconds:.1f} s", f"<= {limit_s} s"))
        rows.append(("  memory of all processes (PSS, peak)", f"{peak:.2f} GiB", "<= 3 GiB" if not device else ""))
        rows.append(("  verdicts", verdicts, ""))
        best = summary["best"]
        rows.append(("  best against the seed", f"{best['speedup']:.3f}x", best["evidence"]))
        if options.trials > 1:
            first, *others = try_times(database, Path(folder))
            rows.append(("try of a kernel of softmax, workers open", f"{first:.1f} s", ""))
            said = " ".join(f"{t:.1f}" for t in others)
            rows.append(("  each other one after it", f"{said} s", f"<= {2 if device else 6} s"))
        if device:
            rows += against_baselines(database, "timed:0")
    if options.kills:
        sys.path.insert(0, str(ROOT / "tests"))
        from search.kills import kill_and_resume

        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            report = kill_and_resume(str(Path(folder) / "kills.db"), options.kills, trials=30 * options.kills)
            said = "; ".join(report.faults) or "no row lost, none twice, database intact"
            rows.append((f"SIGKILL at random, {report.kills} times", said, "no fault"))
            rows.append(("  until the resumed run was done", f"{time.perf_counter() - begun:.0f} s", ""))
    print(f"{time.strftime('%Y-%m-%d')}, {where}, Python {platform.python_version()}")
    width = max(len(name) for name, _, _ in rows)
    for name, value, aim in rows:
        print(f"{name:{width}}  {value:48}  {aim}".rstrip())


if __name__ == "__main__":
    main()
