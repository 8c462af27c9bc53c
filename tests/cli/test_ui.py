"""The page is served of a real database."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

import databases
from kernelsearch.record.store import Store

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def database(tmp_path):
    with Store.open(tmp_path / "some.db") as store:
        databases.search(store, trials=20)
    return tmp_path / "some.db"


@pytest.fixture
def serve(database):
    """Starts `kernelsearch ui` and gives a function that gets a path of it, until the test ends."""
    started = []

    def start():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "kernelsearch", "ui", "--db", str(database), "--port", str(port)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)

        def get(path):
            deadline = time.monotonic() + 60
            while True:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                        return answer.read().decode()
                except urllib.error.HTTPError:
                    raise
                except (urllib.error.URLError, ConnectionError):
                    assert process.poll() is None and time.monotonic() < deadline, process.stderr.read().decode()
                    time.sleep(0.2)

        get.address = f"http://127.0.0.1:{port}/"
        return get

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGTERM)  # not SIGINT: whoever runs the tests in the background ignores it
        process.wait(30)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_an_open_page_follows_the_search_and_keeps_what_its_reader_chose(serve, database):
    sync_api = pytest.importorskip("playwright.sync_api")
    get = serve()
    assert "20 trials" in get("/") and "connect-src" in get("/")
    with pytest.raises(urllib.error.HTTPError):
        get("/other")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, wrong = chromium.new_page(), []
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(get.address)
        page.get_by_label("Search").fill("edit_")
        page.locator(".board thead").get_by_role("button", name="time").click()
        page.locator(".tree details summary a.kernel").nth(1).click()
        opened = page.locator("details.part[open]").last.get_attribute("id")
        with Store.open(database) as store:
            databases.search(store, "random_walk", trials=10, seed=1)
        sync_api.expect(page.locator("#state")).to_contain_text("30 trials", timeout=60_000)
        assert page.get_by_label("Search").input_value() == "edit_"
        assert page.locator(".board th[aria-sort]").inner_text().startswith("time")
        assert page.locator(f'[id="{opened}"][open]').count() == 1 and not wrong
        lines = {text for text in page.locator("figure svg text").all_text_contents() if text.startswith("best of")}
        assert lines == {"best of run 1 (evolve, seed 0)", "best of run 2 (random_walk, seed 1)"}
        chromium.close()


def test_a_missing_database_is_one_line(run, tmp_path):
    result = run("ui", "--db", str(tmp_path / "none.db"))
    assert result.code == 2 and len(result.err.strip().splitlines()) == 1
