"""What people and programs are shown agrees with the rows, and says its evidence."""

import csv
import dataclasses
import io
import itertools
import json
import re
from collections import Counter
from html import unescape

import pytest

import simulated
from kernelsearch.core import formats
from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import Evidence, Hint, Measurement, Outcome, ShapeTime, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing.by_shape import choose_table
from kernelsearch.record import family_tree, queries
from kernelsearch.record.rows import candidate_digest
from kernelsearch.record.steps import CONFIG_ALONE, PlacedStep, add_steps
from kernelsearch.record.store import Store
from kernelsearch.report import html, kernel_file, leaderboard, lineage, progress, summary
from kernelsearch.report.leaderboard_text import fold_ties
from kernelsearch.report.terminal import print_text
from kernelsearch.search import Progress, Result
from kernelsearch.trial.estimate import EXTRAPOLATES


def test_leaderboard_rows_hold_each_kernels_best_accepted_trial_in_order(finished):
    store, _, result = finished
    rows = leaderboard.build_rows(store)
    best = {}
    for trial in result.trials:
        if trial.accepted:
            best[trial.kernel] = min((trial.score, trial.number), best.get(trial.kernel, (9,)))
    assert [(r["score"], r["number"]) for r in rows] == sorted(best.values())
    assert rows[0]["kernel"] == result.best.kernel and rows[0]["config"] == dict(result.best.config)
    assert {r["evidence"] for r in rows} == {"estimated"}


def test_leaderboard_filters(finished):
    store, task, _ = finished
    assert len(leaderboard.build_rows(store, limit=3)) == 3
    assert leaderboard.build_rows(store, task="simulated") == leaderboard.build_rows(store, task=task.digest) != []
    assert leaderboard.build_rows(store, task="other") == leaderboard.build_rows(store, device="other") == []


def test_json_and_csv_hold_the_same_rows(finished):
    rows = leaderboard.build_rows(finished[0], limit=4)
    assert json.loads(leaderboard.as_json(rows)) == rows
    table = list(csv.DictReader(io.StringIO(leaderboard.as_csv(rows))))
    assert [float(r["score"]) for r in table] == [r["score"] for r in rows]
    assert [json.loads(r["config"]) for r in table] == [r["config"] for r in rows]


def test_the_text_table_fits_80_columns_and_says_estimated(finished):
    rows = leaderboard.build_rows(finished[0], limit=5)
    text = leaderboard.as_text(rows)
    assert all(len(line) <= 80 for line in text.splitlines()) and "\x1b" not in text
    assert "simulated on simulated, estimated" in text and "x seed (estimated)" in text
    assert all(r["kernel"][:8] in text and f"{r['speedup']:.2f}" in text for r in fold_ties(rows))
    assert leaderboard.as_text([]) == "no accepted kernel yet\n"


LONG = {"SPLIT": 32, **{f"mean_kernel.{n}": 8 for n in ("BLOCK", "ROWS", "num_warps", "num_stages")}}
ROW = {"task": "t", "device": "d", "evidence": "measured", "shapes": "", "rank": 1, "kernel": "0123456789abcdef",
       "speedup": 1.5, "score": 0.667, "time_us": 40.0, "edit": "walk_back", "config": {"BLOCK": 64},
       "proposer": "edits", "run": 1, "number": 7, "confirmed_us": None}  # fmt: skip


def test_a_config_stands_beside_its_row_or_whole_below_it():
    beside = leaderboard.as_text([ROW]).splitlines()
    assert beside[1].endswith("config") and beside[2].endswith("walk_back  BLOCK=64")
    below = leaderboard.as_text([ROW, {**ROW, "speedup": 1.2, "config": LONG}])
    assert all(len(line) <= 80 for line in below.splitlines()) and "config" not in below
    assert all(f"{name}={value}" in below.split() for name, value in LONG.items()), "no name is broken"
    narrow = leaderboard.as_text([{**ROW, "config": {"a_very_long_name_of_a_constexpr" * 3: 1}}])
    assert "a_very_long_name_of_a_constexpr" * 3 + "=1" in narrow


