"""What nodes without a GPU give a card that waits for its compilers: a simulated card, real tasks of Ray.

`python studies/scale/shared_compilers.py`. A node of four processors has the card, another one has eight; builds and
times are sleeps. What it printed is in README.md here.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import ray
from ray.cluster_utils import Cluster as Hosts

from kernelsearch.cluster import compilers
from kernelsearch.cluster.ray_actors import LEAST_ROOM, STORE_BYTES

BUILD_S, CARD_S, CANDIDATES, OWN, MORE = 2.0, 0.1, 120, 3, 8
LIMIT_S = 20.0


def sleep_through_build(job: Any, timeout: float) -> str:
    time.sleep(BUILD_S)
    return "elsewhere"


class SimulatedPool:
    """The compile workers of the card's own node."""

    size, source = OWN, None

    def __init__(self) -> None:
        self.free = threading.Semaphore(OWN)

    def ask(self, job: Any, timeout: float) -> str:
        with self.free:
            time.sleep(BUILD_S)
            return "here"


class CardActor:
    """Builds candidates side by side and has each on the card for a while."""

    def run(self, places: int) -> tuple[float, int]:
        """Candidates a second, and how many were built elsewhere."""
        compilers.compile_here = sleep_through_build
        pool: Any = SimulatedPool()
        pool = compilers.SharedCompilers(pool, places, ()) if places else pool
        card = threading.Lock()

        def try_one(number: int) -> str:
            where = pool.ask(SimpleNamespace(name=f"{number}"), LIMIT_S)
            with card:
                time.sleep(CARD_S)
            return where

        began = time.monotonic()
        with ThreadPoolExecutor(LEAST_ROOM + places) as threads:
            built = list(threads.map(try_one, range(CANDIDATES)))
        return CANDIDATES / (time.monotonic() - began), built.count("elsewhere")


def main() -> None:
    node = {"object_store_memory": STORE_BYTES}
    hosts = Hosts(initialize_head=True, head_node_args={"num_cpus": 0, **node})
    hosts.add_node(num_cpus=OWN + 1, num_gpus=1, **node)
    hosts.add_node(num_cpus=MORE, **node)
    ray.init(address=hosts.address, log_to_driver=False, logging_level="ERROR")
    actor = ray.remote(CardActor).options(num_gpus=1, num_cpus=OWN + 1).remote()
    for places in (0, MORE):
        rate, elsewhere = ray.get(actor.run.remote(places))
        most = min(1 / CARD_S, (OWN + places) / BUILD_S)
        print(f"| {OWN} | {places} | {rate:.1f} of {most:.1f} | {elsewhere} of {CANDIDATES} |", flush=True)
    ray.shutdown()
    hosts.shutdown()


if __name__ == "__main__":
    main()
