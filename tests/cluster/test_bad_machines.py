"""What is wrong with the machines is one line that says what to do, before any work."""

import socket
import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
from test_crew import Fake

from kernelsearch.cli.run_doctor import collect_from_nodes
from kernelsearch.cluster import ray_actors
from kernelsearch.cluster.crew import Crew
from kernelsearch.cluster.machines import MachineOptions, open_machines
from kernelsearch.cluster.node_probe import probe
from kernelsearch.cluster.ray_actors import LEAST_ROOM, Cluster, Node, choose_share, find_differences
from kernelsearch.cluster.remote_bench import RemoteBench
from kernelsearch.cluster.task_files import list_files, stage_task
from kernelsearch.core.errors import ClusterError, TaskError, WorkerError
from kernelsearch.tasks.load import load


def refused(**options):
    with pytest.raises(ClusterError) as error, open_machines(MachineOptions(**options), ["t.py"], print):
        pass
    assert "\n" not in str(error.value)
    return str(error.value)


def test_options_that_cannot_be(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert f"no Ray cluster at 127.0.0.1:{port} (Connection refused): start one" in refused(ray=f"127.0.0.1:{port}")
    assert "--ray is `local`, `auto` or HOST:PORT, not 'here'" in refused(ray="here")
    assert "--gpus or --ray" in refused(device="H200")
    for wrong in ("0", "-1", "two"):
        assert f"--gpus is `all` or a number above 0, not '{wrong}'" in refused(gpus=wrong)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "ray is not installed, which --gpus and --ray need:" in refused(ray="local")
    assert "[ray]'" in refused(gpus="all")


def greet(head, words=bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])):
    """Answers whoever connects, as Ray's head does."""
    held = []
    with suppress(OSError):
        while True:
            held.append(head.accept()[0])
            held[-1].sendall(words)


def test_a_port_of_something_else_is_no_cluster():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=greet, args=(server, b"HTTP/1.1 400 Bad Request\r\n\r\n"), daemon=True).start()
        assert f"no Ray cluster at {address} (what listens there is no head of Ray): start" in refused(ray=address)


