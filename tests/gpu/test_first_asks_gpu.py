"""On a GPU: a search's first configs are those that the static model puts first, and many shapes are raced.

`scripts/gpu-test tests/gpu/test_first_asks_gpu.py -s` also prints how long the first asks compile beside the seed.
"""

import time

import pytest
import torch

import simulated
from kernelsearch.core import timed_shapes
from kernelsearch.core.types import config_key
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import FirstAsks, Search, Settings, make_start, strategies
from kernelsearch.tasks import shipped
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.first_asks import order_configs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MANY = """
import torch, triton, triton.language as tl

def reference(x): return x * 2
def get_inputs(n=4096): return [torch.randn(n)]
SHAPES = [dict(n=1 << i) for i in range(18, 24)]
TEST_SHAPES = [dict(n=100)]
SPACE = {"BLOCK": [16, 1024], "num_warps": [4]}

@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


def test_the_first_configs_are_the_static_models():
    asked, seconds = [], []
    with Bench.open(shipped.path("matmul")) as bench, Store.open_in_memory() as store:
        facts, evaluation = bench.facts, Evaluation(bench)

        def timed(kernel, configs):
            begun = time.monotonic()
            asked.extend(order_configs(evaluation, kernel, configs))
            seconds.append(time.monotonic() - begun)
            return asked

        first = FirstAsks.of(timed, 8)
        told = RunFacts("bayes", "edits", 0, 8, 8, settings=first.as_facts())
        settings = Settings(told, first=first)
        strategy = strategies.make("bayes", make_start(facts, 0, 8))
        proposer = simulated.SimulatedProposer(simulated.Landscape())  # never asked
        trials = tuple(Search(facts, strategy, proposer, evaluation, store, settings).run().trials)
    print(
        f"{first.drawn} configs compiled and ordered in {seconds[0]:.1f} s; "
        f"the seed's trial took {trials[0].outcome.seconds:.1f} s"
    )
    assert len(asked) > 8
    assert [config_key(t.config) for t in trials[1:]] == [config_key(c) for c, _ in asked[: len(trials) - 1]]


def test_a_slow_candidate_is_timed_at_few_shapes(tmp_path):
    (tmp_path / "scale.py").write_text(MANY)
    with Bench.open(tmp_path / "scale.py") as bench:
        evaluation = Evaluation(bench)
        good = evaluation.evaluate(bench.seed, {"BLOCK": 1024, "num_warps": 4})
        assert good.verdict.accepted, good.verdict
        bad = evaluation.evaluate(bench.seed, {"BLOCK": 16, "num_warps": 4}, good.measurement)
    assert timed_shapes.APART <= len(bad.measurement.times) < len(good.measurement.times)
    its, mine = good.measurement.by_shape, bad.measurement.by_shape
    assert timed_shapes.is_settled(timed_shapes.place_shapes(bench.facts.shapes), mine, its)
