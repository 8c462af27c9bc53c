"""How often an honest way is rejected: `python studies/referee/false_rejections.py [--seeds N] [OPERATION...]`.

Every honest way of tests/verify/variants.py in three dtypes, judged with N secret seeds; a verdict is two shapes in
all regimes, with as many scales as the referee draws, and those that are optional where the first way is right on them
(it stands for a task's own kernel); a limit that is missed by a hair has a second draw. It prints the worst and the
median error over what is allowed, and the chance of a rejection that the largest tenth of the ratios foretells: Hill's
estimate of their tail, P(ratio > 1) = share * threshold**index. The last column is the smallest ratio at which a cheat
of the operation was rejected in these seeds.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "verify"))

import variants

from kernelsearch.trial.rejection import REDRAW, is_near
from kernelsearch.verify import regimes

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def fit_tail(ratios: list[float]) -> float:
    """The chance of a ratio above 1, by Hill's estimate from the largest tenth."""
    ranked = sorted(ratios, reverse=True)
    top = max(5, len(ranked) // 10)
    if len(ranked) <= top or ranked[0] <= 0.0:
        return math.nan
    threshold = max(ranked[top], 1e-9)
    excess = sum(math.log(r / threshold) for r in ranked[:top]) / top
    return top / len(ranked) * min(1.0, threshold ** (1.0 / max(excess, 1e-9)))


def draw(name: str, dtype: torch.dtype, seed: int) -> list[Any]:
    """The cases of one verdict, without optional regimes on which the first way is wrong."""
    made = list(variants.cases(name, dtype, seed=seed, repeated=True))
    _, first = variants.worst(made, next(iter(variants.OPERATIONS[name].honest.values())))
    left = {e.regime for (e, _), v in zip(made, first) if not v.accepted} & set(regimes.OPTIONAL)
    return [each for each in made if each[0].regime not in left]


def judge_seed(name: str, dtype: torch.dtype, seed: int) -> Iterator[tuple[str, float, list[float]]]:
    """Each honest way with its worst error over what is allowed (infinity: rejected), and those of rejected cheats."""
    operation, first = variants.OPERATIONS[name], 2_000_003 * seed + 17
    made, second = draw(name, dtype, first), cache(lambda: draw(name, dtype, first + REDRAW))

    def judge(way: Any) -> Any:
        verdict, _ = variants.worst(made, way)
        return variants.worst(second(), way)[0] if is_near(verdict) else verdict

    verdicts = [judge(way) for way in operation.cheats.values()]
    cheats = [v.error_ratio or math.inf for v in verdicts if not v.accepted]
    for label, way in operation.honest.items():
        verdict = judge(way)
        if not verdict.accepted:
            print(f"{name}, {dtype}, {label}, seed {seed}: {verdict.detail['regime']}: {verdict.reason}", flush=True)
        yield label, (verdict.error_ratio or 0.0) if verdict.accepted else math.inf, cheats


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("operations", nargs="*", default=list(variants.OPERATIONS))
    options.add_argument("--seeds", type=int, default=50)
    options.add_argument("--first", type=int, default=0, help="number of the first seed")
    options.add_argument("--seconds", type=float, default=math.inf, help="begin no seed later than this")
    given = options.parse_args()
    torch.set_num_threads(1)
    ratios, cheats, began = defaultdict(list), defaultdict(list), time.monotonic()
    for seed in range(given.first, given.first + given.seeds):
        for name, dtype in itertools.product(given.operations, DTYPES):
            if time.monotonic() - began > given.seconds:
                break
            for label, ratio, found in judge_seed(name, dtype, seed):
                ratios[name, str(dtype)[6:], label].append(ratio)
                cheats[name, str(dtype)[6:]] += found
    print("| operation | dtype | way | verdicts | rejected | worst | median | fitted chance | smallest cheat |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, dtype, label), all_of in ratios.items():
        row = (name, dtype, label, len(all_of), sum(r > 1.0 for r in all_of), f"{max(all_of):.2f}")
        row = (*row, f"{sorted(all_of)[len(all_of) // 2]:.2f}", f"{fit_tail(all_of):.1e}")
        print("|", " | ".join(map(str, (*row, f"{min(cheats[name, dtype], default=math.nan):.3g}"))), "|")
    judged = [ratio for all_of in ratios.values() for ratio in all_of]
    print(f"\n{sum(r > 1.0 for r in judged)} of {len(judged)} verdicts rejected an honest way")


if __name__ == "__main__":
    main()