def test_the_trial_and_who_proposed_it_are_said():
    assert " 7  walk_back" in leaderboard.as_text([ROW]) and "  by" not in leaderboard.as_text([ROW])
    text = leaderboard.as_text([ROW, {**ROW, "run": 2, "speedup": 1.2, "proposer": "openai:some-model"}])
    assert "run/trial" in text and " 1/7  walk_back  edits" in text and " 2/7  walk_back  openai:some-model" in text


def test_what_a_search_found_equally_fast_is_one_row():
    rows = [{**ROW, "number": n, "speedup": 1.5 - 0.002 * n} for n in range(5)]
    text = leaderboard.as_text([*rows, {**ROW, "number": 9, "speedup": 1.2}])
    assert len(text.splitlines()) == 4 and "0  walk_back  +4" in text and "9  walk_back" in text
    assert len(leaderboard.as_text([*rows, {**ROW, "number": 9, "speedup": 1.2}], limit=1).splitlines()) == 3


def test_a_confirmed_row_says_trial_proposer_and_config():
    confirmed = {**ROW, "evidence": "confirmed", "confirmed_us": 40.0, "vs_fastest": 1.2, "vs_fastest_low": 1.19,
                 "vs_fastest_high": 1.21, "fastest": "eager", "roofline": 0.9,
                 "clocks": {"x": {"sm_mhz": 1980.0}}, "proposer": "mix"}  # fmt: skip
    seed = confirmed | dict.fromkeys(("run", "number", "edit", "proposer"))
    lines = leaderboard.as_text([confirmed, seed]).splitlines()
    assert "1.200 [1.190, 1.210]" in lines[2] and "90.0%" in lines[2]
    assert lines[3].strip() == "walk_back by mix, trial 7 of run 1; BLOCK=64; SMs at 1980 MHz"
    assert lines[5].strip() == "the seed, measured on its own; BLOCK=64; SMs at 1980 MHz"


def test_confirmed_times_stand_beside_the_searchs_own(search):
    store = Store.open_in_memory()
    result = search(store, trials=10)
    candidate = candidate_digest(simulated.task().digest, result.best.kernel, result.best.config)
    for time_us in (7.0, 4.0):  # the newer one counts
        times = (ShapeTime("timed:0", time_us), ShapeTime("timed:1", 9.0))
        confirmed = Measurement(Evidence.CONFIRMED, "simulated", "paired", times)
        versions = {"triton": str(time_us)}
        store._add_measurement(candidate, confirmed, versions)
    rows = leaderboard.build_rows(store)
    assert rows[0]["confirmed_us"] == pytest.approx(6.0) and rows[0]["time_us"] > 6.0
    assert all(r["confirmed_us"] is None for r in rows[1:])
    assert "confirmed" in leaderboard.as_text(rows).splitlines()[1]


def test_runs_of_some_shapes_are_ranked_by_themselves(search):
    store = Store.open_in_memory()
    search(store, trials=10), search(store, trials=10, seed=1)
    with store.database.conn as connection:
        connection.execute("""UPDATE run SET settings = '{"shapes": ["timed:0", "timed:1"]}'""")
    whole = leaderboard.build_rows(store)
    with store.database.conn as connection:
        connection.execute("""UPDATE run SET settings = '{"shapes": ["timed:1"]}' WHERE id = 2""")
    rows = leaderboard.build_rows(store)
    (label,) = {row["shapes"] for row in rows} - {""}
    assert {row["run"] for row in rows if row["shapes"] == label} == {2} and not any(row["shapes"] for row in whole)
    assert [row["rank"] for row in rows].count(1) >= 2
    titles = [line for line in leaderboard.as_text(rows).splitlines() if " on " in line]
    assert len(titles) == 2 and titles[1].endswith(f"at {label} only")


