"""What goes into the store comes out equal, wholly or not at all."""

import math
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

import kernelsearch
from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import Word, config_key
from kernelsearch.record import family_tree
from kernelsearch.record.migrations import migrations
from kernelsearch.record.rows import Structure, geometric_mean


def begun(store, task, facts, seed, make):
    run = store.add_run(task, facts)
    store.add_trial(run, make.accepted(0, seed, {"BLOCK": 128, "num_warps": 4}, 1.0), Structure(seed, 0))
    return run


def test_trials_come_back_equal(store, task, facts, seed, make):
    run = begun(store, task, facts, seed, make)
    child = seed.with_changes(constants=("edit_01 = tl.constexpr(1)",))
    put = [
        make.accepted(0, seed, {"BLOCK": 128, "num_warps": 4}, 1.0),
        make.rejected(
            1, child, {"BLOCK": "next_power_of_2(n)", "flag": True, "x": None, "y": 0.1}, parents=(seed.digest,)
        ),
        make.accepted(2, seed, {"BLOCK": 256}, 0.9, parents=(seed.digest,)),
    ]
    store.add_trial(run, put[1], Structure(child, 1, seed.digest, "edit_01", "because"))
    store.add_trial(run, put[2])
    assert store.load_trials(run.id) == put


def test_a_run_and_its_structures_come_back_equal(store, task, facts, seed, make):
    run = begun(store, task, facts, seed, make)
    child = seed.with_changes(constants=("edit_01 = tl.constexpr(1)",), space={"ROWS": (1, 2)}, config={"ROWS": 2})
    store.add_trial(run, make.rejected(1, child, {"ROWS": 2}), Structure(child, 1, seed.digest, "edit_01", "because"))
    assert store.load_run(run.id) == run and run.facts == facts
    found = store.load_structures(run.id)
    assert list(found) == [seed.digest, child.digest]
    got = found[child.digest]
    assert (got.kernel.digest, got.kernel.space, got.kernel.config) == (child.digest, child.space, child.config)
    assert (got.number, got.parent, got.edit, got.rationale) == (1, seed.digest, "edit_01", "because")


def test_a_kernel_of_two_runs_keeps_the_space_that_each_run_gave_it(store, task, facts, seed, make):
    first = begun(store, task, facts, seed, make)
    second = store.add_run(task, facts)
    other = seed.with_changes(space={"ROWS": (4,)}, config={"ROWS": 4})
    store.add_trial(second, make.accepted(0, other, {"ROWS": 4}, 1.0), Structure(other, 0))
    assert store.load_structures(first.id)[seed.digest].kernel.space == {}
    assert store.load_structures(second.id)[seed.digest].kernel.space == {"ROWS": (4,)}


def test_a_trial_is_stored_wholly_or_not_at_all(store, task, facts, seed, make):
    run = begun(store, task, facts, seed, make)

    def count():
        tables = ("candidate", "trial", "measurement", "hint")
        return [store.query(f"SELECT count(*) AS n FROM {table}") for table in tables]

    before = count()
    orphan = make.accepted(1, seed.with_changes(constants=("edit_09 = 1",)), {"BLOCK": 1}, 0.5, parents=(seed.digest,))
    with pytest.raises(StoreError):
        store.add_trial(run, orphan)  # its kernel was never introduced: the foreign key refuses it
    with pytest.raises(StoreError):
        store.add_trial(run, make.accepted(0, seed, {"BLOCK": 2048}, 0.5, parents=(seed.digest,)))  # number 0 is taken
    assert count() == before


