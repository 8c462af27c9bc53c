"""A search in the actors of a real Ray cluster has the trials of a search without it, also when an actor is killed.

The actor's card is made up: what it times are the estimates.
"""

import os
import signal
import sys
from dataclasses import replace

import pytest

from kernelsearch.cluster.crew import Crew
from kernelsearch.cluster.holder import BenchHolder
from kernelsearch.cluster.machines import MachineOptions, Machines
from kernelsearch.cluster.ray_actors import STORE_BYTES, Cluster
from kernelsearch.cluster.remote_bench import make_evaluation
from kernelsearch.measure.timing.device import LiveDevice
from kernelsearch.propose.contract import Proposer
from kernelsearch.propose.proposers import ModelOptions
from kernelsearch.record.store import Store
from kernelsearch.search.planned_run import PlannedRun
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.evaluation import Evaluation
from simulated_search import story

SCALE = """
import torch, triton, triton.language as tl
from widths import WIDTH
def reference(x): return x * 2
def get_inputs(n): return [torch.randn(n)]
SHAPES = [dict(n=WIDTH)]
TEST_SHAPES = [dict(n=1000)]
SPACE = {"BLOCK": [256, 512, 1024], "num_warps": [1, 4]}
@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y
"""


class EstimatedCard(BenchHolder):
    """An actor that has a card as far as the driver knows."""

    def open(self, task):
        return replace(super().open(task), device=LiveDevice("H100 on paper", 90, 132))


@pytest.fixture
def task(tmp_path):
    (tmp_path / "scale.py").write_text(SCALE)
    (tmp_path / "widths.py").write_text("WIDTH = 1 << 16\n")
    return str(tmp_path / "scale.py")


@pytest.fixture(scope="session")
def address():
    """A cluster of a node with a processor, and one with a GPU as far as Ray knows."""
    from ray.cluster_utils import Cluster as Hosts

    node = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    hosts = Hosts(initialize_head=True, head_node_args=node)
    hosts.add_node(num_gpus=1, **node)
    yield hosts.address
    hosts.shutdown()


def search(bench, on_trial=lambda trial, progress: None):
    """What a short search on a bench found."""
    plan = PlannedRun(make_evaluation(bench, bench.facts), bench.facts, "tpe", "tpe", ModelOptions("edits"), 0, 2, 4)
    with Store.open_in_memory() as store:
        done = plan.set_up(Proposer(), plan.evaluation, store, None).run(on_trial)
        return story(done.trials)


@pytest.mark.slow
def test_actors_find_what_this_process_finds_and_a_killed_one_loses_nothing(task, address, borrowing):
    with Bench.open(task, "h100", 2) as bench:
        here, layers = search(bench), bench.missing_layers
        (seed,) = Evaluation.of(bench, bench.facts).estimate(bench.seed, bench.facts.config).times
    said = []
    with Cluster.connect(address, [task]) as cluster:
        cluster.ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # nodes do not have this file
        cluster.require_equal_versions()
        crew = Crew(list(cluster.start_actors("scale", holder=EstimatedCard)), said.append)
        assert [p.station.name for p in crew.posts] == ["gpu 0"]
        machines = Machines(MachineOptions(ray=address), cluster, crew)
        bench = machines.open_bench(task, "h100", said.append)
        assert bench.where == "H100 on paper" and bench.facts.path == task
        assert [c.seed_us for c in bench.cards.by_station.values()] == [{seed.shape: seed.time_us}]
        assert list(bench.layers.values()) == [layers]  # as isolated as here

        def kill(trial, progress):
            if trial.number == 1:
                os.kill(pids.pop(), signal.SIGKILL)

        pids = [cluster.ray.get(crew.posts[0].station.actor.__ray_call__.remote(lambda holder: os.getpid()))]
        assert search(bench, kill) == here and not pids
        crew.close()
    assert [s for s in said if "is lost" in s] and [s for s in said if "is back" in s]
