"""Kills actors and nodes of a local Ray cluster of three nodes at random while a search runs on them.

`python studies/scale/kills.py 50` says how many kills hit, and what was lost or doubled: nothing may be, and the
trials must be those of the run that nobody disturbed. What it printed is kept in README.md here.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ray
from ray.cluster_utils import Cluster as Hosts
from simulated_workers import Crewed, SimulatedHolder, make_search, story

from kernelsearch.cluster.crew import Crew
from kernelsearch.cluster.ray_actors import STORE_BYTES, Cluster
from kernelsearch.core.types import Outcome
from kernelsearch.record.store import Store
from kernelsearch.trial.evaluator import Evaluator

WINDOW, NODES, WORKERS = 12, 3, 6
NODE = {"num_cpus": 2, "object_store_memory": STORE_BYTES}
MOST_S = 480.0
SHARE_OF_NODES = 0.2
"""Of the kills; the others kill one actor's process."""


def kill_one(hosts: Hosts, crew: Crew, rng: random.Random) -> str:
    """Kills a random node, which a new one replaces, or a random actor's process; empty if none could be."""
    nodes = [n for n in hosts.list_all_nodes() if n is not hosts.head_node]
    if rng.random() < SHARE_OF_NODES and len(nodes) > 1:
        hosts.remove_node(rng.choice(nodes), False)
        return "node"
    post = rng.choice([p for p in crew.posts if not p.away] or [None])
    with suppress(ray.exceptions.RayError, ProcessLookupError):
        if post is not None:
            os.kill(ray.get(post.station.actor.read_card.remote(), timeout=5)["pid"], signal.SIGKILL)
            return "actor"
    return ""


def refill(hosts: Hosts, nodes: int) -> None:
    """Starts nodes in place of lost ones; only the main thread may."""
    while len(hosts.list_all_nodes()) <= nodes:
        hosts.add_node(**NODE)


def run(
    kills: int, seconds: float = 0.5, seed: int = 0, workers: int = WORKERS, nodes: int = NODES
) -> dict[str, object]:
    """Kills until so many hit, then lets the search end; what it found."""
    rng, hit, over, said = random.Random(seed), {"actor": 0, "node": 0}, threading.Event(), []
    hosts = Hosts(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
    for _ in range(nodes):
        hosts.add_node(**NODE)
    with tempfile.TemporaryDirectory() as folder, Cluster.connect(hosts.address) as cluster:
        stations = cluster.start_actors("kills", workers=workers, holder=SimulatedHolder)
        crew = Crew(list(stations), said.append)
        crew.ask_all("read_card")

        until = time.monotonic() + MOST_S

        def kill() -> None:
            try:
                while sum(hit.values()) < kills and time.monotonic() < until:
                    time.sleep(rng.random() * 0.5)
                    if what := kill_one(hosts, crew, rng):
                        hit[what] += 1
                        print(f"{sum(hit.values())}: {what}", flush=True)
            finally:
                over.set()

        killer = threading.Thread(target=kill, daemon=True)
        with Store.open(Path(folder) / "kills.db") as store:
            trials = 100_000
            search = make_search(store, Crewed(crew, seconds), trials, WINDOW)
            killer.start()
            done = search.run(lambda trial, progress: refill(hosts, nodes), stopping=over.is_set).trials
            found, count = story(done), len(done)
            rows = store.query("SELECT count(*) AS n, count(DISTINCT number) AS d, max(number) AS m FROM trial")[0]
        killer.join()
        crew.close()
        with Store.open_in_memory() as store:
            alone = Local(SimulatedHolder(), count)
            whole = story(make_search(store, alone, trials, WINDOW).run(stopping=alone.is_enough).trials)[:count]
    hosts.shutdown()
    lost = [i for i, (one, other) in enumerate(zip(found, whole)) if one != other]
    return {
        **hit,
        "lost in flight": sum("is lost" in s for s in said),
        "came back": sum("is back" in s for s in said),
        "trials": count,
        "rows missing": rows["m"] + 1 - rows["d"],
        "rows twice": rows["n"] - rows["d"],
        "differing from the undisturbed run": len(lost),
    }


class Local(Evaluator):
    """The same evaluations in this process, until there are as many as wanted."""

    def __init__(self, holder: SimulatedHolder, wanted: int) -> None:
        self.holder, self.wanted, self.count = holder, wanted, 0

    def evaluate(self, kernel, config, incumbent=None) -> Outcome:
        self.count += 1
        return self.holder.evaluate(0.0, kernel, config, incumbent)

    def is_enough(self) -> bool:
        return self.count >= self.wanted + WINDOW


if __name__ == "__main__":
    for name, value in run(int(sys.argv[1]) if sys.argv[1:] else 50).items():
        print(f"{name}: {value}")