def test_lineage_tells_every_step_from_the_seed_with_its_diff_and_gain(finished):
    store, _, result = finished
    story = lineage.as_dict(store, result.best.kernel)
    steps = story["ancestors"]
    assert steps[0]["edit"] is None and steps[0]["diff"] == "" and steps[-1]["kernel"] == result.best.kernel
    for above, step in itertools.pairwise(steps):
        assert step["parent"] == above["kernel"] and step["gain"] == pytest.approx(above["score"] / step["score"])
        new = [line for line in step["diff"].splitlines() if line.startswith("+")]
        assert all(any(line.startswith(f"+{edit} = ") for line in new) for edit in step["edit"].split("+"))
    gained = 1 / steps[0]["score"]
    for step in steps[1:]:
        gained *= step["gain"]
    assert gained == pytest.approx(1 / result.best.score)
    assert json.loads(json.dumps(story)) == story


def test_lineage_as_text(finished):
    store, _, result = finished
    text = lineage.as_text(store, result.best.kernel)
    story = lineage.as_dict(store, result.best.kernel)
    assert "(estimated times)" in text.splitlines()[0] and "by simulated" in text
    assert text.count("└─") == len(story["ancestors"]) - 1 and text.count("├─") == len(story["children"])
    assert "+++" not in lineage.as_text(store, result.best.kernel, diffs=False)
    shown = {row["kernel"]: row["number"] for row in leaderboard.build_rows(store)}
    both = [s for s in (*story["ancestors"], *story["children"]) if s["score"] and s["number"] != shown[s["kernel"]]]
    assert both and all(f", first in trial {s['number']}, best in trial {shown[s['kernel']]}: " in text for s in both)
    rejected = next(t for t in result.trials if not t.accepted and t.edit)
    if not any(t.accepted for t in result.trials if t.kernel == rejected.kernel):
        assert "never accepted" in lineage.as_text(store, rejected.kernel)


def test_show_gives_a_file_that_reads_back_to_the_kernel_with_its_best_config(finished):
    store, _, result = finished
    text = kernel_file.render_kernel_file(store)
    kernel = Kernel.parse(text)
    assert kernel.digest == result.best.kernel and dict(kernel.config) == dict(result.best.config)
    assert f"{1 / result.best.score:.2f}x the seed (estimated) on simulated" in text
    assert kernel_file.render_kernel_file(store, result.best.kernel[:12]) == text
    accepted = {t.kernel for t in result.trials if t.accepted}
    rejected = next(t for t in result.trials if t.kernel not in accepted)
    assert "# never accepted: " in kernel_file.render_kernel_file(store, rejected.kernel)
    with pytest.raises(StoreError, match="no kernel 'zz'"):
        kernel_file.render_kernel_file(store, "zz")
    with pytest.raises(StoreError, match="no accepted kernel yet"):
        kernel_file.render_kernel_file(Store.open_in_memory())


def test_summary_says_what_was_gained_and_by_which_edits(finished):
    store, task, result = finished
    facts = summary.as_dict(store, task, result)
    best = facts["best"]
    product = best["own_tuning"]
    for step in best["steps"]:
        assert step["gain"] is None, "nothing was timed with the best kernel's config"
        product *= step["own_gain"]
    assert product == pytest.approx(best["speedup"]) and best["evidence"] == "estimated"
    assert sum(facts["verdicts"].values()) == facts["trials"] == 80
    rows = len(leaderboard.build_rows(store))
    assert rows == facts["accepted_kernels"] < facts["kernels"]
    assert f"of {facts['kernels']} kernels ({facts['kernels'] - rows} never accepted)" in summary.as_text(
        store, task, result
    )
    text = summary.as_text(store, task, result)
    assert f"best: {best['speedup']:.2f}x the seed (estimated)" in text
    assert all(step["edit"] in text for step in best["steps"])
    assert "estimated time per shape" in text and "n=65536" in text
    assert json.loads(json.dumps(facts)) == facts


