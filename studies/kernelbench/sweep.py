"""KernelBench under this project's referee: first kernels by TorchInductor, a search of each, one table.

    python studies/kernelbench/sweep.py CHECKOUT OUT [--levels 1 2] [--only 1/19 2/40] [--trials 64] [--limit 900]
                                        [--precision tf32x3]
    python studies/kernelbench/sweep.py CHECKOUT OUT --seeds-only [--verify]

CHECKOUT is a clone of KernelBench, which is not shipped. OUT keeps copies of its problems, their first kernels, one
file for each finished step of a problem, trials.db and the table: the same command goes on where it was cut. A search
needs a GPU; with several, each has a problem of its own under way. Sizes are KernelBench's. Beside this project's
verdict stands that of KernelBench's own check (`own_check.py`) on the same kernel. With --at-once N each GPU has N
problems under way, which take turns where they time: one compiles while another measures. --precision puts that
contract into the copies of problems that OUT has not got yet.

--seeds-only writes the first kernels alone, in one process that stays warm; no GPU is needed. --verify judges each
(without a GPU in the interpreter, at reduced sizes).
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from kernelsearch.core.errors import KernelsearchError
from kernelsearch.core.files import write_text
from kernelsearch.measure.timing.baselines import COMPILE, EAGER, MAX_AUTOTUNE, SEED
from kernelsearch.measure.timing.device import list_gpus
from kernelsearch.record.confirmation_rows import CONFIRMED
from kernelsearch.report.findings import UNSTABLE
from kernelsearch.search import first_kernel
from kernelsearch.worker.isolation.sandbox import cpu_seconds

MODES = (COMPILE, MAX_AUTOTUNE)
AS_FAST = 0.99
"""A kernel's gain over the seed from which it stands for both: a second confirmation would say the same."""
ALLOCATIONS = {"empty", "empty_strided", "as_strided", "full", "zeros", "tensor"}
"""What a launcher calls of torch that computes nothing."""

Row = dict[str, Any]

stopping = threading.Event()
running: set[subprocess.Popen[str]] = set()
"""At Ctrl-C: whether it came, and the programs that end then, because threads wait for them."""


@dataclass(frozen=True)
class Problem:
    """One file of KernelBench, copied to the folder of its level."""

    level: int
    name: str
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.py"

    @property
    def seeded(self) -> Path:
        return self.folder / f"{self.name}_seeded.py"

    @property
    def label(self) -> str:
        return f"{self.level}/{self.name}"

    def load(self, step: str) -> Row | None:
        """What a finished step (seed, verify or search) found."""
        file = self.folder / f"{self.name}.{step}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def save(self, step: str, row: Row) -> None:
        write_text(self.folder / f"{self.name}.{step}.json", json.dumps(row, indent=1))


def copy_problems(checkout: Path, out: Path, levels: Sequence[int], precision: str) -> list[Problem]:
    """The problems of these levels in KernelBench's order; a precision contract that is not empty stands in each."""
    problems = []
    for level in levels:
        sources = list((checkout / "KernelBench" / f"level{level}").glob("[0-9]*_*.py"))
        if not sources:
            sys.exit(f"{checkout} has no KernelBench/level{level}: give a clone of KernelBench")
        folder = out / f"level{level}"
        folder.mkdir(parents=True, exist_ok=True)
        for source in sorted(sources, key=lambda p: int(p.stem.partition("_")[0])):
            problems.append(Problem(level, source.stem, folder))
            if not problems[-1].file.exists():
                contract = f"\n\nPRECISION = {precision!r}\n" if precision else ""
                write_text(problems[-1].file, source.read_text(encoding="utf-8") + contract)
    return problems


# ---------------------------------------------------------------- steps


def write_seeds(problems: Iterable[Problem], out: Path, target: str) -> None:
    with first_kernel.open_writer(out) as writer:
        for problem in (p for p in problems if p.load("seed") is None):
            with writer.lease() as worker:
                before = cpu_seconds(worker.pid)
            try:
                first_kernel.write_seed(str(problem.file), str(problem.seeded), target, writer)
                row = read_seed(problem.seeded.read_text())
            except KernelsearchError as error:
                row = {"why": str(error)}
            row["cpu_s"] = round(cpu_seconds(worker.pid) - before, 1) if worker.alive else None
            problem.save("seed", row)
            print(f"{problem.label}: {row.get('why') or 'seeded'} [{row['cpu_s']} CPU s]", flush=True)


