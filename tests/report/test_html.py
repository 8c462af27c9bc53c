"""The page holds what the database holds, runs nothing that a kernel's text brings, and works in a browser."""

import base64
import gzip
import html as html_module
import itertools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import databases
import simulated
from kernelsearch.core.types import Hint, Outcome, Proposal, ProposalKind, Trial, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import RunFacts, Structure
from kernelsearch.record.store import Store
from kernelsearch.report import html, leaderboard
from made_outcomes import accept, measure

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browser_only = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def large(trials, kernels, rationale="why"):
    """A store of one run that no search made: every kernel has trials, parents and a diff."""
    store, task = Store.open_in_memory(), simulated.task()
    run = store.add_run(task, RunFacts("evolve", "edits", 0, 8, trials, "simulated"))
    seed = Kernel.parse(simulated.SEED_KERNEL)
    made = [seed]
    for number in range(trials):
        if 0 < number < kernels:
            body = f"\n    extra = {number} * tl.program_id(0)  # {'x' * 40}\n    extra += {number}\n"
            made.append(Kernel.parse(simulated.SEED_KERNEL.rstrip() + body))
        kernel, edit, structure = made[number % kernels], f"edit_{number % 20}", None
        if 0 < number < kernels:
            structure = Structure(kernel, number, made[(number - 1) // 3].digest, edit, rationale)
        config = {"BLOCK": 64, "num_warps": 1 + number // kernels}
        score = 1.0 / (1 + (number * 7919 % trials) / trials) if number else 1.0
        hints = (Hint("memory latency", {"gbps": 1900.0}, rationale),)
        outcome = accept(100 * score, hints=hints, device="simulated")
        if number % 10 == 9:
            outcome, score = Outcome(Verdict(Word.WRONG, "judge", rationale)), None
        proposal = Proposal(ProposalKind.RETUNE, (kernel.digest,))
        trial = Trial(number, proposal, kernel.digest, config, outcome, score, edit, rationale)
        store.add_trial(run, trial, structure if number else Structure(seed, 0))
    return store


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page's text; fails the test at any error that the browser tells."""
    said = []

    def open_it(text, **options):
        file = tmp_path / "page.html"
        file.write_text(text)
        page = browser.new_page(**options)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith("file:") else said.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_it
    assert not said


def confirm(store, kernel, ratio=0.95):
    """Adds a confirmation of one of a simulated run's kernels; ratio is its gain over the fastest baseline."""
    timed, clocks = ("timed:0", "timed:1"), ("control", "blocks", "dropped", "clocks", "launch_bound")
    beside, seed = {"ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01}, {"ratio": 2.0, "low": 1.9, "high": 2.1}
    times = [{"name": "eager", "time_us": 10.0 * ratio}, {"name": "seed", "time_us": 20.0}]
    shape = {**dict.fromkeys(clocks), "time_us": 10.0, "fastest": "eager", "roofline": 0.5, "baselines": times}
    shape |= {"vs_seed": seed, "vs_fastest": beside, "spread_us": 0.1, "samples": 5}
    finding = {"device": "simulated", "protocol": "p", "status": "confirmed", "faster": ratio > 1, "time_us": 10.0}
    finding |= {"vs_seed": seed, "vs_fastest": beside, "aa_spread": 0.001, "roofline": 0.5, "level": 0.99}
    finding |= {"kernel": kernel.digest, "name": kernel.digest[:8], "config": {"BLOCK": 64}, "launch_bound": False}
    finding["shapes"] = [{**shape, "shape": key, "label": key} for key in timed]
    store.add_confirmation(simulated.task(), Structure(kernel, 0), {"BLOCK": 64}, finding, {})


def test_every_kernel_of_the_leaderboard_is_on_the_page_and_near_equal_ones_are_one_row(finished):
    store, _, _ = finished
    rows = leaderboard.build_rows(store)
    folded = html.content.fold_ties(rows)
    assert 3 < len(folded) < len(rows)
    for limit in (3, len(folded) - 1, None):  # it counts the rows that stand there: ties do not use it up
        text = html.render_page(store, limit=limit)
        shown = folded if limit is None else [r for r in folded if r["speedup"] > 0.99][:limit]  # no slower ones
        assert text.count("<tr data-task=") == len(shown) and ("in the lineage." in text) == (len(shown) < len(folded))
        kernels = sum(1 + len(r["ties"]) for r in shown)
        left_out = re.search(r"(\d+) more kernels?, slower", text)
        assert kernels + int(left_out[1] if left_out else 0) == len(rows), "kernels are counted, not rows"
    assert (
        len(shown) > 3
        and all(r["kernel"][:8] in text for r in rows)
        and all(f"{r['speedup']:.2f}" in text for r in folded)
    )
    assert [one["kernel"] for r in folded for one in (r, *r["ties"])] == [r["kernel"] for r in rows]
    for better, worse in itertools.pairwise(folded):
        assert better["speedup"] / worse["speedup"] >= 1.01
        assert all(better["speedup"] / tie["speedup"] < 1.01 for tie in better["ties"])


@pytest.mark.slow
def test_a_run_is_finished_running_or_cut(tmp_path):
    """Whether an unfinished run goes on is asked of its lock, from another process; a killed writer leaves the file."""
    page = "from kernelsearch.record.store import Store; from kernelsearch.report import html; import re, sys\n"
    page += "with Store.open(sys.argv[1], write=False) as s: print(*re.findall(r'<td>(finished|running|cut)</td>', "
    page += "html.render_page(s)))"

    def states():
        command = [sys.executable, "-c", page, str(tmp_path / "runs.db")]
        return sorted(subprocess.run(command, capture_output=True, text=True).stdout.split())

    with Store.open(tmp_path / "runs.db") as store:
        databases.search(store, trials=6)
        going = databases.search(store, seed=1, trials=6).run
        assert re.findall("<td>(finished|running)</td>", html.render_page(store)) == ["finished"] * 2
        store.database.execute("UPDATE run SET finished = NULL")
        store.database.conn.commit()
        store.claim_run(going.id)
        assert states() == ["cut", "running"] == sorted(re.findall("<td>(running|cut)</td>", html.render_page(store)))
    assert states() == ["cut", "cut"]
    (tmp_path / "runs.db-lock").write_text("1\n")
    assert states() == ["cut", "cut"]


def test_the_pages_count_of_kernels_is_that_of_its_tasks():
    """Two tasks may have kernels of the same text."""
    with Store.open_in_memory() as store:
        for name in ("one", "two"):
            databases.search(store, trials=8, task=replace(simulated.task(), name=name, digest=name))
        text = html.render_page(store)
    counts = [int(n) for n in re.findall(r"\d+ trials of (\d+) kernels", text)]
    assert len(counts) == 3 and counts[0] == sum(counts[1:])


def test_ties_are_of_one_task_device_and_evidence():
    row = {"task": "a", "device": "d", "evidence": "measured", "shapes": "", "speedup": 2.0}
    others = [{**row, "evidence": "estimated"}, {**row, "device": "e"}, {**row, "task": "b"}, {**row, "shapes": "n=2"}]
    assert [len(r["ties"]) for r in html.content.fold_ties([row, row, *others])] == [1, 0, 0, 0, 0]


def test_a_card_says_against_what_and_how_it_was_obtained(finished):
    def card(store):
        return re.search("<article.*?</article>", html.render_page(store), re.DOTALL)[0]

    searched = card(finished[0])
    assert 'class="badge estimated"' in searched and "the seed" in searched and "not confirmed" in searched
    store = large(40, 20)
    confirm(store, next(iter(store.load_structures(1).values())).kernel)
    confirmed = card(store)
    assert 'class="badge confirmed"' in confirmed and 'class="badge measured"' not in confirmed
    assert "0.950× <small>the fastest baseline" in confirmed and "[0.940, 0.960]" in confirmed
    assert "not shown to be faster" in confirmed and "the seed (measured)" in confirmed


def test_every_trial_is_a_point_and_each_run_has_a_named_line(search):
    with Store.open_in_memory() as store:
        results = [search(store, trials=30), search(store, "random_walk", trials=30, seed=1)]
        (section,) = html.content.page(store, None, None, None)["sections"]
        for width in (html.charts.WIDE, html.charts.NARROW):
            drawn = html.charts.draw_trials(section, width)
            said = re.findall('aria-label="(trial [^"]+)"', drawn)
            assert len(said) == sum(len(r.trials) for r in results)
            for trial in (t for r in results for t in r.trials):
                of_it = f"trial {trial.number} of run {trial.run if hasattr(trial, 'run') else ''}"
                assert any(text.startswith(of_it.rstrip()) and trial.kernel[:8] in text for text in said)
            assert {"best of run 1 (evolve, seed 0)", "best of run 2 (random_walk, seed 1)"} <= set(words(drawn))
            assert {v.outcome.verdict.word.value for r in results for v in r.trials} - {"accept"} <= set(words(drawn))


def test_the_slowest_trials_stand_on_the_edge():
    """One trial at a tenth of the seed's speed leaves the room to those near the best."""
    trials = [{"number": n, "score": score, "run": 1} for n, score in enumerate((1.0, 0.9, 10.0))]
    rest = {"kernel": "k" * 8, "edit": "", "kind": "retune", "abandoned": False}
    run = {"id": 1, "strategy": "s", "seed": 0, "trials": 3}
    section = {"task": "t", "evidence": "estimated", "runs": [run], "baselines": []}
    drawn = html.charts.draw_trials({**section, "points": [t | rest for t in trials]})
    height = dict(re.findall(r'aria-label="trial ([0-9]) .*?translate\([0-9.]+,([0-9.]+)', drawn))
    assert float(height["2"]) == html.charts.HEIGHT and "0.100x the seed" in drawn
    assert float(height["0"]) - float(height["1"]) > 40


def words(drawn):
    return re.findall(">([^<>]+)</text>", drawn)


def test_points_without_labels_are_all_there(monkeypatch):
    (section,) = html.content.page(large(40, 20), None, None, None)["sections"]
    monkeypatch.setattr(html.charts, "MOST_LABELS", 10)
    drawn = html.charts.draw_trials(section)
    assert sum(path.count("M") for path in re.findall('d="((?:M[^"M]+h0)+)"', drawn)) == 40


def test_a_tree_is_ordered_by_its_best_descendants_and_closes_all_it_opens():
    speeds = {"a": 1.0, "b": 1.9, "c": 0.5, "d": None, "e": 2.0, "f": 1.2}
    parents = {"a": None, "b": "a", "c": "a", "d": "c", "e": "d", "f": "a"}
    kernels = {k: {"speedup": speeds[k], "parent": parents[k], "first": n} for n, k in enumerate(speeds)}
    lines = list(html.kernel_parts._walk_tree(kernels))
    order = [next(k for k, facts in kernels.items() if facts is line["of"]) for line in lines]
    assert order == ["a", "c", "d", "e", "b", "f"]
    assert [line["way"] for line in lines] == [True, True, True, True, False, False]
    assert [line["best_of_all"] for line in lines].index(True) == 3
    assert sum(line["closes"] for line in lines) == sum(line["below"] > 0 for line in lines)


def test_where_nothing_is_gained_the_seed_is_the_best():
    store = large(1, 1)
    seed, (trial,) = next(iter(store.load_structures(1))), store.load_trials(1)
    twin = simulated_twin()
    measured = measure(99.5, device="simulated")
    near = replace(
        trial, number=1, kernel=twin.digest, score=0.995, outcome=replace(trial.outcome, measurement=measured)
    )
    store.add_trial(store.load_run(1), near, Structure(twin, 1, seed, "edit", "why"))
    text = html.render_page(store)
    assert "nothing is faster than the seed by 1&nbsp;%" in text and "not confirmed" not in text
    assert "1.00× <small>the seed" in text, "the card's number is that of the kernel that it links to"
    assert re.search(r'href="#[^"]*">(\w+)</a> seed [^\n]*★ best', text)[1] == seed[:8]


def simulated_twin():
    return Kernel.parse(simulated.SEED_KERNEL).with_changes(constants=("extra = tl.constexpr(1)",))


def test_a_deep_tree_is_drawn():
    kernels = {n: {"speedup": 1.0 + n, "parent": n - 1 if n else None, "first": n} for n in range(3000)}
    assert [line["below"] for line in html.kernel_parts._walk_tree(kernels)] == list(range(2999, -1, -1))


def test_a_kernels_part_says_all_that_is_needed_to_take_it_over(finished):
    store, _, result = finished
    (part,) = re.findall(
        f'<details class="part" id="[^"]*-{result.best.kernel[:8]}".*?Again.*?</details>',
        html.render_page(store),
        re.DOTALL,
    )
    config = result.best.config
    pasted = html_module.unescape(re.search("triton.Config[^<\n]+", part)[0])
    made = eval(pasted, {"triton": SimpleNamespace(Config=lambda constants, **options: constants | options)})
    assert made == dict(config)
    for said in (result.best.kernel, "accepted", "estimated", f"kernelsearch show {result.best.kernel}", "verify"):
        assert said in part
    assert '<span class="k">def</span>' in part and 'class="add"' in part
    assert "SPACE" not in re.search('class="diff".*?</pre>', part, re.DOTALL)[0], "only what changed in the code"


def test_the_page_needs_no_network_and_is_the_same_each_time(finished):
    text = html.render_page(finished[0])
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", text) and "@import" not in text
    assert text == html.render_page(finished[0])


@pytest.mark.slow
def test_ten_thousand_trials_fit_in_three_megabytes():
    text = html.render_page(large(10_000, 1_500))
    packed = base64.b64decode(re.search(r'id="packed">(.*?)</script>', text).group(1))
    parts = json.loads(gzip.decompress(packed))
    assert text.count('<span class="line">') == 1_500 and len(parts) > 900
    assert all('class="diff"' in part for name, part in parts.items() if not name.endswith(seed_of_large()))
    assert len(text.encode()) <= 3_000_000


def seed_of_large():
    return Kernel.parse(simulated.SEED_KERNEL).digest[:8]


def test_an_empty_database_has_a_page():
    with Store.open_in_memory() as store:
        assert "No accepted kernel yet" in html.render_page(store)


@pytest.mark.slow
@browser_only
def test_filter_sort_and_follow_a_link_by_keyboard(finished, opened):
    store, _, result = finished
    page = opened(html.render_page(store, limit=None))
    shown = page.locator(".board tbody tr:visible")
    rows = shown.count()
    best = result.best.kernel[:8]
    page.get_by_label("Search").fill(best)
    assert 1 <= shown.count() < rows and all(best in row for row in shown.all_inner_texts())
    page.get_by_label("Search").fill("nothing is called so")
    assert shown.count() == 0 and page.locator("#f-count").inner_text() == "0 rows"
    page.get_by_label("Search").fill("")
    head = page.locator(".board thead").get_by_role("button", name="time")
    for key, order, down in (("Enter", "descending", True), ("Space", "ascending", False)):
        head.focus()
        page.keyboard.press(key)
        assert page.locator(".board th[aria-sort]").get_attribute("aria-sort") == order
        values = [
            float(v) for v in page.locator(".board td[data-value]").evaluate_all("l => l.map(e => e.dataset.value)")
        ]
        assert values == sorted(values, reverse=down) and len(set(values)) > 2
    rejected = page.locator(".tree .line:has(.refused) a.kernel").first
    target = rejected.get_attribute("href")
    assert page.locator(f'[id="{target[1:]}"]').count() == 0, "packed until it is asked for"
    rejected.focus()
    page.keyboard.press("Enter")
    part = page.locator(f'[id="{target[1:]}"]')
    for shown in (".diff .add", ".refused"):
        part.locator(shown).first.wait_for()
    assert page.url.endswith(target) and page.evaluate("document.activeElement.tagName") == "SUMMARY"


@browser_only
def test_a_screen_reader_is_told_every_trial_heading_and_code(finished, opened):
    """As the browser's accessibility tree has them; for many readers the children of an image are not there."""
    page = opened(html.render_page(finished[0]))
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    said = [(n.get("role", {}).get("value"), n.get("name", {}).get("value", "")) for n in tree if not n["ignored"]]
    points = [name for role, name in said if role == "graphics-symbol" and re.match("trial [0-9]+ of run", name)]
    assert len(points) >= len(finished[2].trials) and not any(role == "image" for role, _ in said)
    assert {"Leaderboard", "Lineage", "Kernels", "Source", "Again"} <= {
        name for role, name in said if role == "heading"
    }
    assert ("group", "source") in said and ("search", "Filter the leaderboard") in said


@browser_only
def test_the_page_is_whole_without_its_script_and_in_print(browser, opened, finished, tmp_path):
    """Nothing waits for a click or for being scrolled to: a full capture has the tree, paper has what is folded too."""
    text = html.render_page(finished[0])
    file = tmp_path / "still.html"
    file.write_text(text)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    tree = page.locator(".tree").first
    assert "★ best" in tree.inner_text() and page.locator(".part .code").first.is_visible()
    page.emulate_media(media="print")
    folded = page.locator("details.part:not([open]) .code").first
    assert folded.bounding_box()["height"] > 20
    context.close()


@pytest.mark.slow
@browser_only
@pytest.mark.parametrize("width", [390, 901, 1400])
def test_long_configs_and_names_widen_no_page(finished, opened, width):
    """Names of several launch sites are long: the page never scrolls sideways, and names break after `_` or `+`."""
    long = {f"mean_of_the_columns_kernel.{name}": 128 for name in ("BLOCK", "ROWS", "num_warps", "num_stages")}
    wide = {"config": long, "edit": "persistent+lane_accumulator", "fastest": "max-autotune", "roofline": 0.5}
    wide |= {"vs_fastest": 1.234, "vs_fastest_low": 1.2, "vs_fastest_high": 1.3}
    rows = html.content.fold_ties([r | wide for r in leaderboard.build_rows(finished[0], limit=3)])
    facts = {**html.content.page(finished[0], None, None, 3), "rows": rows}
    for section in facts["sections"]:
        section["edits"] = [{**e, "name": f"persistent+lane_accumulator+{e['name']}"} for e in section["edits"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html.content, "page", lambda *_: facts)
        text = html.render_page(finished[0])
    assert "persistent+<wbr>lane_<wbr>accumulator" in text
    page = opened(text, viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    whole = "[...document.querySelectorAll('%s')].every(f => f.scrollWidth <= f.clientWidth)"
    assert page.evaluate(whole % "figure.wide"), "a cut drawing"
    if width > 900:
        assert page.evaluate(whole % "figure")


def test_a_column_that_no_row_fills_is_left_out(finished):
    text = html.render_page(finished[0])
    assert "fastest baseline</th>" not in text and ">roofline</th>" not in text, "nothing is confirmed here"


def test_a_logarithmic_axis_has_round_numbers():
    assert html.charts._round_numbers(0.97, 17.9) == [1, 2, 5, 10]
    assert html.charts._round_numbers(0.4, 120) == [0.5, 1, 2, 5, 10, 20, 50, 100]


@browser_only
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_in_one_direction_only(finished, opened, scheme):
    page = opened(html.render_page(finished[0]), viewport={"width": 360, "height": 740}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@browser_only
def test_texts_of_kernels_are_shown_and_never_run(opened):
    page = opened(html.render_page(large(40, 20, HOSTILE)))
    assert page.title().startswith("kernelsearch")
    page.locator(".tree details > summary a.kernel").nth(3).click()
    sync_api = pytest.importorskip("playwright.sync_api")
    part = page.locator(".part:target")  # its text is unpacked when it is first shown
    sync_api.expect(part).to_contain_text("onerror", use_inner_text=True)
    assert page.title().startswith("kernelsearch")
    assert page.locator("img").count() == 0
