"""What each typed edit gains on a task's first kernel: `python studies/train/usual_gains.py LINEAGE.db ...`.

Of each run the first trial of each edit on the seed counts. Its gain is the log of the seed's best time over the best
time of the kernel that it made, both after the tuning that the search gave them; one that lost counts as 0, because a
search keeps the seed. The mean over runs has one more, in which the edit gained what edits gain in the mean: what was
tried once is not believed as much as what was tried often. `--without` leaves out tasks whose names begin so, `--names`
prints the dictionary of `kernelsearch/propose/edits/registry.py`.
"""

import json
import math
import sqlite3
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import click


def list_gains(databases, without=()):
    """The log gains of each edit, by name, and the task of each."""
    gains = defaultdict(list)
    for path in databases:
        database = sqlite3.connect(path)
        runs = database.execute("SELECT run.id, task.name FROM run JOIN task ON task.digest = run.task").fetchall()
        for run, task in runs:
            if not task.startswith(tuple(without) or ("\0",)):
                for edit, gain in _read_run(database, run).items():
                    gains[edit].append((gain, task))
    return gains


def _read_run(database, run):
    asked = "SELECT kernel, proposal, edit, kind, time_us FROM trial WHERE run = ? ORDER BY number"
    rows = database.execute(asked, (run,)).fetchall()
    best = defaultdict(lambda: math.inf)
    for kernel, _, _, _, time_us in rows:
        best[kernel] = min(best[kernel], time_us or math.inf)
    found = {}
    for kernel, proposal, edit, kind, _ in rows:
        plain = kind == "rewrite" and edit and "+" not in edit and ":" not in edit
        if plain and json.loads(proposal)["parents"] == [rows[0][0]]:
            found.setdefault(edit, math.log(max(1.0, best[rows[0][0]] / best[kernel])))
    return found


def smooth(gains):
    """The usual gain of each edit, the largest first, and that of edits in the mean."""
    sums = {edit: sum(g for g, _ in tried) for edit, tried in gains.items()}
    mean = fmean(total / len(gains[edit]) for edit, total in sums.items())
    usual = {edit: (total + mean) / (len(gains[edit]) + 1) for edit, total in sums.items()}
    return {e: round(m, 3) for e, m in sorted(usual.items(), key=lambda pair: -pair[1])}, round(mean, 3)


@click.command()
@click.argument("databases", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--without", multiple=True, help="Leave out tasks whose names begin so.")
@click.option("--names", is_flag=True, help="Print the dictionary alone.")
def main(databases, without, names):
    """Prints each edit's usual gain, in how many runs it was tried, and where it gained most."""
    gains = list_gains(databases, without)
    usual, mean = smooth(gains)
    if names:
        click.echo(json.dumps(usual))
        return
    click.echo("| edit | usual log gain | runs | gained 1 % | most |\n|---|---|---|---|---|")
    for edit, gain in usual.items():
        most, task = max(gains[edit])
        count = sum(g > 0.01 for g, _ in gains[edit])
        click.echo(f"| {edit} | {gain:.3f} | {len(gains[edit])} | {count} | {math.exp(most):.2f}x {task} |")
    click.echo(f"\nThe mean of edits: {mean}.")


if __name__ == "__main__":
    main()
