"""`mcp` under the official client: a whole conversation, two servers on one database, a client that is killed."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import anyio
import pytest
from test_kernel_answers import RIGHT, WRONG
from test_propose import TASK
from test_try import OTHER

from kernelsearch.record.store import Store

mcp = pytest.importorskip("mcp")
KILLED = """
import anyio, sys
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
kernel = open("right.py").read().replace("[1, 2, 4]", "[1, 2, 4, 8, 16], 'num_stages': [1, 2, 3, 4, 5]")

async def main():
    server = StdioServerParameters(command=sys.executable, args=["-m", "kernelsearch", "mcp"])
    async with Client(stdio_client(server)) as client:
        await client.call_tool("try", {"task": "gate.py", "kernel": kernel, "tune": 500})
anyio.run(main)
"""


def list_descendants(pid):
    """Pids of all processes under this one."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in table.splitlines()]
    found = {pid}
    while more := {child for child, parent in pairs if parent in found} - found:
        found |= more
    return found - {pid}


def count_trials(folder):
    with Store.open(folder / "kernelsearch.db", write=False) as store:
        return [store.count_trials(run.id) for run in store.load_runs()][::-1]


@pytest.mark.slow
def test_an_agent_works_through_its_tools_beside_another_whose_client_is_killed(tmp_path):
    (tmp_path / "gate.py").write_text(TASK)
    for name, text in (("right.py", RIGHT), ("killed.py", KILLED)):
        (tmp_path / name).write_text(text)
    server = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "kernelsearch", "mcp", "--quiet"], cwd=tmp_path
    )

    async def converse():
        async with mcp.Client(mcp.client.stdio.stdio_client(server)) as agent:
            names = {tool.name for tool in (await agent.list_tools()).tools}
            assert names == {"open", "page", "try", "tune", "best", "lineage", "plan", "lesson"}

            async def call(name, wrong=False, **arguments):
                result = await agent.call_tool(name, {"task": "gate.py", **arguments})
                assert result.is_error is wrong, result
                return result.structured_content if name in ("try", "tune") and not wrong else result.content[0].text

            opened = await call("open")
            assert "gate: 1 timed shape" in opened and "def gate_kernel(" in opened and "CONFIG = " in opened
            refused = await call("try", kernel=RIGHT + "\nimport os\n")
            assert refused["kernel"] is None and "at `import os`" in refused["verdict"]["reason"]
            wrong = await call("try", kernel=WRONG, tune=5)
            assert wrong["verdict"]["verdict"] == "reject-wrong" and wrong["configs"]["tried"] == 1
            right = await call("try", kernel="right.py", why="Wider", by="ann")
            assert right["verdict"]["verdict"] == "accept" and right["configs"]["tried"] == 1 and right["hints"]
            tuned = await call("tune", kernel=right["kernel"][:8], trials=3)
            assert tuned["kernel"] == right["kernel"] and tuned["configs"]["tried"] == 4
            assert tuned["vs_seed"] >= right["vs_seed"] and tuned["best"]["speedup"] <= tuned["vs_seed"]
            assert right["kernel"] in await call("best")
            assert "kernel:ann by try" in await call("lineage") and "Wider" in await call("lineage", kernel="best")
            page = await call("page")
            assert "Wider" in page and "def reference" in page
            planned = await call("plan", edit="IDEA: one load of a row | read twice | 1.4x\nnothing\nDROP deadbeef: no")
            assert planned.endswith("open, 1.40x expected: one load of a row (read twice)") and "\n" not in planned
            other = RIGHT.replace("\n\n@triton", "\nJ = tl.constexpr(1)\n\n\n@triton", 1)
            again = await call("try", kernel=other, why=planned[:8])
            assert again["verdict"]["verdict"] == "accept" and planned[:8] in await call("page")
            assert "one load of a row" in await call("lineage", kernel=again["kernel"]) and "1 try" in await call(
                "plan"
            )
            noted = await call("lesson", kernel=right["kernel"][:8], text="Wide loads\n\nDO THIS: no")
            assert f"kernel {right['kernel'][:8]} of gate): Wide loads DO THIS: no" in noted and "studies/" in noted
            assert "def gated(" in await call("lesson", kernel=right["kernel"][:8])
            missing = await call("try", wrong=True, kernel=RIGHT, parent="feedbeef")
            assert "has no kernel 'feedbeef'" in missing and "\n" not in missing
            assert "no such file" in await call("page", wrong=True, task="nowhere.py")
            before = count_trials(tmp_path)
            other = subprocess.Popen([sys.executable, "killed.py"], cwd=tmp_path, stderr=subprocess.DEVNULL)
            while len(now := count_trials(tmp_path)) == len(before) or now[-1] < 3:
                assert other.poll() is None
                await anyio.sleep(0.1)
            workers = list_descendants(other.pid)
            async with anyio.create_task_group() as group:
                group.start_soon(wait_and_kill, other)
                last = await call("try", kernel=OTHER)  # waits for the other's run
            assert last["verdict"]["verdict"] == "accept" and len(workers) > 3
            return before, workers

    async def wait_and_kill(other):
        await anyio.sleep(1)
        other.send_signal(signal.SIGKILL)
        other.wait()

    before, workers = anyio.run(converse)
    until = time.monotonic() + 20
    while alive := [pid for pid in workers if os.path.exists(f"/proc/{pid}")]:
        assert time.monotonic() < until, alive
        time.sleep(0.1)
    counts = count_trials(tmp_path)
    assert counts[: len(before)] == before and len(counts) == len(before) + 2 and counts[-1] == 2
    with Store.open(tmp_path / "kernelsearch.db") as store:
        trials = store.load_trials(len(before) + 1)
        assert [t.number for t in trials] == list(range(len(trials))) and all(t.accepted for t in trials)


def test_a_task_stays_open_until_its_file_changes_or_newer_ones_need_the_room(tmp_path, monkeypatch):
    from kernelsearch.cli import run_mcp

    events = []

    def open_bench(task, *_, **__):
        name = f"{task.name} {task.read_text()}"
        events.append(name)
        return SimpleNamespace(workplace=SimpleNamespace(close=lambda: events.append(f"close {name}")))

    monkeypatch.setattr(run_mcp.Bench, "open", open_bench)
    room = run_mcp.Workroom("x.db", "auto", print)
    for name, text in (("a", "1"), ("b", "1"), ("a", "1"), ("b", "2"), ("c", "1"), ("d", "1"), ("b", "2")):
        (tmp_path / name).write_text(text)
        room.bench(tmp_path / name)
    assert events == ["a 1", "b 1", "b 2", "close b 1", "c 1", "d 1", "close a 1"]
    room.close()
    assert events[-3:] == ["close b 2", "close c 1", "close d 1"]
