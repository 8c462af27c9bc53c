"""A search's end with several shapes, a simulated GPU behind it: who is timed where, what is said, stored and shown."""

from dataclasses import replace

import pytest
from test_confirmation import ACCEPT, FakeGpu, opened

import simulated
from kernelsearch.api import optimization
from kernelsearch.core.types import (
    Evidence,
    Measurement,
    Outcome,
    Proposal,
    ProposalKind,
    ShapeFact,
    ShapeTime,
    Trace,
    Trial,
)  # fmt: skip
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing import paired_statistics
from kernelsearch.record import family_tree
from kernelsearch.record.rows import RunFacts, Structure
from kernelsearch.record.store import Store
from kernelsearch.report import kernel_file, leaderboard, summary
from kernelsearch.search import Result
from kernelsearch.search.settling import settle_finalists
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan

SHAPES = tuple(ShapeFact(f"timed:{i}", f"n={n}", {"n": n}) for i, n in enumerate((1024, 4096, 65536)))
SEED = Kernel.parse(simulated.SEED_KERNEL)
WIDE, TALL = (Kernel.parse(simulated.SEED_KERNEL.replace("BLOCK +", f"BLOCK + {i} +")) for i in (0, 1))
TRUE = {"seed": (100.0, 100.0, 100.0), WIDE.digest[:8]: (80.0, 102.0, 90.0), TALL.digest[:8]: (300.0, 300.0, 60.0),
        "eager": (200.0, 200.0, 200.0), "compile": (120.0, 104.0, 110.0)}  # fmt: skip


class ShapedGpu(FakeGpu):
    """Times that depend on the shape that is open; who took part at each shape is in `timed`."""

    def __init__(self):
        super().__init__({n: t[0] for n, t in TRUE.items()})
        self.timed, self.place = {}, 0

    def openshape(self, job):
        self.place = int(job.shape[-1])
        self.times = {n: t[self.place] for n, t in TRUE.items()}
        return replace(super().openshape(job), baselines=("eager", "compile"))

    def blocks(self, job):
        self.timed.setdefault(self.place, set()).update(n for order in job.orders for n in order)
        return super().blocks(job)


class FakeReferee:
    def verify(self, kernel, config):
        return ACCEPT


def trial(number, kernel, times):
    score = 1.0
    for t in times:
        score *= (t / 100.0) ** (1 / 3)
    measurement = Measurement(
        Evidence.MEASURED, "FAKE", "search-1", tuple(ShapeTime(s.key, t) for s, t in zip(SHAPES, times, strict=True))
    )
    kind = Proposal(ProposalKind.REWRITE, (SEED.digest,)) if number else Proposal(ProposalKind.SEED)
    return Trial(number, kind, kernel.digest, dict(simulated.CONFIG), Outcome(ACCEPT, measurement), score)


@pytest.fixture(scope="module")
def ended():
    """(Task, store, result, findings, GPU, what was told to the user) of a search whose finalists were confirmed."""
    gpu, store, said = ShapedGpu(), Store.open_in_memory(), []
    task = replace(simulated.task(), shapes=SHAPES, traces={s.key: Trace(s.key, ()) for s in SHAPES})
    bench = opened(gpu)
    bench.facts, bench.seed = task, SEED
    run = store.add_run(task, RunFacts("evolve", "edits", 0, 4, 3, "FAKE"))
    trials = tuple(trial(i, k, TRUE["seed" if k is SEED else k.digest[:8]]) for i, k in enumerate((SEED, WIDE, TALL)))
    for one, kernel in zip(trials, (SEED, WIDE, TALL), strict=True):
        store.add_trial(run, one, Structure(kernel, one.number, SEED.digest if one.number else None))
    best = {s.key: min(trials, key=lambda t: t.outcome.measurement.time_us(s.key)) for s in SHAPES}
    result = Result(run, trials, trials[1], best, 1.0)
    with Confirmation(bench, ConfirmationPlan(2.0, seed=3), said.append) as confirmation:
        search = optimization.Optimization(bench, task, store, None, said.append)
        settled = settle_finalists(task, store, result, FakeReferee(), said.append)
        result, search.finalists = settled
        found = search.confirm(result, confirmation)
    return task, store, result, found, gpu


def test_a_champion_is_timed_only_at_its_shape(ended):
    *_, gpu = ended
    wide, tall = WIDE.digest[:8], TALL.digest[:8]
    timed = {place: {wide, tall} & names for place, names in gpu.timed.items()}
    assert timed == {0: {wide}, 1: {wide}, 2: {wide, tall}}