def read_seed(text: str) -> Row:
    """How many kernels a seed has, and which library calls its launcher."""
    own = text.rpartition("# ---- The first kernels")[2]
    called = Counter(re.findall(r"torch\.(?:ops\.aten\.)?(\w+)\(", own))
    return {"kernels": own.count("@triton.jit"), "library": sorted(set(called) - ALLOCATIONS)}


def verify_seeds(problems: Iterable[Problem], target: str, limit: float) -> None:
    for problem in problems:
        if problem.load("verify") is None and "kernels" in (problem.load("seed") or {}):
            begun = time.perf_counter()
            said, why = call(limit, "", "verify", problem.seeded, "--target", target)
            row = {"word": said["verdict"], "why": said.get("reason", "")} if said else {"word": "failed", "why": why}
            problem.save("verify", {**row, "seconds": round(time.perf_counter() - begun, 1)})
            print(f"{problem.label}: {row['word']} {row['why']}", flush=True)


def search_problem(problem: Problem, gpu: str, database: Path, trials: int, limit: float, own_check: bool) -> Row:
    """The finding about the best kernel, or about the seed where that is faster; half of the limit is the search's.

    Without a finding, why there is none.
    """
    begun = time.perf_counter()
    common = ("--db", database, "--json", "--quiet")
    found, why = call(limit, gpu, "optimize", problem.file, "--trials", trials, "--budget-seconds", limit / 2, *common)
    row: Row = {"trials": found["trials"] if found else 0, "why": why, "finding": None}
    if found and found["best"]:
        whole = [f for f in found["confirmed"] if not f["champion_at"] and f["vs_seed"]]
        row["finding"] = next((f for f in whole if f["vs_seed"]["ratio"] > AS_FAST), None)
        if row["finding"] is None:
            left = max(60.0, limit - (time.perf_counter() - begun))
            row["finding"], row["why"] = call(left, gpu, "measure", problem.seeded, *common)
    elif found:
        row["why"] = "; ".join(f"{r['verdict']}: {r['reason']}" for r in found["rejected"]) or "no trial was finished"
    row["kernelbench"] = check_as_kernelbench(problem, gpu, database, row["finding"], limit) if own_check else None
    return {**row, "seconds": round(time.perf_counter() - begun, 1), "gpu": gpu}


def check_as_kernelbench(problem: Problem, gpu: str, database: Path, finding: Row | None, limit: float) -> Row | None:
    """What KernelBench's own check says of the found kernel, exported, else of the seed; None if there is neither."""
    new = problem.seeded
    if finding and finding["name"] != SEED:
        new = problem.folder / f"{problem.name}_export"
        label = f"kb-{problem.level}-{problem.name.partition('_')[0]}"
        place = ("--task", problem.seeded, "--db", database, "--out", new, "--name", label, "--force", "--json")
        exported, why = call(limit, gpu, "export", *place)
        if exported is None:
            return {"correct": None, "why": f"not exported: {why}"}
    if not new.exists():
        return None
    said, why = run_json(limit, gpu, sys.executable, Path(__file__).with_name("own_check.py"), problem.file, new)
    return said or {"correct": None, "why": why}


def call(limit: float, gpu: str, *words: Any) -> tuple[Row | None, str]:
    """(What a command of kernelsearch printed as JSON, or None and why)."""
    return run_json(limit, gpu, sys.executable, "-m", "kernelsearch", *words)


def run_json(limit: float, gpu: str, *words: Any) -> tuple[Row | None, str]:
    """(What a program printed as JSON, or None and why)."""
    seen = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
    command = list(map(str, words))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": {**os.environ, **seen}}
    with subprocess.Popen(command, **pipes) as program:
        running.add(program)
        try:
            stdout, stderr = program.communicate(timeout=0 if stopping.is_set() else limit)
        except subprocess.TimeoutExpired:
            program.kill()
            return None, f"no end within {limit:.0f} s"
        finally:
            running.discard(program)
    try:
        return json.loads(stdout), ""
    except ValueError:
        _, own, why = stderr.strip().rpartition("kernelsearch: ")  # with its advice, which has lines of its own
        return None, why if own else (why.splitlines() or [f"exit code {program.returncode}"])[-1]