def test_an_estimate_beyond_what_the_model_was_fitted_to_says_so(finished):
    store, task, result = finished
    assert "fitted to no such kernel" not in summary.as_text(store, task, result)
    outcome = result.best.outcome
    times = [dataclasses.replace(t, detail={EXTRAPOLATES: ["a loop inside a loop"]}) for t in outcome.measurement.times]
    measured = dataclasses.replace(outcome.measurement, times=tuple(times))
    best = dataclasses.replace(result.best, outcome=dataclasses.replace(outcome, measurement=measured))
    text = summary.as_text(store, task, dataclasses.replace(result, best=best))
    assert "note: the model was fitted to no such kernel (a loop inside a loop): its estimate may be off" in text


@pytest.fixture
def nearly(finished):
    """A run of two trials: the seed, and a rewritten kernel that is faster by a factor."""
    kept, task, result = finished
    seed, other = result.trials[0], next(t for t in result.trials if t.accepted and t.kernel != result.trials[0].kernel)
    structures = kept.load_structures(result.run.id)

    def make(gain):
        store = Store.open_in_memory()
        run = store.add_run(task, result.run.facts)
        faster = [dataclasses.replace(t, time_us=t.time_us / gain) for t in seed.outcome.measurement.times]
        measured = dataclasses.replace(seed.outcome.measurement, times=tuple(faster))
        trial = dataclasses.replace(
            other, number=1, outcome=dataclasses.replace(other.outcome, measurement=measured), score=1 / gain
        )
        store.add_trial(run, seed, structures[seed.kernel])
        store.add_trial(run, trial, dataclasses.replace(structures[other.kernel], number=1, parent=seed.kernel))
        per_shape = {t.shape: trial for t in faster}
        return store, Result(run, [seed, trial], trial, per_shape, 1.0), seed.kernel, other.kernel

    return make


@pytest.mark.parametrize(("gain", "gained"), [(1.0004, False), (1.004, False), (1.0099, False), (1.011, True)])
def test_one_rule_says_what_is_gained_shown_written_and_exported(nearly, gain, gained):
    store, result, seed, other = nearly(gain)
    text = summary.as_text(store, simulated.task(), result)
    assert ("nothing was gained" in text) is not gained and (f"kernel {other[:8]}" in text) is gained
    assert ("1.01x" in text) is gained, "no line says what the headline denies"
    best = other if gained else seed
    assert summary.choose_kernel(result) == family_tree.find_best_kernel(store) == best
    assert f"kernel {best}" in kernel_file.render_kernel_file(store)
    ratios = {seed: {"timed:0": 1.0}, other: {"timed:0": 1 / gain}}
    assert choose_table([seed, other], ratios.get, str, seed) == {"timed:0": best}


@pytest.mark.parametrize(("tuned", "alone"), [(1.49, True), (1.2, False)])
def test_a_rewrite_is_not_named_for_what_its_config_gains_alone(nearly, tuned, alone):
    """And what the table of edits says of a step is what the kernel's own part says of it."""
    store, result, seed, other = nearly(1.5)
    structures, first = store.load_structures(result.run.id), result.trials[0].outcome.measurement
    gains = {0: 1.0, 1: tuned, 2: 1.5}
    steps = []
    for place, gain in gains.items():
        times = tuple(dataclasses.replace(t, time_us=t.time_us / gain) for t in first.times)
        kernel, config = (other, result.best.config) if place == 2 else (seed, result.trials[0].config)
        measured = dataclasses.replace(first, times=times)
        steps.append(PlacedStep(place, structures[kernel].kernel, config, measured))
    add_steps(store, result.run, steps)
    assert (CONFIG_ALONE in summary.as_text(store, simulated.task(), result)) is alone
    page = unescape(html.render_page(store))
    assert page.count(CONFIG_ALONE) == 2 * alone
    (earned,) = re.findall(r"What each edit earned.*?<tbody>\s*<tr>.*?([\d.]+)×</td></tr>", page, re.DOTALL)
    (step,) = re.findall(r"<dd>([\d.]+)× its parent, both at the best kernel", page)
    assert earned == formats.format_ratio(float(step)) == formats.format_ratio(1.5 / tuned)


