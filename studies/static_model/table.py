"""How well the static model ranks recorded spaces of kernels that it was not fitted to: `table.py CACHE [--fit]`.

Every config of `studies/spaces/` is compiled here, with no GPU, and its estimate held against its recorded time. The
constants behind each row come from a fit to the kernels of all other families (softmax, norms, matrix products, cross
entropy, column sum, attention, swiglu). CACHE is a folder outside the repository for what the compiler said. With
--fit, the constants are fitted to all spaces, and `kernelsearch/measure/static_model/fitted.py` is written.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import lzma
import pickle
import statistics
import sys
from datetime import date
from pathlib import Path

import numpy as np
from compiled import Cache, compile_all, launches
from fitting import BOUNDS, Candidate, Measured, Score, Sets, fit, left_out

from kernelsearch.compile import blocks, ir, ptx, ttgir, ttir
from kernelsearch.kernel import targets
from kernelsearch.measure.static_model import device_launch, usage
from kernelsearch.measure.static_model import fitted as fitted_module
from kernelsearch.measure.static_model.constants import Constants
from kernelsearch.trial.bench import Bench

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recorded.space import read

SPACES = Path(__file__).resolve().parents[1] / "spaces"
READERS = (blocks, ir, ptx, ttgir, ttir, device_launch, usage)
TARGET = "h100"
ASKS, DRAWS = 5, 200


def candidates(name: str, cache: Cache) -> list[Candidate]:
    """The space's measured configs with what they use; kept until the space or a reader of compiler texts changes."""
    space, task = SPACES / f"{name}.json.xz", SPACES / "tasks" / f"{name}.py"
    kept = cache.folder / f"{name}-{_digest(space, task)}.pkl"
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    with Bench.open(task, TARGET, compile_workers=1) as bench:
        rows = [(row, {**bench.facts.config, **row.config}) for row in read(space).rows if row.time_us is not None]
        shapes = tuple(s.key for s in bench.facts.shapes)
        compile_all(bench, [(bench.seed, config) for _, config in rows], shapes, cache)
        found = []
        for row, config in rows:
            done = launches(bench, bench.seed, config, shapes[0], cache)
            if done is not None:
                own = config == dict(bench.facts.config)
                found.append(Candidate(row.config, row.time_us, tuple(map(usage.compute_usage, done)), own))
    kept.write_bytes(pickle.dumps(found))
    return found


def _digest(space: Path, task: Path) -> str:
    texts = [space.read_bytes(), task.read_bytes(), *(inspect.getsource(m).encode() for m in READERS)]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:16]


def names() -> list[str]:
    return sorted(p.name.removesuffix(".json.xz") for p in SPACES.glob("*.json.xz"))


