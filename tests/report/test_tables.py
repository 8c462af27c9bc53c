"""Over several shapes every number of a run counts the seed where it is faster, and every report knows the table."""

import dataclasses
import io
import json
import re
import sys
from collections import Counter
from html import unescape

import pytest

import simulated
from kernelsearch.cli import main
from kernelsearch.record import family_tree
from kernelsearch.record.rows import RunFacts, candidate_digest
from kernelsearch.record.steps import CONFIG_ALONE, PlacedStep, add_steps, load_step_gains
from kernelsearch.record.store import Store
from kernelsearch.report import html, kernel_file, leaderboard, lineage, progress, summary, tables
from kernelsearch.search import Progress, Result
from kernelsearch.search.history import RunState
from made_outcomes import accept, measure

SIZES = [s.label for s in simulated.task().shapes]


@pytest.fixture
def told(finished):
    """Makes a run of trials with these times at two shapes, the first the seed's; each is a kernel of its own."""
    kept, task, result = finished
    structures = kept.load_structures(result.run.id)
    own = list(dict.fromkeys(t.kernel for t in result.trials))

    def make(*times, configs=0):
        store = Store.open_in_memory()
        facts = RunFacts("evolve", "edits", trials=len(times), target="H100", settings={"seed": {"configs": configs}})
        run, state, trials = store.add_run(task, facts), RunState(task), []
        for number, one in enumerate(times):
            outcome = accept(*one, device="H100")
            kernel, first = structures[own[number]], next(t for t in result.trials if t.kernel == own[number])
            trial = dataclasses.replace(first, number=number, outcome=outcome, score=state.score(outcome))
            state.tell(trial)
            trials.append(trial)
            parent = own[0] if number else None
            store.add_trial(run, trial, dataclasses.replace(kernel, number=number, parent=parent))
        store.finish_run(run)
        return store, Result(run, trials, state.best, state.per_shape, 1.0)

    return make


def test_a_faster_mean_does_not_rank_below_a_slower_one(told):
    """Of 100 us at both shapes: (250, 25) with the seed takes 50 us in the mean, (60, 60) takes 60."""
    store, result = told((100, 100), (60, 60), (250, 25))
    rows = leaderboard.build_rows(store)
    assert [r["number"] for r in rows] == [2, 1, 0] and result.best.number == 2
    assert [r["time_us"] for r in rows] == pytest.approx([50, 60, 100])
    assert [r["speedup"] for r in rows] == pytest.approx([2, 1 / 0.6, 1])
    assert "mean time" in leaderboard.as_text(rows).splitlines()[1]


def test_gains_of_steps_count_the_seed_where_it_is_faster(told):
    store, result = told((100, 100), (300, 25))
    structures = store.load_structures(result.run.id)
    kernels = [structures[result.trials[n].kernel].kernel for n in (0, 0, 1)]
    config = dict(result.best.config)
    times = ((100, 100), (300, 50), (300, 25))
    steps = [
        PlacedStep(n, k, config, measure(*t, device="H100"))
        for n, (k, t) in enumerate(zip(kernels, times, strict=True))
    ]
    add_steps(store, result.run, [dataclasses.replace(steps[0], config={"BLOCK": 64}), *steps[1:]])
    gains = load_step_gains(store, candidate_digest(result.run.task, kernels[2].digest, config), "H100")
    assert [gains[k.digest] for k in kernels[1:]] == pytest.approx([2**0.5, 2**0.5])
    assert "1.41x its parent with the last kernel's config" in lineage.as_text(store, kernels[2].digest)


@pytest.mark.parametrize("less", [1e-12, 1e-10, 0.0])
def test_of_what_is_equally_fast_the_first_is_best_everywhere(told, less):
    store, result = told((100, 100), (80, 90), (80 - less, 95), (80, 90 * (1 - less)))
    first = result.trials[1]
    assert result.best is first and leaderboard.build_rows(store)[0]["number"] == 1
    assert family_tree.find_best_kernel(store) == first.kernel
    (entry,) = summary.as_dict(store, simulated.task(), result)["best"]["table"]["entries"]
    assert entry["trial"] == 1


