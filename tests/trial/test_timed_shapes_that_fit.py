"""A config whose blocks are too large for its threads at one timed shape is of use at the others: it runs at these."""

import pytest

from kernelsearch.core.types import Evidence, Measurement, Outcome, Proposal, ProposalKind, ShapeTime, Trial, Word
from kernelsearch.kernel.space import TaskPredicate
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.first_asks import order_configs
from kernelsearch.tune import make_seed_tuners
from simulated_gpu import ACCEPT, simulate_gpu

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def sums_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n_cols + at, mask=at < n_cols, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x, 0))

def sums(x):
    y = torch.empty(x.shape[0], device=x.device)
    sums_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y

def reference(x): return x.sum(-1)
def get_inputs(rows=64, cols=256): return [torch.randn(rows, cols)]
SHAPES = [dict(rows=512, cols=256), dict(rows=64, cols=16384), dict(rows=64, cols=4096)]
TEST_SHAPES = [dict(rows=3, cols=100)]
SPACE = {"num_warps": [1, 8]}
"""
NARROW = {"num_warps": 1}


@pytest.fixture
def bench(tmp_path, borrowing):
    (tmp_path / "sums.py").write_text(TASK)
    with Bench.open(tmp_path / "sums.py", "h100", compile_workers=1) as bench:
        yield bench


def test_it_is_estimated_where_it_fits_and_last_elsewhere(bench):
    evaluation, config = Evaluation(bench), {**bench.facts.config, **NARROW}
    assert [t.shape for t in evaluation.evaluate(bench.seed, config).measurement.times] == ["timed:0", "timed:2"]
    wide = {**bench.facts.config, "num_warps": 8}
    (first, wide_us), (last, us) = order_configs(evaluation, bench.seed, [config, wide])
    assert first == wide and last == config and us[1] >= 2 * wide_us[1]


def test_on_a_gpu_nothing_of_it_is_compiled_or_run_elsewhere(bench):
    simulate_gpu(bench)
    evaluation, built = Evaluation(bench), []
    bench.build_binaries, build = (
        lambda kernel, specs: (built.extend(specs), build(kernel, specs))[1],
        bench.build_binaries,
    )
    fast = Measurement(Evidence.MEASURED, "gpu", "p", tuple(ShapeTime(s.key, 1.0) for s in bench.facts.shapes))
    evaluated = evaluation.evaluate(bench.seed, {**bench.facts.config, **NARROW}, fast)  # no size is drawn for it
    assert evaluated.verdict.accepted and [*evaluated.measurement.by_shape] == ["timed:0", "timed:2"]
    blocks = {dict(spec.constexprs)["BLOCK"] for spec, _ in built if dict(spec.options)["num_warps"] == 1}
    assert 4096 in blocks and 16384 not in blocks
    assert len(evaluation.evaluate(bench.seed, bench.facts.config).measurement.times) == 3


def test_a_tuner_takes_it_for_slow_where_it_does_not_fit(bench):
    tuners = make_seed_tuners(bench.facts, bench.seed, 0, TaskPredicate(bench.facts))

    def tell(number, config, **times):
        measured = Measurement(
            Evidence.MEASURED, "gpu", "p", tuple(ShapeTime(f"timed:{n[1]}", us) for n, us in times.items())
        )
        proposal = Proposal(ProposalKind.RETUNE, (bench.seed.digest,))
        tuners.tell(Trial(number, proposal, bench.seed.digest, config, Outcome(ACCEPT, measured), 1.0))

    tell(0, {"num_warps": 8}, t0=10.0, t1=10.0, t2=10.0)
    tell(1, NARROW, t0=5.0, t2=5.0)
    at_shapes = tuners._tuners[bench.seed.digest].at_shapes
    assert [(us, c["num_warps"]) for us, c in at_shapes] == [(0.5, 1), (1.0, 8), (0.5, 1)]


STAGED = """
import torch, triton, triton.language as tl

@triton.jit
def product_kernel(x_ptr, y_ptr, K, BLOCK: tl.constexpr):
    rows, ks = tl.arange(0, 64), tl.arange(0, BLOCK)
    total = tl.zeros([64, 64], tl.float32)
    for k in range(0, K, BLOCK):
        x = tl.load(x_ptr + rows[:, None] * K + k + ks[None, :], mask=k + ks[None, :] < K, other=0.0)
        total += tl.dot(x, x.T)
    tl.store(y_ptr + rows[:, None] * 64 + rows[None, :], total)

def product(x):
    y = torch.empty(64, 64, device=x.device)
    product_kernel[(1,)](x, y, x.shape[1], BLOCK=64)
    return y

def reference(x): return x.float() @ x.float().T
def get_inputs(k=256): return [torch.randn(64, k, dtype=torch.float16)]
SHAPES = [dict(k=1024), dict(k=8192)]
TEST_SHAPES = [dict(k=100)]
SPACE = {"BLOCK": [64, 128, "128 if K < 4096 else 512"], "num_stages": [1, 2, 3, 4]}
"""


def test_of_a_pipeline_too_large_for_shared_memory_the_other_shapes_are_left(tmp_path, borrowing):
    (tmp_path / "product.py").write_text(STAGED)
    with Bench.open(tmp_path / "product.py", "h100", compile_workers=1) as bench:
        config = {**bench.facts.config, "BLOCK": "128 if K < 4096 else 512", "num_stages": 4}
        evaluated = Evaluation(bench).evaluate(bench.seed, config)
        assert evaluated.verdict.accepted and [*evaluated.measurement.by_shape] == ["timed:0"]
        refused = Evaluation(bench, ("timed:1",)).evaluate(bench.seed, config)
        assert refused.verdict.word is Word.COMPILE