def test_the_hints_of_a_part_are_those_of_the_trial_that_it_shows(nearly):
    store, result, _, other = nearly(1.5)
    trial = result.trials[1]
    config = {**trial.config, "num_warps": 16}
    hints = tuple(Hint(f"limit {n}", {"x": 1.0}, "num_warps: 8") for n in (2, 3))
    for number, (score, hint) in enumerate(zip((1 / 1.6, 1 / 1.4), hints), 2):
        outcome = dataclasses.replace(trial.outcome, hints=(hint,))
        store.add_trial(
            result.run, dataclasses.replace(trial, number=number, config=config, outcome=outcome, score=score)
        )
        config = {**config, "num_warps": 32}
    assert queries.best_hints(store, result.run.id)[other] == [hints[0]]


def test_the_seed_with_another_config_is_no_gain_either(finished):
    """What gains nothing is not shown, nor written as `1.01x`: two digits would make a gain of 1.007."""
    kept, task, result = finished
    seed = result.trials[0]
    store = Store.open_in_memory()
    run = store.add_run(task, result.run.facts)
    faster = tuple(dataclasses.replace(t, time_us=t.time_us / 1.0096) for t in seed.outcome.measurement.times)
    outcome = dataclasses.replace(seed.outcome, measurement=dataclasses.replace(seed.outcome.measurement, times=faster))
    config = {**seed.config, "num_warps": 16}
    tuned = dataclasses.replace(seed, number=1, config=config, outcome=outcome, score=1 / 1.0096)
    store.add_trial(run, seed, kept.load_structures(result.run.id)[seed.kernel])
    store.add_trial(run, tuned)
    assert "1.00x the seed" in (shown := kernel_file.render_kernel_file(store)) and "trial 0" in shown
    table = leaderboard.as_text(leaderboard.build_rows(store))
    assert "1.009" in table and "1.01" not in table and "none gains 1% over the seed: its own config" in table


def rejected(trial, word, stage, reason):
    return dataclasses.replace(trial, outcome=Outcome(Verdict(word, stage, reason)), score=None)


def test_summary_says_why_trials_were_rejected_most_frequent_first(finished):
    store, task, result = finished
    seed = result.trials[0]
    trials = [
        seed,
        rejected(seed, Word.COMPILE, "compile", "out of shared memory: 270336 of 232448"),
        *(rejected(seed, Word.WRONG, "judge", f"error {n} times the limit\nin row {n}") for n in (3, 4, 5)),
        rejected(seed, Word.WRONG, "judge", "NaN where the reference has none"),
        rejected(seed, Word.STATIC, "gate", "`tl.inline_asm_elementwise` is not allowed"),
    ]
    cut = dataclasses.replace(result, trials=trials)
    text = summary.as_text(store, task, cut)
    assert (
        "  4 wrong (judge): error 3 times the limit in row 3; and 1 for another reason\n"
        "  1 compile (compile): out of shared memory: 270336 of 232448\n"
        "  1 static (gate): `tl.inline_asm_elementwise` is not allowed\n"
    ) in text
    facts = summary.as_dict(store, task, cut)["rejected"]
    assert [(r["verdict"], r["trials"]) for r in facts] == [
        ("reject-wrong", 4), ("reject-compile", 1), ("reject-static", 1)
    ]  # fmt: skip


def test_summary_of_a_run_without_gain_and_of_an_interrupted_one(search):
    store = Store.open_in_memory()
    task = dataclasses.replace(simulated.task(), space={"num_warps": (4,)})
    result = search(store, "tpe", 20, task=task)
    text = summary.as_text(store, task, result)
    assert "nothing was gained: nothing is faster than the seed by 1% (estimated)" in text
    assert "ended early" in text
    cut = dataclasses.replace(result, interrupted=True)
    again = "kernelsearch optimize softmax.py --resume"
    text = summary.as_text(store, task, cut, again)
    assert "interrupted after 1 of 20 trials" in text and f"go on with: {again}" in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_plain_lines_away_from_a_terminal(search):
    stream = io.StringIO()
    with progress.ProgressLine(stream) as line:
        result = search(Store.open_in_memory(), on_trial=line, on_landed=line.tell_landed)
    lines = stream.getvalue().splitlines()
    assert "\r" not in stream.getvalue() and 10 <= len(lines) < 40
    assert lines[-1].startswith("trial 80/80  best ") and "(estimated)" in lines[-1] and "left" not in lines[-1]
    assert f"{1 / result.best.score:.2f}x the seed" in lines[-1]
    accepted = sum(t.accepted for t in result.trials)
    assert f"{accepted} accepted" in lines[-1]


