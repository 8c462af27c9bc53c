"""Each timed shape gets its confirmed best: one kernel, another, or the task's own where nothing is faster."""

import json
import random
from dataclasses import replace

import pytest
from gated_record import CONFIG, H100, SPLIT, finding, imported, write_seed_run

from kernelsearch.cli.export import _describe
from kernelsearch.core.types import Evidence
from kernelsearch.export.choose import choose
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing.finalists import choose_finalists
from kernelsearch.record.rows import Structure
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard


@pytest.fixture(scope="module")
def seed_wins_once(database):
    """The split kernel wins at the first shape and loses at the second with every config."""
    return database(times=(5.0, 12.5))


@pytest.fixture(scope="module")
def mixed(exported, seed_wins_once):
    return exported(name="mixed-sum", dbs=(str(seed_wins_once),))


def table(done):
    return json.loads(next((done.out / "mixed_sum" / "configs").iterdir()).read_text())["entries"]


def test_where_nothing_is_faster_the_seed_runs_with_its_own_config(mixed, examined):
    first, second = table(mixed)
    assert first["kernel"] == Kernel.parse(SPLIT).digest and first["config"] == dict(sorted(CONFIG.items()))
    assert second["kernel"] == Kernel.parse(examined.facts.seed).digest and second["config"] == dict(
        examined.facts.config
    )
    assert second["evidence"] == "confirmed" and second["time_us"] == 10.0 and second["seed_time_ratio"] == 1.0
    assert [f.is_seed for f in mixed.parts[0].chosen.devices[H100].values()] == [False, True]


def test_the_readme_says_what_the_package_gains_and_where_the_seed_runs(mixed):
    readme = (mixed.out / "README.md").read_text()
    assert "The package, which runs at each shape what was confirmed as best there: " in readme
    assert "At 1 of 2 shapes nothing is faster than the task's own kernel, which runs there." in readme
    gained = json.loads((mixed.out / "mixed_sum" / "evidence.json").read_text())["tasks"]["gated_sum"]["by_shape"][H100]
    assert [s["name"] for s in gained["shapes"]] == [Kernel.parse(SPLIT).digest[:8], "seed"]
    assert gained["vs_fastest"]["ratio"] == pytest.approx(
        2.0**0.5
    )  # twice the fastest at one shape, the fastest itself at the other
    assert f"{gained['vs_fastest']['ratio']:.3f}x [" in readme


def test_the_package_has_launches_for_every_entry(mixed):
    task = imported(mixed.out, "mixed_sum")._dispatch.TASKS["gated_sum"]
    entries = next(iter(task.tables.values())).entries
    assert len({e.kernel for e in entries}) == 2 and all(task.launches[e.kernel] for e in entries)


def test_a_champion_confirmed_at_one_shape_is_shipped_for_that_shape_only(database, examined):
    path = database(times=(5.0, 9.0))
    champion, config = Kernel.parse(SPLIT), {**CONFIG, "BLOCK_R": 16}
    told = finding(champion, config, (7.0, 2.0), H100)
    told = {**told, "shapes": told["shapes"][1:], "champion_at": ["shape 1"]}
    with Store.open(path) as store:
        store.add_confirmation(examined.facts, Structure(champion, 0), config, told, {"torch": "2.11"})
    by_shape = choose([path], "gated_sum").devices[H100]
    assert by_shape["timed:1"].config == config and dict(by_shape["timed:1"].times) == {"timed:1": 2.0}
    assert by_shape["timed:0"].config == CONFIG


def test_by_weaker_evidence_too_the_seed_runs_where_it_is_best(database):
    path = database(evidence=Evidence.ESTIMATED, confirmed=False, device="h100", times=(5.0, 13.0))
    by_shape = choose([path], "gated_sum", Evidence.ESTIMATED).devices["h100"]
    assert [f.is_seed for f in by_shape.values()] == [False, True]


def test_of_equal_times_the_one_that_the_search_announced_is_shipped(tmp_path, examined):
    """The first at full depth, whatever sorts before it by digest or config; and the leaderboard's is the same."""
    split, names = Kernel.parse(SPLIT), (16, 8, 4, 2)
    tried = [(split, {**CONFIG, "num_warps": warps}, (5.0, 5.0)) for warps in names]
    path = write_seed_run(tmp_path / "ties.db", examined.facts, (10.0, 10.0), Evidence.ESTIMATED, "h100", tried)
    for unproved, best in (((), 16), ((3, 4), 16), ((1,), 8), ((1, 2, 4), 4)):
        with Store.open(path) as store, store.database.conn as rows:
            rows.execute(
                f"UPDATE trial SET depth = CASE WHEN number IN ({str(unproved)[1:-1].rstrip(',') or 0}) "
                "THEN 'screen' ELSE 'full' END"
            )
            if 1 not in unproved:
                (first, *_) = leaderboard.build_rows(store)
                assert first["config"]["num_warps"] == best
        by_shape = choose([path], "gated_sum", Evidence.ESTIMATED).devices["h100"]
        assert {f.config["num_warps"] for f in by_shape.values()} == {best}


