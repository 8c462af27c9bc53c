"""Ray: finds the cluster and its nodes, starts an actor for each GPU, and tells a lost actor from an answer.

Placing, restarting and watching is Ray's. Where no node has a GPU, an actor has a few processors and works on
estimates.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from kernelsearch.cluster import node_probe
from kernelsearch.cluster.crew import Station, StationLost
from kernelsearch.cluster.holder import BenchHolder
from kernelsearch.cluster.task_files import stage_task
from kernelsearch.core import extras
from kernelsearch.core.errors import ClusterError, KernelsearchError, WorkerError

LOCAL = "local"
PROCESSORS = 4
"""Processors of an actor where there is no GPU: what compiles, evaluates and judges one candidate at a time."""

USED_UP = 0.9
"""Share of the processors without a GPU that actors must have."""

LEAST_ROOM = 8
"""Candidates that an actor with a GPU has at a time at least: most of them wait for a compiler."""

STORE_BYTES = 80 << 20
"""Memory for Ray's objects on this machine: candidates and outcomes are small."""

PROBE_S = 120.0
PLACE_S = 180.0
LISTEN_S = 5.0
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client of Ray's head begins: with an empty frame of settings, which is answered by another (its type is 4)."""

HEAD_S = 30.0
"""How long nobody may answer for the head before the run stops: after 60 s Ray ends the process itself."""


def import_ray() -> Any:
    """The package, told not to write its own news to stdout. Raises ClusterError."""
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    try:
        return import_module("ray")
    except ModuleNotFoundError:
        command = extras.install_command("ray")
        raise ClusterError(f"ray is not installed, which --gpus and --ray need: {command}") from None


@dataclass(frozen=True)
class Node:
    """A node of the cluster: Ray's number for it, its address, its processors and GPUs."""

    number: str
    address: str
    processors: int
    gpus: int


@dataclass
class Cluster:
    """A connection to Ray. As a context manager it ends what it started.

    files are the task files by their paths, as actors find them: they travel in Ray's runtime environment.
    """

    ray: Any
    nodes: list[Node]
    local: bool
    files: dict[str, str] = field(default_factory=dict)
    _staged: tempfile.TemporaryDirectory | None = None
    _closed: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def connect(cls, address: str, tasks: Sequence[str] = ()) -> Cluster:
        """Connects to the cluster at an address, or starts one here (`local`). Raises ClusterError or TaskError."""
        ray = import_ray()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local = address == LOCAL
        if not local:
            require_listener(address)
        staged = None if local else tempfile.TemporaryDirectory(prefix="kernelsearch-tasks-")
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        try:
            if staged is None:  # on this machine files are read where they are
                files = {task: os.path.abspath(task) for task in tasks}
                ray.init(address=LOCAL, object_store_memory=STORE_BYTES, include_dashboard=False, **quiet)
            else:
                files = {task: stage_task(task, Path(staged.name)) for task in tasks}
                ray.init(address=address, runtime_env={"working_dir": staged.name}, **quiet)
        except BaseException as error:
            if staged is not None:
                staged.cleanup()
            if not isinstance(error, (ConnectionError, ValueError, RuntimeError, AssertionError)):
                raise
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ClusterError(explain_absence(address, reason)) from None
        nodes = [
            Node(n["NodeID"], n["NodeManagerHostname"], int(r.get("CPU", 0)), int(r.get("GPU", 0)))
            for n in ray.nodes()
            if n["Alive"] and (r := n["Resources"])
        ]
        return cls(ray, nodes, local, files, _staged=staged)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed.set()
        self.ray.shutdown()
        if self._staged is not None:
            self._staged.cleanup()

    def watch_head(self, lost: Callable[[str], None]) -> None:
        """Calls lost, once, with the reason when the cluster's head has been silent for HEAD_S."""
        address = self.ray.get_runtime_context().gcs_address

        def watch() -> None:
            heard = time.monotonic()
            while not self._closed.wait(HEAD_S / 10):
                try:
                    require_listener(address)
                    heard = time.monotonic()
                except ClusterError:
                    if time.monotonic() - heard > HEAD_S:
                        lost(f"the head of the cluster at {address} does not answer")
                        return

        threading.Thread(target=watch, daemon=True, name="watch the head").start()

    def ask_nodes(self, ask: Callable[[], Any]) -> list[tuple[Node, Any]]:
        """What a function returns on each node, None where it does not answer in time."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote, asked = self.ray.remote(ask), {}
        for node in self.nodes:
            place = NodeAffinitySchedulingStrategy(node.number, soft=False)
            gpu = 0.01 if node.gpus else 0  # else Ray hides the node's GPUs
            asked[remote.options(num_cpus=0, num_gpus=gpu, scheduling_strategy=place, max_retries=0).remote()] = node
        done, _ = self.ray.wait(list(asked), num_returns=len(asked), timeout=PROBE_S) if asked else ([], [])
        return [(node, self._answer(ref) if ref in done else None) for ref, node in asked.items()]

    def _answer(self, ref: Any) -> Any:
        try:
            return self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            return {"error": str(error).strip().splitlines()[-1]}

    def find_versions(self) -> list[tuple[Node, dict[str, str]]]:
        """The versions on each node of what must be the same everywhere."""
        self.ray.cloudpickle.register_pickle_by_value(node_probe)
        try:
            return [(node, found or {}) for node, found in self.ask_nodes(node_probe.probe)]
        finally:
            self.ray.cloudpickle.unregister_pickle_by_value(node_probe)

    def require_equal_versions(self) -> None:
        """Raises ClusterError with the list when a node has other versions than this machine."""
        if self.local:
            return
        if differences := find_differences(node_probe.probe(), self.find_versions()):
            raise ClusterError(f"the nodes must have the same versions as this machine: {'; '.join(differences)}")

    def start_actors(
        self, name: str, gpus: int | None = None, workers: int | None = None, holder: type = BenchHolder
    ) -> list[RayStation]:
        """An actor for each GPU, or for each few processors where no node has one. Raises ClusterError.

        gpus limits how many GPUs are used; workers is the number of actors without a GPU; holder is what runs in them.
        """
        found = sum(n.gpus for n in self.nodes)
        if gpus is not None and found < max(1, gpus):
            have = (
                f"only {found} here" if found else "none here: leave --gpus out, or work on estimates with --ray local"
            )
            raise ClusterError(
                f"--gpus {gpus or 'all'} needs {gpus or 'a'} GPU{'s' * (gpus > 1)}, and there are {have}"
            )
        if found:
            count = gpus or found
            share = min(n.processors // n.gpus for n in self.nodes if n.gpus)
            needs, room = {"num_gpus": 1, "num_cpus": 0}, max(LEAST_ROOM, share)
        else:
            share = choose_share([n.processors for n in self.nodes])
            count = workers or sum(n.processors // share for n in self.nodes)
            needs, room = {"num_gpus": 0, "num_cpus": 0 if workers else share}, share + 1
            if not count:
                raise ClusterError("no node of the cluster has a GPU or a processor for Ray: start one with --num-cpus")
        actor = self.ray.remote(holder)
        kind = "gpu" if found else "worker"
        options = {**needs, "max_restarts": -1, "max_concurrency": room + 2}
        handles = [actor.options(name=f"{name} {kind} {n}", **options).remote() for n in range(count)]
        self._await(handles, needs)
        return [RayStation(self.ray, h, f"{kind} {n}", room, max(2, share - 1)) for n, h in enumerate(handles)]

    def _await(self, actors: Sequence[Any], needs: Mapping[str, int]) -> None:
        """Waits until Ray has placed all actors. Raises ClusterError when it finds no room."""
        up = [actor.read_card.remote() for actor in actors]
        _, waiting = self.ray.wait(up, num_returns=len(up), timeout=PLACE_S)
        if waiting:
            each = f"{needs['num_gpus']} GPU and {needs['num_cpus']} processors"
            raise ClusterError(
                f"Ray has had no room for {len(waiting)} of {len(up)} workers ({each} each) for {PLACE_S:g} s: end "
                "other jobs of the cluster (`ray status` shows them), or give a smaller --gpus"
            )


def choose_share(processors: Sequence[int]) -> int:
    """Processors of an actor where there is no GPU: the most with which nodes of these sizes are nearly used up."""
    used = {share: sum(n // share * share for n in processors) for share in range(PROCESSORS, 0, -1)}
    return next(share for share, count in used.items() if count >= USED_UP * used[1])


def require_listener(address: str) -> None:
    """Raises ClusterError when nobody who speaks HTTP/2 listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host and address == "auto":
        return
    try:
        with socket.create_connection((host, int(port)), LISTEN_S) as listener:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                listener.sendall(GREETING)
                if listener.recv(9, socket.MSG_WAITALL)[3:4] != GREETING[-6:-5]:
                    raise OSError("what listens there is no head of Ray")
    except ValueError:
        raise ClusterError(f"--ray is `local`, `auto` or HOST:PORT, not {address!r}") from None
    except OSError as error:
        raise ClusterError(explain_absence(address, error.strerror or str(error))) from None


