"""Estimates before anything runs: the order of first asks."""

from types import SimpleNamespace

import pytest

import simulated
from kernelsearch.core.types import Evidence, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.estimate import EXTRAPOLATES, estimate_times
from kernelsearch.trial.first_asks import order_configs
from made_outcomes import measure

SEED = Kernel.parse(simulated.task().seed)


@pytest.fixture
def told():
    """An evaluation whose estimates are a config's `says`, None where it has none."""

    def estimate(kernel, config):
        return measure(config["says"], evidence=Evidence.ESTIMATED) if "says" in config else None

    return SimpleNamespace(estimate=estimate, bench=SimpleNamespace(lanes=2, facts=simulated.task()))


def test_the_order_of_first_asks_is_that_of_the_estimates(told):
    configs = [{"says": 3, "n": 0}, {"n": 1}, {"says": 1, "n": 2}, {"says": 3, "n": 3}]
    ordered = order_configs(told, SEED, configs)
    assert [c["n"] for c, _ in ordered] == [2, 0, 3] and [us for _, us in ordered] == [(1.0,), (3.0,), (3.0,)]


def test_a_real_kernel_is_estimated_without_a_gpu_and_without_the_interpreter(tmp_path):
    path = tmp_path / "scale.py"
    path.write_text(
        "import torch, triton, triton.language as tl\n"
        "def reference(x): return x * 2\n"
        "def get_inputs(n=1 << 24): return [torch.randn(n)]\n"
        "SHAPES = [dict(n=1 << 24)]\nTEST_SHAPES = [dict(n=1000)]\n"
        'SPACE = {"BLOCK": [256, 1024], "num_warps": [1, 4]}\n'
        "@triton.jit\ndef scale_kernel(x, y, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)\n"
        "def scale(x):\n    y = torch.empty_like(x)\n"
        "    scale_kernel[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)](x, y, x.numel(), BLOCK=1024)\n    return y\n"
    )
    with Bench.open(path, "h100") as bench:
        evaluation = Evaluation(bench)
        found = evaluation.estimate(bench.seed, {"BLOCK": 1024, "num_warps": 4})
        assert found.evidence is Evidence.ESTIMATED
        assert found.times[0].time_us >= 2 * 4 * (1 << 24) / 3350e3
        assert len(order_configs(evaluation, bench.seed, [{"BLOCK": b, "num_warps": 4} for b in (256, 1024)])) == 2
        assert evaluation.estimate(bench.seed, {"BLOCK": 1000, "num_warps": 4}) is None  # no power of two


def test_a_loop_whose_length_is_data_puts_no_candidate_first_and_leaves_none_out(tmp_path):
    path = tmp_path / "ragged.py"
    path.write_text(
        "import torch, triton, triton.language as tl\n"
        "def reference(x, n): return torch.where(torch.arange(x.numel(), device=x.device) < n, x * 2, 0.0)\n"
        "def get_inputs(n=1 << 20): return [torch.randn(n), torch.tensor([n // 2], dtype=torch.int32)]\n"
        "TEST_SHAPES = [dict(n=1000)]\n"
        'SPACE = {"BLOCK": [256, 1024], "num_warps": [1, 4]}\n'
        "@triton.jit\ndef scale_kernel(x, n_ptr, y, BLOCK: tl.constexpr):\n"
        "    for start in range(0, tl.load(n_ptr), BLOCK):\n"
        "        i = start + tl.arange(0, BLOCK)\n"
        "        tl.store(y + i, tl.load(x + i, mask=i < tl.load(n_ptr)) * 2, mask=i < tl.load(n_ptr))\n"
        "def scale(x, n):\n    y = torch.zeros_like(x)\n    scale_kernel[(1,)](x, n, y, BLOCK=1024)\n    return y\n"
    )
    with Bench.open(path, "h100") as bench:
        evaluation, config = Evaluation(bench), {"BLOCK": 1024, "num_warps": 4}
        candidate = evaluation.bind(bench.seed, config)
        said = estimate_times(candidate, candidate.compile(evaluation.timed), {}, evaluation.timed).times[0].detail
        assert said[EXTRAPOLATES] == ["a loop's length depends on data"]
        assert evaluation.estimate(bench.seed, config) is None
        assert order_configs(evaluation, bench.seed, [config]) == []


def test_an_estimate_below_the_least_time_is_refused_and_not_shown(tmp_path):
    """As a measured time is: the task says that more bytes must move than this kernel moves."""
    path = tmp_path / "lazy.py"
    path.write_text(
        "import torch, triton, triton.language as tl\n"
        "def reference(x): return x * 2\n"
        "def get_inputs(n=1 << 20): return [torch.randn(n)]\n"
        "def bytes_moved(n): return 1 << 30\n"
        "TEST_SHAPES = [dict(n=1000)]\n"
        "@triton.jit\ndef double_kernel(x, y, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)\n"
        "def double(x):\n    y = torch.empty_like(x)\n    n = x.numel()\n"
        "    double_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)\n    return y\n"
    )
    with Bench.open(path, "h100") as bench:
        evaluation = Evaluation(bench)
        assert evaluation.estimate(bench.seed, bench.facts.config) is None
        outcome = evaluation.evaluate(bench.seed, bench.facts.config, measure(evidence=Evidence.ESTIMATED))
    assert outcome.verdict.word is Word.TIMING and outcome.measurement is None
    assert "is impossible: h100 needs at least" in outcome.verdict.reason
