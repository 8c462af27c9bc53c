"""Helion's pretuned kernels at their own shapes, by their own rule: one search for each of 14 families, one table.

    python studies/helion/run.py OUT [TASK...] [--trials 100] [--seeds 1 2 3] [--table]

A GPU is needed; with several, each has a family of its own under way, and its part of the processors. OUT gets a
database and a log for each family and seed: what is confirmed there already is not searched again. A kernel file
FAMILY_start.py is a second start of that family's search. The rule is that of
`pretuned_kernels` in pytorch/helion: at each shape the time over that of the faster one of the reference in eager
mode and under torch.compile, with a cold L2 cache; `torch._scaled_mm` is a family's baseline where it is named. Times
are those of the confirmed protocol, at each shape of what the table runs there. HELION has what their own test
expects on an H100 (wins, geometric mean), read on 2026-11-27.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import geometric_mean

from kernelsearch.measure.timing.baselines import MAX_AUTOTUNE, SEED
from kernelsearch.measure.timing.by_shape import choose_findings
from kernelsearch.measure.timing.device import list_gpus
from kernelsearch.record.rows import KERNELS
from kernelsearch.record.store import Store

HERE = Path(__file__).parent
REFUSED = " (values refused)"
HELION = {
    "softmax": (99, 1.50),
    "layer_norm": (37, 1.29),
    "rms_norm": (28, 1.18),
    "cross_entropy": (21, 1.68),
    "rope": (6, 1.45),
    "scaled_mm": (23, 1.14),
    "silu_mul_fp8": (22, 1.15),
    "dynamic_per_token_scaled_fp8_quant": (18, 1.22),
    "per_token_group_fp8_quant": (22, 2.45),
    "rms_norm_dynamic_per_token_quant": (35, 1.34),
    "rms_norm_per_block_quant": (24, 3.30),
    "silu_and_mul_per_block_quant": (24, 2.68),
    "fused_qk_norm_rope": (21, 7.2),
    "vector_add": (5, 0.97),
}


def search_all(out: Path, files: Sequence[Path], seeds: Sequence[int], trials: int) -> None:
    """Searches each task with each seed, those with a confirmed table excepted: one at a time on each GPU."""
    gpus, mine = list_gpus(), sorted(os.sched_getaffinity(0))
    if not gpus:
        sys.exit("a GPU is needed: times are confirmed")
    free: queue.Queue[str] = queue.Queue()
    list(map(free.put, gpus))
    cores = {gpu: mine[i :: len(gpus)] for i, gpu in enumerate(gpus)}

    def search(file: Path, seed: int) -> None:
        database, log = out / f"{file.stem}-{seed}.db", out / f"{file.stem}-{seed}.txt"
        if list(read_ratios(database)):
            return
        gpu = free.get()
        try:
            words = ["optimize", str(file), "--trials", str(trials), "--seed", str(seed), "--db", str(database)]
            words += [word for start in file.parent.glob(f"{file.stem}_start.py") for word in ("--start", str(start))]
            pinned = ["taskset", "-c", ",".join(map(str, cores[gpu])), sys.executable, "-m", "kernelsearch", *words]
            with log.open("w") as said:
                place = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
                subprocess.run(pinned, env=place, stdout=said, stderr=said, cwd=out)
        finally:
            free.put(gpu)

    with ThreadPoolExecutor(len(gpus)) as pool:
        list(pool.map(lambda one: search(*one), [(file, seed) for seed in seeds for file in files]))


def read_baselines(database: Path) -> Iterator[Mapping[str, float]]:
    """At each shape, by the name of the baseline, its time over that of what the table runs there.

    Names of those whose values are refused end in REFUSED.
    """
    if not database.exists():
        return
    with Store.open(database, write=False) as store:
        for task in store.query("SELECT digest FROM task"):
            findings = store.load_confirmations(task["digest"])
            for shape, finding in choose_findings(findings, KERNELS).items():
                entry = next(s for s in finding["shapes"] if s["shape"] == shape)
                ratios = {b["name"]: b["ratio"] for b in entry["baselines"] if "ratio" in b}
                refused = {b["name"] + REFUSED: b["refused_ratio"] for b in entry["baselines"] if "refused_ratio" in b}
                yield ratios | refused


def read_ratios(database: Path) -> Iterator[float]:
    """The same of the fastest baseline that the rule knows."""
    for ratios in read_baselines(database):
        yield min(ratio for name, ratio in ratios.items() if is_rival(name) and name != MAX_AUTOTUNE)


def is_rival(name: str) -> bool:
    """Whether a baseline is one of somebody else, and right."""
    return name != SEED and not name.endswith(REFUSED)


def format_wins(found: Sequence[Sequence[float]]) -> tuple[str, str]:
    """(The fewest wins of a seed, the geometric mean of the worst one and the worst shape) of ratios by seed."""
    worst = min(found, key=geometric_mean)
    least = min(sum(ratio > 1.0 for ratio in ratios) for ratios in found)
    return f"{least} of {len(worst)}", f"{geometric_mean(worst):.3f} ({min(map(min, found)):.3f} at worst)"


def format_row(out: Path, family: str, seeds: Sequence[int]) -> str:
    """The worst of the seeds, beside what Helion expects of itself."""
    found = [ratios for seed in seeds if (ratios := list(read_ratios(out / f"{family}-{seed}.db")))]
    wins, mean = HELION[family]
    if not found:
        return f"| {family} | not confirmed | | {wins} | {mean:.2f} |"
    return f"| {family} ({len(found)} seeds) | {' | '.join(format_wins(found))} | {wins} | {mean:.2f} |"


def run_study(about: str, files: Sequence[Path], trials: int, head: str, write_row: Callable[..., str]) -> None:
    """Searches task files, all or those that the command line names, and prints a table with a row for each."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("tasks", nargs="*", default=[file.stem for file in files], metavar="TASK")
    options.add_argument("--trials", type=int, default=trials)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--table", action="store_true", help="print the table of what OUT has, without a search")
    given = options.parse_args()
    by_name = {file.stem: file for file in files}
    if unknown := sorted({*given.tasks} - {*by_name}):
        options.error(f"no task {unknown[0]}: there are {', '.join(by_name)}")
    given.out.mkdir(parents=True, exist_ok=True)
    out = given.out.resolve()
    if not given.table:
        search_all(out, [by_name[task] for task in given.tasks], given.seeds, given.trials)
    print(f"{head}\n{'|---' * (head.count('|') - 1)}|")
    for task in given.tasks:
        print(write_row(out, task, given.seeds))


def main() -> None:
    head = "| family | wins, least of the seeds | geometric mean, worst seed | Helion's wins | mean |"
    run_study(__doc__ or "", [HERE / f"{family}.py" for family in HELION], 100, head, format_row)


if __name__ == "__main__":
    main()