def explain_absence(address: str, reason: str) -> str:
    advice = "start one with `ray start --head`, or give --ray local"
    return f"there is no Ray cluster at {address} ({reason}): {advice}"


def find_differences(here: dict[str, str], nodes: Sequence[tuple[Node, dict[str, str]]]) -> list[str]:
    """What other nodes have of each package, in words, where it is not what this machine has."""
    return [
        f"{node.address} does not answer" if not found
        else f"{node.address} has {name} {found.get(name) or found.get('error') or 'not at all'}, here it is {version}"
        for node, found in nodes
        for name, version in (here.items() if found else [("", "")])
        if not found or found.get(name) != version
    ]  # fmt: skip


class RayStation(Station):
    """An actor."""

    def __init__(self, ray: Any, actor: Any, name: str, room: int, compilers: int) -> None:
        self.ray, self.actor, self.name, self.room, self.compilers = ray, actor, name, room, compilers
        self.node = ""

    def ask(self, method: str, *args: Any) -> Any:
        return self._get(getattr(self.actor, method).remote(*args))

    def _get(self, ref: Any) -> Any:
        errors = self.ray.exceptions
        try:
            return self.ray.get(ref)
        except errors.RayTaskError as error:
            if isinstance(error.cause, KernelsearchError):
                raise error.cause from None
            raise WorkerError(f"{self.name} failed: {str(error).strip().splitlines()[-1]}") from None
        except errors.RayError as error:
            text = str(error).strip()
            why = f": {text.splitlines()[-1]}" if "in its creation task" in text else ""
            name = type(error).__name__.removesuffix("Error")
            raise StationLost(f"{name} on {self.node or 'its node'}{why}") from None

    def restart(self, kill: bool, welcome: Callable[[Station], None]) -> Future:
        """Done when Ray has the actor up again, wherever there is room for it, and it is welcome."""
        back: Future = Future()

        def wait() -> None:
            try:
                if kill:
                    self.ray.kill(self.actor, no_restart=False)
                self._get(self.actor.read_card.options(max_task_retries=-1).remote())
                welcome(self)
            except (StationLost, KernelsearchError) as error:
                back.set_exception(error)
            else:
                back.set_result(None)

        threading.Thread(target=wait, daemon=True, name=f"await {self.name}").start()
        return back

    def end(self) -> None:
        self.ray.kill(self.actor)
