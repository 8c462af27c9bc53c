"""Every shipped task beside the libraries that do its job, and PyTorch: one table.

    python studies/peers.py OUT [TASK...] [--trials 100] [--seeds 1 2 3] [--table]

A GPU is needed, and `kernelsearch[peers]` for the libraries; with several GPUs, each has a task of its own under way.
OUT gets a database and a log for each task and seed: what is confirmed there already is not searched again. Times are
those of the confirmed protocol. A cell has the baseline's time over that of the seed's result, of the worst seed and,
where a task has several shapes, of the worst shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from helion.run import read_baselines, run_study
from kernelsearch.measure.timing.baselines import COMPILE, EAGER, MAX_AUTOTUNE, SEED

HERE, PYTORCH = Path(__file__).parent, (EAGER, COMPILE, MAX_AUTOTUNE)
TASKS = (
    "attention", "column_sum", "cross_entropy", "layernorm", "linear_gelu", "matmul", "rmsnorm", "softmax",
    "softmax_wide", "swiglu",
)  # fmt: skip


def format_row(out: Path, task: str, seeds: Sequence[int]) -> str:
    """The worst ratio to each peer, and to the fastest of PyTorch."""
    found = [rows for seed in seeds if (rows := list(read_baselines(out / f"{task}-{seed}.db")))]
    if not found:
        return f"| {task} | not confirmed | |"
    shapes = [ratios for rows in found for ratios in rows]
    others = sorted({name for ratios in shapes for name in ratios if name not in (SEED, *PYTORCH)})
    worst = {name: min(ratios[name] for ratios in shapes if name in ratios) for name in others}
    fastest = min(ratio for ratios in shapes for name, ratio in ratios.items() if name in PYTORCH)
    said = ", ".join(f"{name} {ratio:.3f}" for name, ratio in worst.items())
    return f"| {task} ({len(found)} seeds) | {said or 'none'} | {fastest:.3f} |"


def main() -> None:
    head = "| task | a peer's time over ours, worst seed and shape | the fastest of PyTorch |"
    run_study(__doc__ or "", [HERE / task / f"{task}.py" for task in TASKS], 100, head, format_row)


if __name__ == "__main__":
    main()
