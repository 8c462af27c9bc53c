"""`study`: runs every task with every arm and every seed at equal budget, several runs at a time, in one database.

Seeds come first, then tasks, then arms, so that a study that is cut short has whole comparisons. A finished run is
not run again, an unfinished one goes on. No run measures what another one has measured (`reuse.py`), but each trial
still counts. The report is made from the database alone.
"""

from __future__ import annotations

import json
from pathlib import Path

from kernelsearch.core.errors import StudyError
from kernelsearch.record.store import Store
from kernelsearch.report import study_facts as report
from kernelsearch.report.terminal import make_say
from kernelsearch.search.study import definition
from kernelsearch.search.study.run import StudyOptions, StudyRunner

__all__ = ["StudyOptions", "main"]


def main(path: str, options: StudyOptions) -> int:
    """Runs the rest of a study and prints its report. Returns the exit code; raises KernelsearchError for misuse."""
    study = None if _is_database(path) else definition.read_study(path)
    db = options.db or (path if study is None else str(Path(path).with_suffix(".db")))
    if study is None and not options.report:
        raise StudyError(f"{path} is a database: give the study's .toml to run it, or --report for its report")
    failed = 0
    if study is not None and not options.report:
        say = make_say(options.quiet)
        with Store.open(db, say=say) as store:
            failed = StudyRunner(study, store, options, say).run()
    of_study = (study.name, tuple(a.name for a in study.arms), study.checkpoints) if study else (None,)
    with Store.open(db, write=False) as store:
        facts = report.collect_facts(store, *of_study)
    print(json.dumps(facts, separators=(",", ":")) if options.as_json else report.as_markdown(facts), end="")
    return 1 if failed else 0


def _is_database(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(15) == b"SQLite format 3"
    except OSError:
        return False