def search_all(
    problems: Sequence[Problem],
    chosen: Sequence[Problem],
    out: Path,
    gpus: Sequence[str],
    search_one: Callable[[Problem, str], Row],
) -> None:
    """Searches the chosen problems, one at a time for each entry of gpus; the table is of all that are done."""
    free: queue.SimpleQueue[str] = queue.SimpleQueue()
    for gpu in gpus:
        free.put(gpu)

    def search(problem: Problem) -> None:
        gpu = free.get()
        try:
            row = search_one(problem, gpu)
        finally:
            free.put(gpu)
        if stopping.is_set():  # cut, so no result: the same command does it again
            return
        problem.save("search", row)
        write_text(out / "table.md", "\n".join(list_searches(problems)) + "\n")
        print(row_of_search(problem.label, row), flush=True)

    with ThreadPoolExecutor(len(gpus)) as pool:
        try:
            list(pool.map(search, [p for p in chosen if p.load("search") is None]))
        except KeyboardInterrupt:
            stopping.set()
            for program in list(running):
                program.kill()
            raise


# ---------------------------------------------------------------- tables


def times_of(row: Row) -> dict[str, float]:
    """Times in microseconds by name, `ours` among them; empty where nothing was confirmed."""
    finding = row.get("finding")
    if not finding or finding.get("status") != CONFIRMED:
        return {}
    shape = finding["shapes"][0]
    return {"ours": shape["time_us"], **{b["name"]: b["time_us"] for b in shape["baselines"] if "time_us" in b}}


def gain_over(row: Row, rivals: Iterable[str]) -> float | None:
    """The fastest rival's time over ours."""
    times = times_of(row)
    known = [times[r] for r in rivals if r in times]
    return min(known) / times["ours"] if known else None


def summarise(rows: Sequence[Row], rivals: Sequence[str]) -> Mapping[str, Any]:
    """The field's summary: problems with fast_p are correct and more than p times as fast; failures count as 1x."""
    gains = [gain_over(row, rivals) for row in rows]
    return {
        "problems": len(rows),
        "correct": sum((row.get("finding") or {}).get("status") in (CONFIRMED, UNSTABLE) for row in rows),
        "fast_1": sum(g is not None and g > 1 for g in gains),
        "fast_2": sum(g is not None and g > 2 for g in gains),
        "geomean": geometric_mean([g or 1.0 for g in gains]),
        "by_kernelbench": sum((row.get("kernelbench") or {}).get("correct") is True for row in rows),
    }


def row_of_search(label: str, row: Row) -> str:
    times, finding, why = times_of(row), row.get("finding") or {}, row.get("why", "")
    cells = [f"{times[n]:.1f}" if n in times else "-" for n in (EAGER, *MODES, "ours")]
    interval, verdict = "-", finding.get("status") or finding.get("verdict") or "no finding"
    if times:
        torch = [b for b in finding["shapes"][0]["baselines"] if b["name"] in (EAGER, *MODES) and "ratio" in b]
        if torch:
            least = min(torch, key=lambda b: b["time_us"])
            interval = f"{least['ratio']:.3f} [{least['low']:.3f}, {least['high']:.3f}]"
            verdict = "faster" if least["low"] > 1 + finding["margin"] else "right, not shown to be faster"
        why = why or ("the seed itself" if finding["name"] == SEED else "")
    else:
        why = why or finding.get("reason", "")
    theirs = row.get("kernelbench") or {"correct": None, "why": ""}
    own = {True: "correct", False: "wrong", None: "-"}[theirs["correct"]] + (theirs["why"] and f": {theirs['why']}")
    return f"| {label} | {' | '.join(cells)} | {interval} | {verdict} | {as_cell(why)} | {as_cell(own)} |"