def test_a_head_that_is_silent_for_long_is_said_once(monkeypatch):
    said, context = [], SimpleNamespace(gcs_address="")
    ray = SimpleNamespace(get_runtime_context=lambda: context, shutdown=lambda: None)
    monkeypatch.setattr(ray_actors, "HEAD_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as head, Cluster(ray, [], False) as cluster:
        context.gcs_address = f"127.0.0.1:{head.getsockname()[1]}"
        threading.Thread(target=greet, args=(head,), daemon=True).start()
        cluster.watch_head(said.append)
        time.sleep(0.3)
        assert not said
        head.shutdown(socket.SHUT_RDWR)
        head.close()
        until = time.monotonic() + 10
        while not said and time.monotonic() < until:
            time.sleep(0.01)
        assert said == [f"the head of the cluster at {context.gcs_address} does not answer"]
    crew = Crew([Fake("gpu 0", lambda *args: 1)])
    crew.stop(said[0])
    with pytest.raises(WorkerError, match="the head of the cluster at .* does not answer"):
        crew.ask("key", "work", lambda station: ())


def test_too_few_gpus():
    for gpus, nodes, said in (
        (0, 0, "--gpus all needs a GPU, and there are none here: leave --gpus out"),
        (2, 0, "--gpus 2 needs 2 GPUs, and there are none here"),
        (4, 3, "--gpus 4 needs 4 GPUs, and there are only 3 here"),
    ):
        with pytest.raises(ClusterError, match=said):
            Cluster(None, [Node("1", "a", 8, nodes)], True).start_actors("t", gpus)
    with pytest.raises(ClusterError, match="no node of the cluster has a GPU or a processor"):
        Cluster(None, [Node("1", "a", 0, 0)], False).start_actors("t")


def test_nodes_of_different_sizes_are_used_up():
    for sizes, share in (([8, 8], 4), ([1, 64], 4), ([2, 2, 4], 2), ([1, 1], 1), ([3], 3), ([0, 4], 4)):
        assert choose_share(sizes) == share, sizes


class PlacedByRay:
    """Ray that starts actors on paper, and has no room for so many of them."""

    def __init__(self, late=0):
        self.late, self.asked = late, []

    def remote(self, what):
        actor = SimpleNamespace(remote=lambda *args: actor, read_card=SimpleNamespace(remote=lambda: 1))
        actor.options = lambda **options: self.asked.append(options) or actor
        return actor

    def wait(self, refs, num_returns, timeout):
        return refs[self.late :], refs[: self.late]


def test_each_card_has_an_actor():
    mixed = [Node("1", "a", 8, 2), Node("2", "b", 12, 1), Node("3", "c", 20, 0)]
    cluster = Cluster(PlacedByRay(), mixed, False)
    stations = cluster.start_actors("t")
    assert [o["num_gpus"] for o in cluster.ray.asked] == [1] * len(stations) == [1] * 3
    assert {s.room for s in stations} == {LEAST_ROOM} and {s.compilers for s in stations} == {3}
    with pytest.raises(ClusterError, match=r"no room for 1 of 3 workers \(1 GPU and 0 processors each\) for"):
        Cluster(PlacedByRay(1), mixed, False).start_actors("t")


def test_nodes_with_other_versions_are_listed():
    here, node = probe(), Node("1", "b", 8, 0)
    assert find_differences(here, [(node, dict(here))]) == []
    other = {**here, "triton": "", "torch": "2.0"}
    assert find_differences(here, [(node, other), (Node("2", "c", 8, 0), {})]) == [
        f"b has torch 2.0, here it is {here['torch']}", f"b has triton not at all, here it is {here['triton']}",
        "c does not answer",
    ]  # fmt: skip
    assert "b has python no such file" in find_differences(here, [(node, {"error": "no such file"})])[0]


def test_a_module_that_only_the_driver_has(tmp_path):
    def refuse(*args):
        raise TaskError("t.py cannot be imported: ModuleNotFoundError: No module named 'mine' (line 3)")

    path = str(tmp_path / "t.py")
    cluster, station = Cluster(None, [], False, {path: "t/t.py"}), Fake("gpu 0", refuse)
    station.compilers = 2
    (tmp_path / "t.py").write_text("import mine\n")
    with pytest.raises(TaskError, match=r"named 'mine' \(line 3\); a worker does not have .*: put it beside the task"):
        RemoteBench.open(path, "h100", cluster, Crew([station]))


def test_workers_that_are_all_lost_before_they_open_the_task(tmp_path):
    path = str(tmp_path / "t.py")
    (tmp_path / "t.py").write_text("")
    stations = [Fake(f"gpu {n}", None) for n in range(3)]
    for station in stations:
        station.dead, station.compilers = True, 2
    with pytest.raises(
        WorkerError, match=r"no worker is left \(gpu 0 and 2 more: gone\): what is done is stored; give"
    ):
        RemoteBench.open(path, "h100", Cluster(None, [], False, {path: "t/t.py"}), Crew(stations))


def test_a_task_travels_with_what_it_imports_of_its_folder(tmp_path):
    files = {
        "task.py": "import torch\nimport own.deep.part\nfrom widths import W\n",
        "task_reference.py": "from more import x\n",
        "widths.py": "import task\nW = 1\n", "more.py": "", "own/__init__.py": "", "own/deep/__init__.py": "",
        "own/deep/part.py": "from own import sibling\n", "own/sibling.py": "", "own/idle.py": "", "data.bin": "x" * 99,
        "not_python.py": "def (",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)
    found = {str(f.relative_to(tmp_path / "mine")) for f in list_files(tmp_path / "mine" / "task.py")}
    assert found == set(files) - {"own/idle.py", "data.bin", "not_python.py"}
    there = stage_task(str(tmp_path / "mine" / "task.py"), tmp_path / "staged")
    assert (tmp_path / "staged" / there).read_text() == files["task.py"]
    assert (tmp_path / "staged" / there).with_name("own").joinpath("deep", "part.py").exists()
    assert list_files(tmp_path / "mine" / "not_python.py") == [tmp_path / "mine" / "not_python.py"]
    assert MachineOptions(gpus="all").address == ray_actors.LOCAL


def test_doctor_asks_every_node_and_one_that_fails_is_named(monkeypatch):
    nodes = [Node(f"{n:08}", f"10.0.0.{n}", 8, 1) for n in range(3)]
    rows = [{"works": "yes", "name": "sandbox", "means": "on"}]
    answers = [rows, {"error": "it broke"}, None]

    class Nodes:
        def __enter__(self):
            return self

        def __exit__(self, *failure):
            pass

        def find_versions(self):
            return [(node, probe()) for node in nodes]

        ask_nodes = create_autospec(Cluster.ask_nodes, return_value=[*zip(nodes, answers, strict=True)])

    monkeypatch.setattr(Cluster, "connect", lambda address: Nodes())
    found = {row["name"]: row["works"] for row in collect_from_nodes("local")}
    assert found["10.0.0.0: sandbox"] == "yes"
    assert found["10.0.0.1: workers"] == found["10.0.0.2: workers"] == "no"


def test_a_file_that_is_no_python_is_one_sentence(tmp_path):
    (tmp_path / "task.txt").write_text("x = 1\n")
    with pytest.raises(TaskError, match=r"task.txt is no task file: the name of one ends in .py"):
        load(tmp_path / "task.txt")