def table(scores: dict[str, Score]) -> str:
    """The scores as Markdown."""
    lines = [
        "| kernel | n | Spearman | regret of top 10 | regret of top 1 | median estimated / measured "
        "| within 5 % of best | their largest estimate / best |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, s in scores.items():
        lines.append(f"| {name} | {s.n} | {s.rho:.2f} | {s.regret:.3f} | {s.first:.2f} | {s.ratio:.2f} | {s.near} "
                     f"| {s.worst_near:.2f} |")  # fmt: skip
    every = list(scores.values())
    lines.append(
        f"| **median** | | **{statistics.median(s.rho for s in every):.2f}** "
        f"| **{statistics.median(s.regret for s in every):.3f}** | {statistics.median(s.first for s in every):.2f} "
        "| | | |"
    )
    lines.append(
        f"| worst | | {min(s.rho for s in every):.2f} | {max(s.regret for s in every):.3f} "
        f"| {max(s.first for s in every):.2f} | | | {max(s.worst_near for s in every):.2f} |"
    )
    return "\n".join(lines)


def first_asks(sets: Sets, constants: dict[str, Constants]) -> str:
    """What a tuner gets from compiling some random configs and measuring the five that are estimated as fastest."""
    rng, target = np.random.default_rng(0), targets.target_by_name(TARGET)
    lines = [
        "| kernel | of 20 | of 40 | of 80 | of all | 5 at random | 30 at random |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in sets.items():
        measured = Measured.of(rows)
        estimates, times = measured.predicted(target, constants[name]), measured.time_us / measured.time_us.min()
        orders = [rng.permutation(len(times)) for _ in range(DRAWS)]

        def best(some: int, asks: int, key: np.ndarray, orders=orders, times=times) -> float:
            picks = (order[:some][np.argsort(key[order[:some]], kind="stable")[:asks]] for order in orders)
            return float(np.median([times[p].min() for p in picks]))

        found = [best(some, ASKS, estimates) for some in (20, 40, 80, len(times))]
        blind = [best(n, n, np.zeros(len(times))) for n in (ASKS, 30)]
        lines.append(f"| {name} | " + " | ".join(f"{ratio:.3f}" for ratio in (*found, *blind)) + " |")
    return "\n".join(lines)


def write(constants: Constants, scores: dict[str, Score]) -> None:
    rhos, regrets = [s.rho for s in scores.values()], [s.regret for s in scores.values()]
    ratios = [s.ratio for s in scores.values()]
    values = "\n".join(f"    {name}={getattr(constants, name)!r}," for name in BOUNDS)
    Path(fitted_module.__file__).write_text(f'''"""The static model's fitted constants and its error; written by \
`studies/static_model/table.py --fit`, not by hand."""

from __future__ import annotations

from kernelsearch.measure.static_model.constants import Constants

FITTED = Constants(
{values}
)

SPACES, DEVICE, SOURCE = {len(scores)}, "H100", "studies/static_model/findings.md, {date.today()}"
SPEARMAN = ({min(rhos):.2f}, {statistics.median(rhos):.2f}, {max(rhos):.2f})
"""Worst, median and best over recorded spaces, each with constants that were fitted to other kernels only."""
REGRET = ({statistics.median(regrets):.3f}, {max(regrets):.3f})
"""Of the best of the ten candidates that the model ranks first, over the best of the space: median and worst."""
RATIO = ({min(ratios):.2f}, {max(ratios):.2f})
"""Estimated over measured time, median of a space: least and most."""
''')


def write_estimates(sets: Sets, constants: dict[str, Constants], path: str) -> None:
    """Every candidate's estimate by constants of other families: {space: {"names", "rows": [[values, us]]}}."""
    found = {}
    for name, rows in sets.items():
        names = list(rows[0].config)
        estimates = Measured.of(rows).predicted(targets.target_by_name(TARGET), constants[name])
        told = [[[r.config[n] for n in names], round(float(e), 3)] for r, e in zip(rows, estimates, strict=True)]
        found[name] = {"names": names, "rows": told}
    Path(path).write_bytes(lzma.compress(json.dumps(found, separators=(",", ":")).encode(), preset=9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", help="a folder for compiled candidates, outside the repository")
    parser.add_argument(
        "--fit", action="store_true", help="fit to all spaces and write kernelsearch/measure/static_model/fitted.py"
    )
    parser.add_argument("--estimates", help="also write every candidate's estimate to this file")
    options = parser.parse_args()
    target, cache = targets.target_by_name(TARGET), Cache(options.cache)
    sets: Sets = {name: candidates(name, cache) for name in names()}
    constants = left_out(sets, target)
    scores = {name: Score.of(rows, target, constants[name]) for name, rows in sets.items()}
    print(f"{table(scores)}\n\nthe best of {ASKS} asks, over the best of the space:")
    print(first_asks(sets, constants))
    if options.estimates:
        write_estimates(sets, constants, options.estimates)
    if options.fit:
        everything, left = fit(sets, target)
        fitted = {n: Score.of(r, target, everything) for n, r in sets.items()}
        print(f"\nfitted to all: loss {left:.4f}\n{table(fitted)}")
        write(everything, scores)


if __name__ == "__main__":
    main()