def list_searches(problems: Sequence[Problem]) -> list[str]:
    """The summary by level and every row, as Markdown."""
    lines = ["| level | against | problems | correct | fast_1 | fast_2 | geomean | correct by KernelBench's check |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    done = [(p, row) for p in problems if (row := p.load("search")) is not None]
    for level in sorted({p.level for p, _ in done}):
        rows = [row for p, row in done if p.level == level]
        for words, rivals in (("eager", [EAGER]), ("torch.compile", [COMPILE]), ("its fastest mode", MODES)):
            s = summarise(rows, rivals)
            counts = " | ".join(str(s[n]) for n in ("problems", "correct", "fast_1", "fast_2"))
            lines.append(f"| {level} | {words} | {counts} | {s['geomean']:.3f} | {s['by_kernelbench']} |")
    lines += ["", f"| problem | {EAGER} us | {COMPILE} us | {MAX_AUTOTUNE} us | ours us | over the fastest of them | "
              "verdict | why not | KernelBench's check |", "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    return [*lines, *(row_of_search(p.label, row) for p, row in done)]


def list_seeds(problems: Sequence[Problem]) -> list[str]:
    """How many problems were seeded and judged, by level and kind, and every row, as Markdown."""
    lines = ["| level | kernels | problems | accepted | rejected or failed | not judged |", "|---|---|---|---|---|---|"]
    done = [(p, row, p.load("verify") or {}) for p in problems if (row := p.load("seed")) is not None]
    for level in sorted({p.level for p, *_ in done}):
        kinds: dict[str, list[str]] = {"Triton only": [], "Triton and library calls": [], "none": []}
        for _, row, judged in (d for d in done if d[0].level == level):
            kind = "none" if "why" in row else "Triton and library calls" if row["library"] else "Triton only"
            kinds[kind].append(judged.get("word", ""))
        for kind, words in kinds.items():
            good, unknown = words.count("accept"), words.count("")
            lines.append(f"| {level} | {kind} | {len(words)} | {good} | {len(words) - good - unknown} | {unknown} |")
    lines += ["", "| problem | kernels | library calls | CPU s | judged | why not |", "|---|---|---|---|---|---|"]
    for p, row, judged in done:
        cells = (
            row.get("kernels", "-"),
            ", ".join(row.get("library", ())) or "-",
            row["cpu_s"],
            judged.get("word", "-"),
        )
        why = row.get("why", "").removeprefix(f"{p.name}.py: ") or judged.get("why", "")
        lines.append(f"| {p.label} | {' | '.join(map(str, cells))} | {as_cell(why)} |")
    return lines


def as_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:200]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=[], metavar="LEVEL/NUMBER")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that a problem may take")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="problems under way on each GPU")
    parser.add_argument("--no-own-check", action="store_true", help="leave KernelBench's own check out")
    parser.add_argument("--precision", default="", help="the contract of float32 products, such as tf32x3")
    parser.add_argument("--target", default="auto", help="of --seeds-only")
    parser.add_argument("--seeds-only", action="store_true")
    parser.add_argument("--verify", action="store_true")
    options = parser.parse_args(arguments)
    problems = copy_problems(options.checkout, options.out, options.levels, options.precision)
    chosen = [p for p in problems if not options.only or f"{p.level}/{p.name.partition('_')[0]}" in options.only]
    steps: list[Callable[[], None]] = []
    if options.seeds_only:
        steps.append(lambda: write_seeds(chosen, options.out, options.target))
        if options.verify:
            steps.append(lambda: verify_seeds(chosen, options.target, options.limit))
    elif gpus := list_gpus():
        given = (options.out / "trials.db", options.trials, options.limit, not options.no_own_check)
        search_one: Callable[[Problem, str], Row] = lambda problem, gpu: search_problem(problem, gpu, *given)
        steps.append(lambda: search_all(problems, chosen, options.out, gpus * options.at_once, search_one))
    else:
        sys.exit("no GPU is here, so nothing can be measured: give --seeds-only")
    name, rows = ("seeds.md", list_seeds) if options.seeds_only else ("table.md", list_searches)
    try:
        for step in steps:
            step()
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on from here")
    finally:
        write_text(options.out / name, "\n".join(rows(problems)) + "\n")
    print(f"wrote {options.out / name}")


if __name__ == "__main__":
    main()
