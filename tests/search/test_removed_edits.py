"""A database may name an edit that is no longer shipped: its run is shown and goes on."""

import random

import edit_seeds as seeds

from databases import search
from kernelsearch.core.types import Hint
from kernelsearch.measure.hints.changes import list_suggested_edits
from kernelsearch.propose.contract import Request
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard, lineage
from simulated_search import make_search


def test_a_run_whose_best_kernel_is_by_a_removed_edit_is_shown_and_goes_on():
    store = Store.open_in_memory()
    best = search(store, trials=40).best
    with store.database.conn as connection:
        for table in ("trial", "structure"):
            connection.execute(f"UPDATE {table} SET edit = 'removed_edit' WHERE kernel = ?", [best.kernel])
        connection.execute("UPDATE run SET finished = NULL")
    assert "removed_edit" in leaderboard.as_text(leaderboard.build_rows(store))
    assert "removed_edit by" in lineage.as_text(store, best.kernel)
    trials = make_search(store, trials=60, resume=store.load_run(1)).run().trials
    assert len(trials) == 60 and trials[best.number].edit == "removed_edit"


def test_a_removed_edit_that_is_asked_for_or_suggested_is_none():
    kernel, task = seeds.seed("softmax"), seeds.task("softmax")
    for name in ("removed_edit", "removed_edit+removed_edit"):
        assert TypedEdits().propose(Request(kernel, task, edit=name), random.Random(0)) is None
    assert list_suggested_edits([Hint("spills", {}, "removed_edit: loop over narrower tiles")]) == ()
