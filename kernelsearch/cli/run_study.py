"""`study`: runs every task with every arm and every seed at equal budget, several runs at a time, in one database.

Seeds come first, then tasks, then arms, so that a study that is cut short has whole comparisons. A finished run is
not run again, an unfinished one goes on; what one run has measured no other measures again (`reuse.py`), while each
trial still counts. The report is made from the database alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kernelsearch.core.errors import StudyError
from kernelsearch.record.store import Store
from kernelsearch.report import study as report
from kernelsearch.search.study import definition
from kernelsearch.search.study.definition import Study
from kernelsearch.search.study.run import Options, Running

__all__ = ["Options", "main"]


def main(path: str, options: Options) -> int:
    """Runs what is left of a study and prints its report. Returns the exit code; raises KernelsearchError for misuse."""
    told = None if _is_database(path) else definition.read(path)
    db = options.db or (path if told is None else str(Path(path).with_suffix(".db")))
    if told is None and not options.report:
        raise StudyError(f"{path} is a database: give the study's .toml to run it, or --report for its report")
    failed = 0
    if not options.report:
        say = (lambda text: None) if options.quiet else (lambda text: print(text, file=sys.stderr, flush=True))
        with Store.open(db) as store:
            failed = Running(told, store, options, say).run()
    with Store.open(db, write=False) as store:
        found = report.facts(store, told.name if told else None, *_order(told))
    print(
        json.dumps(found, indent=None, separators=(",", ":")) if options.as_json else report.as_markdown(found), end=""
    )
    return 1 if failed else 0


def _is_database(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(15) == b"SQLite format 3"
    except OSError:
        return False


def _order(told: Study | None) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return (tuple(a.name for a in told.arms), told.checkpoints) if told else ((), ())