def test_a_shapes_best_is_found_though_many_others_are_better_overall(tmp_path, examined):
    """Many kernels beat it over all shapes; at its own shape nothing does."""
    kernels = [
        Kernel.parse(SPLIT.replace("n_share,", f"n_share, # {i}\n").replace("start + tl", f"start + {i} - {i} + tl"))
        for i in range(1, 30)
    ]
    tried = [(k, CONFIG, (9.9, 1.0) if n == 29 else (5.0 + n / 100, 6.0)) for n, k in enumerate(kernels, 1)]
    write_seed_run(tmp_path / "many.db", examined.facts, (10.0, 10.0), Evidence.ESTIMATED, "h100", tried)
    by_shape = choose([tmp_path / "many.db"], "gated_sum", Evidence.ESTIMATED).devices["h100"]
    assert [by_shape[s].digest for s in ("timed:0", "timed:1")] == [kernels[0].digest, kernels[28].digest]


def test_where_the_own_kernel_runs_as_it_is_and_where_tuned_is_said(tmp_path, examined, exported):
    tuned = {**examined.facts.config, "num_warps": 1}
    tried = [(Kernel.parse(examined.facts.seed), tuned, (5.0, 13.0))]
    path = write_seed_run(tmp_path / "own.db", examined.facts, (10.0, 10.0), Evidence.ESTIMATED, "h100", tried)
    done = exported(name="own-sum", dbs=(str(path),), evidence=Evidence.ESTIMATED)
    own = done.parts[0].seed.digest[:8]
    lines = [line for line in _describe(done.parts[0]) if own in line]
    assert lines == [
        f"gated_sum: kernel {own}, the task's own, tuned, at 1 of 2 timed shapes, estimated on h100",
        f"gated_sum: kernel {own}, the task's own, at 1 of 2 timed shapes, estimated on h100",
    ]
    rows = [line for line in (done.out / "README.md").read_text().splitlines() if line.startswith("| rows=")]
    assert ["the task's own, tuned, " in row for row in rows] == [True, False] and "| the task's own, " in rows[1]


@pytest.mark.parametrize("kernels", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_shipped_is_the_table_that_the_search_announced(tmp_path, examined, kernels, seed):
    """By numbers of a search too: the same least gain, as many kernels, and none is out of sight."""
    chance, split = random.Random(seed), Kernel.parse(SPLIT)
    draws = [tuple(chance.choice((7.0, 9.8, 9.85, 9.95, 10.0, 13.0)) for _ in "ab") for _ in range(40)]
    tried = [(split, {**CONFIG, "num_warps": n}, times) for n, times in enumerate(draws[:3] if seed else draws, 1)]
    path, kind = tmp_path / "one.db", (Evidence.MEASURED, H100)
    write_seed_run(path, examined.facts, (10.0, 10.0), *kind, tried, settings={"kernels": kernels})
    with Store.open(path) as store:
        (run,) = store.load_runs()
        told = choose_finalists(
            [s.key for s in examined.facts.shapes], store.load_trials(run.id), lambda trial: True, run.facts.kernels
        )
    announced = {shape: f.trial.number for f in told for shape in f.serves}
    shipped = choose([path], "gated_sum", Evidence.MEASURED).devices[H100]
    assert {shape: f.trial for shape, f in shipped.items() if not f.is_seed} == announced
    assert len({id(f) for f in shipped.values() if not f.is_seed}) <= kernels


def test_what_is_best_at_no_shape_and_far_from_the_best_overall_is_shipped_where_it_serves(tmp_path, examined):
    """Twenty-five others gain more, all at the same two shapes; two gain more at one of its own shapes, each at one."""
    facts = replace(examined.facts, shapes=tuple(replace(examined.facts.shapes[0], key=f"timed:{n}") for n in range(4)))
    split, slow = Kernel.parse(SPLIT), 30.0
    times = [(5.0 + n / 100, 5.0 + n / 100, slow, slow) for n in range(25)]
    times += [(slow, slow, 8.9, slow), (slow, slow, slow, 8.9), (slow, slow, 9.0, 9.0)]
    tried = [(split, {**CONFIG, "num_warps": n}, own) for n, own in enumerate(times, 1)]
    kind, allowed = (Evidence.ESTIMATED, "h100"), {"kernels": 2}
    path = write_seed_run(tmp_path / "second.db", facts, (10.0,) * 4, *kind, tried, settings=allowed)
    by_shape = choose([path], "gated_sum", Evidence.ESTIMATED).devices["h100"]
    assert [by_shape[f"timed:{n}"].trial for n in range(4)] == [1, 1, 28, 28]
