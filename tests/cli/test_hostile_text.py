"""What others wrote is printed without what steers a terminal, in every encoding, and is served to this host alone."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from threading import Thread

import pytest

import databases
from kernelsearch.core.errors import TaskError
from kernelsearch.core.formats import make_printable
from kernelsearch.record.store import Store

HOSTILE = "\x1b[31mred\x1b]0;owned\x07\x9b2J\u202e"


@pytest.fixture
def database(tmp_path):
    with Store.open(tmp_path / "some.db") as store:
        databases.search(store, trials=12)
        with store.transaction():
            for table, column in (
                ("trial", "edit"),
                ("structure", "rationale"),
                ("structure", "edit"),
                ("run", "name"),
            ):
                store._execute(f"UPDATE {table} SET {column} = ? || 'caf\u00e9' WHERE {column} <> ''", [HOSTILE])
    return tmp_path / "some.db"


def kernelsearch(*command, **environment):
    run = [sys.executable, "-m", "kernelsearch", *map(str, command)]
    return subprocess.run(run, capture_output=True, env={**os.environ, **environment}, timeout=120, check=False)


@pytest.mark.parametrize("command", [("leaderboard",), ("lineage", "best"), ("show", "best"), ("leaderboard", "--csv")])
def test_no_command_prints_what_steers_a_terminal(database, command):
    done = kernelsearch(*command, "--db", database)
    text = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, text
    assert "caf\u00e9" in text and make_printable(text) == text


@pytest.mark.parametrize("command", [("leaderboard",), ("lineage", "best"), ("show", "best")])
def test_an_output_that_lacks_a_letter_gets_its_number(database, command):
    done = kernelsearch(*command, "--db", database, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and b"caf\\xe9" in done.stdout, done.stderr


def test_sequences_and_single_characters_are_left_out():
    assert make_printable(f"{HOSTILE} one\ttwo\n") == "red]0;owned2J one\ttwo\n"


def test_a_page_is_served_to_who_asks_for_this_host(database):
    from http.server import ThreadingHTTPServer
    from unittest import mock

    from kernelsearch.cli import live_page

    servers = []

    class Server(ThreadingHTTPServer):
        def serve_forever(self, *args):
            servers.append(self)
            super().serve_forever(*args)

    with mock.patch.object(live_page, "ThreadingHTTPServer", Server):
        serving = Thread(target=live_page.serve, args=(str(database), "127.0.0.1", 0))
        serving.start()
        while not servers:
            serving.join(0.01)
        try:
            address = f"http://127.0.0.1:{servers[0].server_port}/"
            for host in ("127.0.0.1", "localhost:8080", "[::1]:1"):
                asked = urllib.request.Request(address, headers={"Host": host})
                assert b"<html" in urllib.request.urlopen(asked, timeout=30).read()
            for host in ("evil.example", "localhost.evil.example:8080", "[", ""):
                with pytest.raises(urllib.error.HTTPError, match="404"):
                    urllib.request.urlopen(urllib.request.Request(address, headers={"Host": host}), timeout=30)
        finally:
            servers[0].shutdown()
            serving.join()


def test_an_agents_kernel_is_a_python_file_of_the_working_folder(tmp_path, monkeypatch):
    pytest.importorskip("mcp")
    from kernelsearch.cli.run_mcp import _read

    secret = tmp_path / "secret.py"
    secret.write_text("password = 'hidden'\n")
    work = tmp_path / "work"
    work.mkdir()
    (work / "kernel.py").write_text("text\n")
    (work / ".env").write_text("TOKEN=hidden\n")
    (work / "link.py").symlink_to(secret)
    monkeypatch.chdir(work)
    assert _read("kernel.py") == _read(str(work / "kernel.py")) == _read("text\n") == "text\n"
    for path in (str(secret), "../secret.py", "link.py", ".env", "/etc/passwd"):
        with pytest.raises(TaskError, match=r"a \.py file in the server's working folder") as refused:
            _read(path)
        assert "hidden" not in str(refused.value)
