"""What the static model says of binaries of the Triton that is installed: `versions.py CACHE [--sample 40]`.

A sample of each recorded space is compiled here, with no GPU, and the shipped model's estimates are held against the
times that were recorded with Triton 3.6. Run it once in an environment of each version: CACHE/estimates-VERSION.json
keeps the estimates, and the last columns compare with each other version that is there. The shipped constants were
fitted to these spaces (as 3.7.1 compiles them), so the columns say how versions differ, not how good the model is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import numpy as np
import triton
from compiled import Cache, compile_all, launches
from fitting import Candidate, Measured
from scipy.stats import spearmanr
from table import SPACES, TARGET, names

from kernelsearch.kernel import targets
from kernelsearch.measure.static_model import usage
from kernelsearch.measure.static_model.fitted import FITTED
from kernelsearch.trial.bench import Bench

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recorded.space import read


def sampled(name: str, size: int, cache: Cache) -> dict[str, tuple[float, float]]:
    """By config: measured and estimated microseconds, for those of a fixed sample that compile."""
    target = targets.target_by_name(TARGET)
    with Bench.open(SPACES / "tasks" / f"{name}.py", TARGET, compile_workers=1) as bench:
        rows = [row for row in read(SPACES / f"{name}.json.xz").rows if row.time_us is not None]
        picks = np.random.default_rng(0).permutation(len(rows))[:size]
        chosen = [(rows[i], {**bench.facts.config, **rows[i].config}) for i in sorted(picks)]
        shape = bench.facts.shapes[0].key
        compile_all(bench, [(bench.seed, config) for _, config in chosen], (shape,), cache)
        found = {}
        for row, config in chosen:
            done = launches(bench, bench.seed, config, shape, cache)
            if done is not None:
                one = Measured.of([Candidate(row.config, row.time_us, tuple(map(usage.compute_usage, done)))])
                found[json.dumps(config, sort_keys=True)] = row.time_us, float(one.predicted(target, FITTED)[0])
    return found


def row(name: str, mine: dict, others: dict[str, dict]) -> str:
    """One line of the table: this version against the recorded times, then against each other version."""
    measured, estimated = np.array(list(mine.values())).T
    cells = [name, str(len(mine)), f"{spearmanr(measured, estimated).statistic:.2f}",
             f"{statistics.median(estimated / measured):.2f}"]  # fmt: skip
    for other in others.values():
        both = sorted(mine.keys() & other.get(name, {}).keys())
        ratios = np.array([mine[c][1] / other[name][c][1] for c in both])
        cells.append(
            f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f}), {(abs(ratios - 1) > 0.1).mean():.0%}"
        )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", help="a folder for what the compilers said, outside the repository")
    parser.add_argument("--sample", type=int, default=40, help="configs of each space")
    options = parser.parse_args()
    folder = Path(options.cache)
    cache = Cache(folder / triton.__version__)
    mine = {name: sampled(name, options.sample, cache) for name in names()}
    kept = folder / f"estimates-{triton.__version__}.json"
    kept.write_text(json.dumps(mine))
    others = {
        p.stem.partition("-")[2]: json.loads(p.read_text())
        for p in sorted(folder.glob("estimates-*.json"))
        if p != kept
    }
    heads = [f"over {v}: median (range), more than 10 % apart" for v in others]
    print(
        f"| Triton {triton.__version__} | n | Spearman | median estimated / measured | "
        + "".join(f"{h} | " for h in heads)
    )
    print("|" + "---|" * (4 + len(heads)))
    for name, found in mine.items():
        print(row(name, found, others))


if __name__ == "__main__":
    main()