@pytest.mark.parametrize("columns", [110, 60])
def test_progress_is_a_bar_on_a_terminal(search, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    with progress.ProgressLine(stream) as line:
        search(Store.open_in_memory(), on_trial=line, on_landed=line.tell_landed)
        line.note("note: a sentence")
    text = stream.getvalue()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "\x1b[" in text and "80/80" in plain and "note: a sentence\n" in plain
    last = plain.splitlines()[-1]
    assert "x the seed (estimated)" in last and " left " not in last and last.count("accepted") == (columns == 110)
    assert max(map(len, plain.replace("\r", "\n").splitlines())) <= columns
    empty = Terminal()
    with progress.ProgressLine(empty):
        pass
    assert empty.getvalue() == ""


def test_the_bar_counts_from_the_runs_start_and_says_no_time_left_after_an_interrupt(monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    with progress.ProgressLine(stream := Terminal()) as line:
        for done in range(1, 31):
            line.tell_landed(Progress(done, 100, 0, None, Counter(accept=done), 60.0 + done))
        line._bars.refresh()
        line.tell_interrupted("interrupted: a sentence")
        line.tell_landed(Progress(31, 100, 0, None, Counter(accept=31), 91.0))
    before, after = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).split("interrupted: a sentence\n")
    assert re.search("30/100 .* 0:01:[0-9]+ 1.0/s  trials: 1:10 left", before)
    told = [Progress(n, 100, 0, None, Counter(accept=n), 0.1 * n) for n in range(1, 99)]
    with progress.ProgressLine(stream := Terminal()) as line:
        for one in told:
            line.tell_landed(one)
        line._bars.refresh()
    assert "98/100" in stream.getvalue() and "10.0/s  waiting for 2" in stream.getvalue(), "and not 0:00"
    assert after.splitlines()[-1].rstrip().endswith("finishing 31 accepted")


def test_a_dumb_terminal_gets_plain_lines(search, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with progress.ProgressLine(stream := Terminal()) as line:
        search(Store.open_in_memory(), on_trial=line)
    assert "\x1b" not in stream.getvalue() and "trial 80/80  best " in stream.getvalue()


def test_text_has_colours_on_a_terminal_only(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    command = "go on with: kernelsearch optimize softmax.py --trials 300 --db runs.db --resume"
    code = "        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)"
    said = f"note: 2 reject-wrong\nbest: 1.43x the seed (estimated)\n{command}\n  @@ -1 +1 @@\n{code}\n"
    text = said + "a long line " * 30
    print_text(text, there := Terminal())
    print_text(text, elsewhere := io.StringIO())
    assert elsewhere.getvalue() == text.rstrip() + "\n"
    assert "\x1b[31mreject-wrong" in there.getvalue() and "\x1b[33mnote:" in there.getvalue()
    shown = re.sub(r"\x1b\[[0-9;]*m", "", there.getvalue())
    assert shown.split() == elsewhere.getvalue().split(), "lines break between words"
    assert {command, code} <= set(shown.splitlines()), "what is copied is one line"
    assert max(len(line) for line in shown.splitlines() if line not in (command, code)) <= 60
    monkeypatch.setenv("NO_COLOR", "1")
    print_text(text, quiet := Terminal())
    assert "\x1b[3" not in quiet.getvalue()


def test_the_time_left_follows_from_the_recent_trials():
    """A first trial of 20 s, then two a second: after ten trials the other ninety take 45 s and not four minutes."""
    pace, trials = progress.Pace(), [20.0 + 0.5 * n for n in range(10)]
    told = [Progress(n, 100, 0, None, Counter(accept=n), s) for n, s in enumerate(trials, 1)]
    said = [(pace.tell(one), pace.predict_left(one.seconds)) for one in told]
    assert said[: progress.LEAST - 1] == [(None, None)] * (progress.LEAST - 1) and said[-1] == (2.0, 45.0)
    slower = [Progress(10 + n, 100, 0, None, Counter(), 25.0 + 3 * n) for n in range(1, 31)]
    assert [pace.tell(p) for p in slower][-1] == pytest.approx(1 / 3)
    assert pace.predict_left(slower[-1].seconds) == pytest.approx(180, abs=0.5)


def test_the_time_left_counts_down_between_trials_that_land_at_once():
    """Four every two seconds, 200 in all: it says at each tenth of a second what is really left."""
    pace, left = progress.Pace(), []
    for tenth in range(400):
        if tenth % 20 == 0:
            pace.tell(Progress(4 + tenth // 5, 200, 0, None, Counter(), tenth / 10))
        left.append(pace.predict_left(tenth / 10))
    known = [value for value in left if value is not None]
    assert known[0] == pytest.approx(98 - 2) and known[-1] == pytest.approx(98 - 39.9, abs=0.2)
    assert all(before - after == pytest.approx(0.1) for before, after in itertools.pairwise(known))
    assert pace.predict_left(42.0) == pace.predict_left(90.0), "no further than to the next ones, which are late"
    pace.tell(Progress(200, 200, 0, None, Counter(), 41.0))
    assert pace.predict_left(41.0) == 0.0, "whatever was expected before"


def test_trials_that_land_at_once_after_a_long_wait_are_no_great_pace():
    pace = progress.Pace()
    first, burst = [Progress(6, 60, 0, None, Counter(), 4.0), Progress(6, 60, 0, None, Counter(), 104.0, landed=36)]
    assert [pace.tell(first), pace.tell(burst)] == [None, 0.3]
    assert pace.predict_left(104.0) == 80.0
    after_a_wait = Progress(6, 60, 0, None, Counter(), 164.0, landed=40)  # 40 s each, for four of them
    assert pace.tell(after_a_wait) == (40 - 6) / 160


def test_replayed_trials_are_no_pace():
    pace = progress.Pace()
    rates = [pace.tell(Progress(50 + n, 100, 50, None, Counter(), 10.0 + 2 * n)) for n in range(12)]
    assert rates[: progress.LEAST] == [None] * progress.LEAST and rates[-1] == 0.5


def test_a_resumed_run_shows_and_counts_from_where_it_stopped(monkeypatch):
    """50 stored trials are told again in a second; then each takes 2 s, so that the other 38 take 1:16."""
    monkeypatch.setenv("COLUMNS", "110")
    told = [Progress(n, 100, 50, None, Counter(accept=n), 0.02 * n) for n in range(1, 51)]
    told += [Progress(50 + n, 100, 50, None, Counter(accept=50 + n), 1.0 + 2 * n) for n in range(1, 13)]
    with progress.ProgressLine(stream := Terminal()) as bar, progress.ProgressLine(plain := io.StringIO()) as line:
        for one in told:
            for shown in (bar, line):
                shown.tell_landed(one)
                shown(None, one)
    assert min(int(n) for n in re.findall(r"(\d+)/100", stream.getvalue() + plain.getvalue())) >= 50
    assert plain.getvalue().splitlines() == ["trial 60/100  60 accepted  2.0 s each  trials: 1:20 left"]


def test_times_have_units():
    times = [formats.format_time(us) for us in (8.214, 94.0, 512.34, 1310.0, 2.4e6)]
    assert times == ["8.21 us", "94 us", "512.3 us", "1.31 ms", "2.4 s"]


def test_durations_and_configs():
    assert [formats.format_duration(s) for s in (0.2, 42, 725, 3723)] == ["0:00", "0:42", "12:05", "1:02:03"]
    assert formats.format_config({"num_warps": 4, "BLOCK": 1024}) == "BLOCK=1024 num_warps=4"