def test_leaderboard_lineage_page_and_file_say_which_kernel_serves_which_sizes(told):
    store, result = told((100, 100), (50, 130), (130, 60), configs=3)
    one, other = result.trials[1:]
    head, *rows = leaderboard.build_rows(store)
    assert [(e["trial"], e["sizes"]) for e in head["table"]["entries"]] == [(1, SIZES[:1]), (2, SIZES[1:])]
    assert head["table"]["gain"] == pytest.approx((100 / 50 * 100 / 60) ** 0.5) and not any(r["table"] for r in rows)
    assert lineage.as_dict(store, one.kernel)["table"] == head["table"]
    line = f"1 shape: kernel {other.kernel[:8]}, trial 2, "
    texts = [leaderboard.as_text([head, *rows]), lineage.as_text(store, one.kernel, diffs=False),
             summary.as_text(store, simulated.task(), result)]  # fmt: skip
    page = re.sub("<[^>]*>", "", unescape(html.render_page(store)))
    for text in (" ".join(whole.split()) for whole in (*texts, page)):
        assert "table: 1.83x the seed at the best of its 3 configs (measured) over 2 shapes, 2 kernels" in text
        assert line in text and f"at {SIZES[1]}" in text
    assert "note: the seed has one config at all shapes" in texts[2]
    shown = kernel_file.render_kernel_file(store, one.kernel).splitlines()[2]
    assert shown.startswith(
        f"# the run's table has 2 kernels: this one serves 1 of 2 shapes, {SIZES[0]}; `kernelsearch"
    )
    assert "none of the shapes" in kernel_file.render_kernel_file(store, result.trials[0].kernel)


def test_of_one_shape_nothing_is_said_of_a_table(told):
    store, _ = told((100,), (50,))
    (head, _), shown = leaderboard.build_rows(store), kernel_file.render_kernel_file(store)
    assert head["table"] is None and "table" not in shown + leaderboard.as_text([head])
    assert head["time_us"] == pytest.approx(50) and "mean" not in leaderboard.as_text([head])


@pytest.mark.parametrize(("times", "said"), [((50, 50), True), ((50, 100), False)])
def test_a_config_gains_alone_only_where_that_is_true_of_the_whole_table(told, times, said):
    store, result = told((100, 100), times, (100, 20), (50, 50)) if said is False else told((100, 100), times)
    kernels = store.load_structures(result.run.id)
    places = [(result.trials[0], (100, 100)), (result.trials[0], times), (result.best, times)]
    steps = [
        PlacedStep(n, kernels[t.kernel].kernel, t.config, measure(*us, device="H100"))
        for n, (t, us) in enumerate(places)
    ]
    add_steps(store, result.run, steps)
    assert (CONFIG_ALONE in summary.as_text(store, simulated.task(), result)) is said


def confirmed(kernel, ratios):
    shapes = [{"shape": f"timed:{i}", "vs_seed": {"ratio": r}} for i, r in enumerate(ratios)]
    return {"kernel": kernel, "status": "confirmed", "champion_at": [], "shapes": shapes, "vs_seed": {"ratio": 0.5}}


def test_a_confirmed_kernel_is_the_best_though_the_seed_is_faster_at_some_shapes(told):
    """Its plain mean over the shapes is half of the seed's speed, and it gains 2x where it runs."""
    _, result = told((100, 100), (1600, 25))
    kernel = result.best.kernel
    assert summary.choose_kernel(result, [confirmed(kernel, (1 / 16, 4.0))]) == kernel
    assert summary.choose_kernel(result, [confirmed(kernel, (0.9, 1.0))]) == result.trials[0].kernel


def test_once_all_trials_have_landed_no_time_is_left_but_verdicts_are_awaited():
    stream = io.StringIO()
    with progress.ProgressLine(stream) as line:
        for done in range(1, 21):
            now = Progress(done, 20, 0, None, Counter(accept=done), 3.0 * done, landed=min(20, done + 6))
            line.tell_landed(now)
            line(None, now)
    lines = stream.getvalue().splitlines()
    assert [x.endswith("judging new bests") for x in lines] == [False] * 6 + [True] * 3 + [False]
    assert "0:00 left" not in stream.getvalue()


def test_an_error_fits_the_terminal(monkeypatch, tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    main.main(["leaderboard", "--db", str(tmp_path / "no.db")], standalone_mode=False)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    assert len(lines) > 1 and lines[0].startswith("kernelsearch: ") and all(len(x) <= 60 or "/" in x for x in lines)


def test_a_run_at_other_shapes_than_the_first_one_names_them(finished):
    """A task's row has the shapes of all its runs, each of which may time a few."""
    store, task = Store.open_in_memory(), simulated.task()
    for shapes in (task.shapes[1:], task.shapes[:1], task.shapes):
        store.add_run(dataclasses.replace(task, shapes=shapes), RunFacts("evolve"))
    (row,) = store.query("SELECT shapes FROM task")
    assert [s["label"] for s in json.loads(row["shapes"])] == SIZES[::-1]


def test_configs_of_one_kernel_are_counted_as_such():
    entries = [{"kernel": "a" * 64, "trial": n, "config": {"BLOCK": n}, "sizes": [f"n={n}"]} for n in (1, 2)]
    table = {"gain": 0.5, "of": 2, "entries": entries}
    assert "over 2 shapes, 2 configs of 1 kernel; " in tables.format_table(table, "estimated", 1)[0]
    assert "has 2 configs of 1 kernel: this one" in tables.describe_place(table, "a" * 64, {"BLOCK": 1})
