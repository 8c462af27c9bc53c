"""Seven layers of training and their gradients at five sizes each, beside Liger and torch.compile: one table.

    python studies/gradients/run.py OUT [TASK...] [--trials 60] [--seeds 1 2 3] [--table]

A GPU is needed, and `liger-kernel` for its part; with several GPUs, each has a task of its own under way. OUT gets a
database and a log for each task and seed: what is confirmed there already is not searched again. Times are those of
the confirmed protocol. A gradient's baselines are the backward passes of the compiled forward and of Liger's function,
from what their forward passes have saved, while ours computes from the inputs what it needs again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from helion.run import REFUSED, format_wins, is_rival, read_baselines, run_study  # noqa: E402
from kernelsearch.measure.timing.baselines import MAX_AUTOTUNE  # noqa: E402

LAYERS = ("rms_norm", "layer_norm", "swiglu", "geglu", "cross_entropy", "rope", "kl_div")
TASKS = tuple(name for layer in LAYERS for name in (layer, f"{layer}_gradient"))
LIGER = ("liger", "liger backward")


def format_row(out: Path, task: str, seeds: Sequence[int]) -> str:
    """The worst of the seeds: shapes where Liger, and the fastest that PyTorch has, take longer than the table."""
    found = [rows for seed in seeds if (rows := list(read_baselines(out / f"{task}-{seed}.db")))]
    if not found:
        return f"| {task} | not confirmed | |"
    cells = [f"{task} ({len(found)} seeds)"]
    for names in (LIGER, None):
        ratios = [list(filter(None, (_pick(row, names) for row in rows))) for rows in found]
        if not all(ratios):
            cells.append("not timed")
            continue
        cells.append(", ".join(format_wins(ratios)))
    return f"| {' | '.join(cells)} |"


def _pick(ratios: dict[str, float], names: Sequence[str] | None) -> float | None:
    """The least ratio to one of these baselines, also with refused values; names of None: to PyTorch's by default."""
    own = (*LIGER, *(name + REFUSED for name in LIGER))
    chosen = [r for n, r in ratios.items() if (n in own if names else is_rival(n) and n not in (*LIGER, MAX_AUTOTUNE))]
    return min(chosen, default=None)


def main() -> None:
    head = "| task | faster than Liger, least of the seeds; geometric mean | than PyTorch's fastest |"
    run_study(__doc__ or "", [HERE / f"{task}.py" for task in TASKS], 60, head, format_row)


if __name__ == "__main__":
    main()