def test_every_comparison_widens_the_intervals(ended):
    found = ended[3]
    assert {f["level"] for f in found} == {
        paired_statistics.level_for_comparisons(5)
    }  # three shapes and their mean, and the champion's shape


def test_the_summary_says_in_one_table_what_the_package_gains(ended):
    task, store, result, found, _ = ended
    facts = summary.as_dict(store, task, result, found)
    assert [(s["label"], s["name"]) for s in facts["by_shape"]["shapes"]] == [
        ("n=1024", WIDE.digest[:8]), ("n=4096", "seed"), ("n=65536", TALL.digest[:8])
    ]  # fmt: skip
    gained = facts["by_shape"]["vs_fastest"]
    assert gained["low"] < (100 / 80 * 1 * 100 / 60) ** (1 / 3) < gained["high"] and facts["by_shape"]["faster"]
    text = summary.as_text(store, task, result, "", found)
    assert text.startswith("simulated: 3 trials")
    first, worst, *rows = text[text.index("confirmed table: ") :].splitlines()[:5]
    assert first.startswith("confirmed table: faster at 2 of 3 shapes; 1.") and "(geometric mean)" in first
    assert worst == "    worst: 1.000x [1.000, 1.000] at n=4096"
    assert [row.split(" by ")[1].split(",")[0] for row in rows] == ["seed", WIDE.digest[:8], TALL.digest[:8]]


def test_the_leaderboard_has_one_row_a_kernel_that_was_confirmed_everywhere_and_the_line_below(ended):
    store = ended[1]
    rows = leaderboard.build_rows(store)
    assert [r["kernel"] for r in rows if r["evidence"] == "confirmed"] == [WIDE.digest]
    by_kernel = {r["kernel"]: r for r in rows if r["evidence"] == "measured"}
    assert (
        by_kernel[WIDE.digest]["confirmed_us"] and by_kernel[TALL.digest]["confirmed_us"] is None
    )  # one shape is no mean of three
    text = leaderboard.as_text(rows, leaderboard.compute_gains_by_shape(store))
    assert "\nby shape: 1.2" in text and max(map(len, text.splitlines())) <= 80


def test_best_is_the_best_over_all_shapes_though_a_champions_own_number_is_higher(ended):
    store, found = ended[1], ended[3]
    assert [f["kernel"] for f in found] == [WIDE.digest, TALL.digest]
    assert found[1]["vs_seed"]["ratio"] > found[0]["vs_seed"]["ratio"]
    assert family_tree.find_best_kernel(store) == WIDE.digest and WIDE.digest in kernel_file.render_kernel_file(store)


def test_a_champions_finding_does_not_replace_one_over_all_shapes(ended):
    task, _, _, found, _ = ended
    store = Store.open_in_memory()
    whole, champion = found
    for finding in (whole, {**champion, "kernel": whole["kernel"]}):
        store.add_confirmation(task, Structure(WIDE, 0), dict(simulated.CONFIG), finding, {"triton": "3.6"})
    (kept,) = store.load_confirmations()
    assert len(kept["shapes"]) == 3 and kept["champion_at"] == []
    store.add_confirmation(task, Structure(TALL, 0), dict(simulated.CONFIG), champion, {"triton": "3.6"})
    store.add_confirmation(
        task, Structure(TALL, 0), dict(simulated.CONFIG), {**whole, "kernel": TALL.digest}, {"triton": "3.6"}
    )
    assert [len(f["shapes"]) for f in store.load_confirmations()] == [3, 3]


def test_best_counts_the_seed_at_the_shapes_where_it_is_faster(ended):
    """Three times slower at two shapes of three, where the seed runs: its plain mean is below the seed's."""
    task, _, result, (whole, _), _ = ended
    store = Store.open_in_memory()
    run = store.add_run(task, result.run.facts)
    for number, one, kernel in ((0, result.trials[0], SEED), (1, result.trials[2], TALL)):
        structure = Structure(kernel, number, SEED.digest if number else None)
        store.add_trial(run, replace(one, number=number), structure)
    ratios = zip(whole["shapes"], (1 / 3, 1 / 3, 100 / 60), strict=True)
    shapes = [{**shape, "vs_seed": {**shape["vs_seed"], "ratio": ratio}} for shape, ratio in ratios]
    finding = {**whole, "kernel": TALL.digest, "shapes": shapes, "vs_seed": {**whole["vs_seed"], "ratio": 0.57}}
    store.add_confirmation(task, Structure(TALL, 0), dict(simulated.CONFIG), finding, {"triton": "3.6"})
    assert family_tree.find_best_kernel(store) == TALL.digest