def test_a_confirmation_is_stored_wholly_or_not_at_all(store, task, seed):
    speedup = {"ratio": 1.2, "low": 1.1, "high": 1.3}
    shape = dict.fromkeys(("control", "blocks", "dropped", "clocks", "roofline", "launch_bound"))
    shape |= {"shape": "timed:0", "time_us": 9.0, "spread_us": 0.1, "samples": 5, "fastest": "eager"}
    shape |= {"vs_seed": speedup, "vs_fastest": speedup, "baselines": [{"name": "eager", "time_us": 10.8}]}
    finding = {"device": "d", "protocol": "p", "status": "confirmed", "faster": True, "time_us": 9.0, "level": 0.99}
    finding |= {"vs_seed": speedup, "vs_fastest": speedup, "aa_spread": 0.001, "roofline": None, "shapes": [shape]}
    nameless = {**finding, "shapes": [{**shape, "baselines": [{"time_us": 10.8}]}]}
    with pytest.raises(KeyError):
        store.add_confirmation(task, Structure(seed, 0), {"BLOCK": 1}, nameless, {})
    assert store.query("SELECT * FROM measurement") == store.query("SELECT * FROM candidate") == []
    store.add_confirmation(task, Structure(seed, 0), {"BLOCK": 1}, finding, {})
    (stored,) = store.load_confirmations()
    assert {name: stored[name] for name in finding} == finding and stored["versions"] == {}
    assert [r["time_us"] for r in store.query("SELECT time_us FROM baseline")] == [10.8]


def test_every_foreign_key_holds_and_every_table_is_strict(store, task, facts, seed, make):
    begun(store, task, facts, seed, make)
    assert store.query("PRAGMA foreign_key_check") == []
    ours = ("task", "run", "kernel", "structure", "candidate", "trial", "measurement", "hint")
    tables = {r["name"]: r["strict"] for r in store.query("PRAGMA table_list") if r["type"] == "table"}
    assert all(tables[t] == 1 for t in ours)
    assert not {"trials", "studies"} & set(tables)
    with pytest.raises(StoreError):
        store.query("INSERT INTO hint VALUES (1, 'zero', 0, '', '', '') RETURNING run")


def test_the_leaderboard_has_a_kernels_best_trial_and_ranks_per_device(store, task, facts, seed, make):
    run = begun(store, task, facts, seed, make)
    child = seed.with_changes(constants=("edit_01 = tl.constexpr(1)",))
    structure = Structure(child, 1, seed.digest, "edit_01", "w")
    store.add_trial(run, make.accepted(1, child, {"BLOCK": 1}, 0.7, (seed.digest,)), structure)
    store.add_trial(run, make.accepted(2, child, {"BLOCK": 2}, 0.5, (child.digest,)))
    store.add_trial(run, make.accepted(3, child, {"BLOCK": 4}, 0.6, (child.digest,)))
    store.add_trial(run, make.accepted(4, seed, {"BLOCK": 8}, 0.1, (seed.digest,), device="other"))
    rows = store.query("SELECT * FROM leaderboard ORDER BY device DESC, rank")
    assert [(r["device"], r["rank"], r["kernel"], r["number"]) for r in rows] == [
        ("simulated", 1, child.digest, 2),
        ("simulated", 2, seed.digest, 0),
        ("other", 1, seed.digest, 4),
    ]
    assert rows[0]["speedup"] == pytest.approx(2.0) and rows[0]["edit"] == "edit_01"
    assert rows[0]["time_us"] == pytest.approx(math.sqrt(50 * 150))


def test_source_and_rationale_can_be_searched(store, task, facts, seed, make):
    run = begun(store, task, facts, seed, make)
    child = seed.with_changes(constants=("edit_01 = tl.constexpr(1)",))
    structure = Structure(child, 1, seed.digest, "edit_01", "hoists the reduction")
    store.add_trial(run, make.rejected(1, child, {}), structure)
    sql = "SELECT kernel.digest FROM kernel_fts JOIN kernel ON kernel.rowid = kernel_fts.rowid WHERE kernel_fts MATCH ?"
    assert store.query(sql, ["reduction"]) == [{"digest": child.digest}]
    assert len(store.query(sql, ["simulated_kernel"])) == 2


def test_a_digest_may_be_shortened_while_it_is_unique(store, task, facts, seed, make):
    run = begun(store, task, facts, seed, make)
    assert store.find_digest(seed.digest[:5].upper()) == seed.digest
    for prefix in ("", "zzz", "%"):
        with pytest.raises(StoreError, match="no kernel"):
            store.find_digest(prefix)
    twin = next(k for i in range(1000) if (k := seed.with_changes(constants=(f"v = {i}",))).digest[0] == seed.digest[0])
    store.add_trial(run, make.rejected(1, twin, {}), Structure(twin, 1, seed.digest))
    with pytest.raises(StoreError, match="several"):
        store.find_digest(seed.digest[0])


