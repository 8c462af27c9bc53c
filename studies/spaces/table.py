"""The table of studies/spaces/README.md: strategies on every recorded space of this folder, and of others if named.

python studies/spaces/table.py --seeds 8 --trials 200 random tpe surrogate bayes
"""

import json
import math
import statistics
import sys
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recorded import score, simulation
from recorded import space as recorded_space

HERE = Path(__file__).parent


def row(space, name, seeds, trials, noise, window):
    """How one strategy does on one space: evaluations per run, score, milliseconds per trial."""
    most = min(trials, max(60, score.evaluation_budget(space)))
    started = time.process_time()
    runs = [simulation.simulate(space, name, most, seed, noise, window) for seed in range(seeds)]
    spent = time.process_time() - started
    return {
        "space": space.task, "strategy": name, "configs": len(space.rows), "budget": score.evaluation_budget(space),
        "trials": most,
        "to_2_percent": [n if math.isfinite(n) else None for n in (score.count_evaluations(space, r) for r in runs)],
        "score": round(score.score(space, runs, most), 3),
        "ms": round(1000 * spent / sum(len(r.best_us) for r in runs), 2),
    }  # fmt: skip


def printed(rows):
    """Markdown: median evaluations to 2 %, and the score, a column a strategy."""
    names, spaces = list(dict.fromkeys(r["strategy"] for r in rows)), list(dict.fromkeys(r["space"] for r in rows))
    by = {(r["space"], r["strategy"]): r for r in rows}
    print("| space | configs | " + " | ".join(names) + " |")
    print("|---|---|" + "---|" * len(names))
    for space in spaces:
        cells = [f"{_median(by[space, n]):g} ({by[space, n]['score']:+.2f})" for n in names]
        print(f"| {space} | {by[space, names[0]]['configs']} | " + " | ".join(cells) + " |")
    scores = {n: [by[s, n]["score"] for s in spaces] for n in names}
    print("| **mean score** | | " + " | ".join(f"{statistics.fmean(scores[n]):+.3f}" for n in names) + " |")
    print("| **worst score** | | " + " | ".join(f"{min(scores[n]):+.2f}" for n in names) + " |")
    print(
        "| **most evaluations** | | " + " | ".join(f"{max(_median(by[s, n]) for s in spaces):g}" for n in names) + " |"
    )
    print(
        "| **ms a trial** | | "
        + " | ".join(f"{statistics.fmean(by[s, n]['ms'] for s in spaces):.1f}" for n in names)
        + " |"
    )


def _median(found):
    return statistics.median(math.inf if n is None else n for n in found["to_2_percent"])


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--seeds", default=8, show_default=True)
@click.option("--trials", default=200, show_default=True, help="At most; a space's own budget is less.")
@click.option("--space", "spaces", multiple=True, help="Only these files.")
@click.option("--noise", is_flag=True)
@click.option("--window", default=1, show_default=True)
@click.option("--json", "out", help="Also write the rows to this file.")
def main(names, seeds, trials, spaces, noise, window, out):
    """Prints the table for strategies or samplers."""
    paths = spaces or sorted(map(str, HERE.glob("*.json.xz")))
    rows = []
    for name in names:
        for path in paths:
            rows.append(row(recorded_space.read(path), name, seeds, trials, noise, window))
            click.echo(
                f"{name} on {rows[-1]['space']}: {rows[-1]['to_2_percent']} score {rows[-1]['score']:+.2f}", err=True
            )
            if out:
                Path(out).write_text(json.dumps(rows))
    printed(rows)


if __name__ == "__main__":
    main()
