"""The page holds what the database holds, runs nothing that a kernel's text brings, and works in a browser."""

import json
import re
import shutil

import pytest

import simulated
from kernelsearch.core.types import (
    Evidence,
    Hint,
    Measurement,
    Outcome,
    Proposal,
    ProposalKind,
    ShapeTime,
    Trial,
    Verdict,
    Word,
)
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import RunFacts, Structure, candidate_row, hint_rows, kernel_row, structure_row, trial_row
from kernelsearch.record.store import Store
from kernelsearch.report import html, leaderboard

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browser_only = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def large(trials, kernels, rationale="why"):
    """A store of one run whose rows were written without a search: every kernel has trials, parents and a diff."""
    store, task = Store.open_in_memory(), simulated.task()
    run = store.add_run(task, RunFacts("evolve", "edits", 0, 8, trials, "simulated"))
    seed = Kernel.parse(simulated.SEED_KERNEL)
    made = [seed]
    with store.database.conn as connection:

        def add(table, row, conflict=""):
            marks = ", ".join("?" * len(row))
            connection.execute(
                f"INSERT {conflict} INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values())
            )

        for number in range(trials):
            fresh = number < kernels
            if fresh and number:
                text = (
                    simulated.SEED_KERNEL.rstrip()
                    + f"\n    extra = {number} * tl.program_id(0)  # {'x' * 40}\n    extra += {number}\n"
                )
                made.append(Kernel.parse(text))
            kernel = made[number % kernels]
            if fresh:
                structure = Structure(
                    kernel,
                    number,
                    made[(number - 1) // 3].digest if number else None,
                    f"edit_{number % 20}" if number else None,
                    rationale if number else "",
                )
                add("kernel", kernel_row(structure), "OR IGNORE")
                add("structure", structure_row(run.id, structure))
            config = {"BLOCK": 64, "num_warps": 1 + number // kernels}
            score = 1.0 / (1 + (number * 7919 % trials) / trials) if number else 1.0
            measured = Measurement(Evidence.MEASURED, "simulated", "search-1", (ShapeTime("timed:0", 100 * score),))
            outcome = Outcome(
                Verdict(Word.ACCEPT, "judge"), measured, (Hint("memory latency", {"gbps": 1900.0}, rationale),)
            )
            if number % 10 == 9:
                outcome = Outcome(Verdict(Word.WRONG, "judge", rationale))
            trial = Trial(number, Proposal(ProposalKind.RETUNE, (kernel.digest,)), kernel.digest, config, outcome,
                          score if outcome.measurement else None, f"edit_{number % 20}", rationale)  # fmt: skip
            add("candidate", candidate_row(task.digest, kernel.digest, config), "OR IGNORE")
            add("trial", trial_row(run.id, task.digest, trial))
            for row in hint_rows(run.id, trial):
                add("hint", row)
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


def test_every_row_of_the_leaderboard_is_on_the_page(finished):
    store, _, _ = finished
    text = html.render_page(store, limit=5)
    rows = leaderboard.build_rows(store, limit=5)
    assert text.count("<tr data-task=") == len(rows) == 5
    assert all(r["kernel"][:8] in text and f"{r['speedup']:.2f}" in text for r in rows)


def test_the_page_needs_no_network_and_is_the_same_each_time(finished):
    text = html.render_page(finished[0])
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", text) and "@import" not in text
    assert text == html.render_page(finished[0])


def test_ten_thousand_trials_fit_in_three_megabytes():
    text = html.render_page(large(10_000, 1_500))
    trees = json.loads(re.search(r'id="trees">(.*?)</script>', text, re.DOTALL).group(1))
    (tree,) = trees.values()
    assert len(tree["nodes"]) == 1_500 and any(n["diff"] for n in tree["nodes"])
    assert len(text.encode()) <= 3_000_000


def test_an_empty_database_has_a_page():
    with Store.open_in_memory() as store:
        assert "No accepted kernel yet" in html.render_page(store)


@browser_only
def test_filter_open_a_node_and_read_its_diff(finished, opened):
    store, _, result = finished
    page = opened(html.render_page(store))
    shown = page.locator(".board tbody tr:visible")
    assert shown.count() == 10
    best = result.best.kernel[:8]
    page.get_by_label("Search").fill(best)
    assert shown.count() >= 1 and all(best in row for row in shown.all_inner_texts())
    page.get_by_label("Search").fill("nothing is called so")
    assert shown.count() == 0 and page.locator("#f-count").inner_text() == "0 rows"
    page.get_by_label("Search").fill("")
    page.locator("section.task .tree").scroll_into_view_if_needed()
    page.locator(".tree button.kernel").nth(1).click()
    dialog = page.get_by_role("dialog")
    assert dialog.is_visible() and dialog.locator(".diff .add").count() > 0
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


@browser_only
@pytest.mark.parametrize("width", [390, 901, 1200])
def test_long_configs_and_names_widen_no_page(finished, opened, width):
    """Names of several launch sites are long: the page never scrolls sideways, and names break after `_` or `+`."""
    long = {f"mean_of_the_columns_kernel.{name}": 128 for name in ("BLOCK", "ROWS", "num_warps", "num_stages")}
    rows = [
        {
            **r,
            "config": long,
            "edit": "persistent+lane_accumulator",
            "vs_fastest": 1.234,
            "vs_fastest_low": 1.2,
            "vs_fastest_high": 1.3,
            "fastest": "max-autotune",
            "roofline": 0.5,
        }
        for r in leaderboard.build_rows(finished[0], limit=3)
    ]
    facts = {**html.content.page(finished[0], None, None, 3), "rows": rows}
    for section in facts["sections"]:
        section["edits"] = [{**e, "name": f"persistent+lane_accumulator+{e['name']}"} for e in section["edits"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html.content, "page", lambda *_: facts)
        text = html.render_page(finished[0])
    assert "persistent+<wbr>lane_<wbr>accumulator" in text
    page = opened(text, viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("[...document.querySelectorAll('figure.wide')].every(f => f.scrollWidth <= f.clientWidth)"), (
        "a cut drawing"
    )
    if width > 900:
        assert page.evaluate("[...document.querySelectorAll('figure')].every(f => f.scrollWidth <= f.clientWidth)")


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
    page.locator("section.task .tree").scroll_into_view_if_needed()
    page.locator(".tree button.kernel").nth(3).click()
    assert "onerror" in page.get_by_role("dialog").inner_text() and page.title().startswith("kernelsearch")
    assert page.locator("img").count() == 0