def test_a_second_measurement_under_the_same_key_replaces_the_first_but_not_the_trials_own(
    store, task, facts, seed, make
):
    first = begun(store, task, facts, seed, make)
    again = store.add_run(task, facts)
    trial = make.accepted(0, seed, {"BLOCK": 128, "num_warps": 4}, 1.0, scale=50.0)
    store.add_trial(again, trial, Structure(seed, 0))
    assert [r["time_us"] for r in store.query("SELECT time_us FROM measurement ORDER BY time_us")] == [50.0, 150.0]
    assert store.load_trials(first.id)[0].outcome.measurement.time_us("timed:0") == 100.0


def test_migrations_only_grow():
    """Released names, in order. Add to the end; never change what is here."""
    from sqlite_utils import Database

    names = [m.name for m in migrations.pending(Database(memory=True))]
    assert names[:1] == ["m012_hints_as_rules"]


def test_geometric_mean():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0) and geometric_mean([]) is None


def test_words_fit_the_check_between_verdict_and_times(store, task, facts, seed, make):
    run = begun(store, task, facts, seed, make)
    for number, word in enumerate((w for w in Word if w is not Word.ACCEPT), start=1):
        store.add_trial(run, make.rejected(number, seed, {"BLOCK": number}, word, (seed.digest,)))
    assert [t.outcome.verdict.word for t in store.load_trials(run.id)][1:] == [w for w in Word if w is not Word.ACCEPT]
    with pytest.raises(sqlite3.IntegrityError):
        store.database.conn.execute("UPDATE trial SET verdict = 'accept' WHERE number = 1")
    assert config_key({"b": 1, "a": 2}) == '{"a":2,"b":1}'


def test_no_sql_has_numbered_placeholders():
    """`?1` with a sequence is an error from Python 3.14 on."""
    package = Path(kernelsearch.__file__).parent
    numbered = re.compile(r"(WHERE|AND|OR|LIMIT|=|<=|IN|VALUES) *\(?\?[0-9]")
    assert [p for p in package.rglob("*.py") if numbered.search(p.read_text())] == []


def test_a_run_that_accepted_nothing_is_no_unknown_task(store, task, facts, seed, make):
    run = store.add_run(task, facts)
    store.add_trial(run, make.rejected(0, seed, {"BLOCK": 128, "num_warps": 4}), Structure(seed, 0))
    for asked in (None, task.name, task.digest):
        store.refuse_unknown_task(asked or task.name)
        with pytest.raises(StoreError, match=f"has no accepted kernel of {task.name} yet$"):
            family_tree.find_best_kernel(store, asked)
    with pytest.raises(StoreError, match=f"has no task 'other': it has {task.name}"):
        family_tree.find_best_kernel(store, "other")
    other = store.add_run(replace(task, digest="another", name="other"), facts)
    store.add_trial(other, make.accepted(0, seed, {"BLOCK": 128, "num_warps": 4}, 1.0), Structure(seed, 0))
    with pytest.raises(StoreError, match=f"no accepted kernel of {task.name} yet; --task names another: other$"):
        family_tree.find_best_kernel(store, task.name)


def test_a_kernel_of_two_tasks_has_a_run_of_each_and_none_of_a_third(store, task, facts, seed, make):
    other = replace(task, digest="another", name="other")
    for one, score in ((task, 0.9), (other, 0.5)):
        run = store.add_run(one, facts)
        store.add_trial(run, make.accepted(0, seed, {"BLOCK": 128, "num_warps": 4}, score), Structure(seed, 0))
    assert [family_tree.run_of(store, seed.digest, task=t) for t in (None, task.digest, "another")] == [2, 1, 2]
    with pytest.raises(StoreError, match="was tried for another task"):
        family_tree.run_of(store, seed.digest, task="third")
