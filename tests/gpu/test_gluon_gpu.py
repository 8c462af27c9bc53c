"""On a GPU: a product in Gluon is right at full depth, and one whose warps do not wait for each other is refused."""

from pathlib import Path

import pytest
import torch

from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks import shipped
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TEXT = (Path(__file__).parents[1] / "gluon" / "matmul_kernel.py").read_text()
FAULTS = {
    "tiles are read before they are there": ("            mbarrier.wait(full.index(s), phase)\n", ""),
    "tiles are overwritten while they are read": ("            mbarrier.wait(empty.index(s), phase ^ 1)\n", ""),
    "the product is not waited for": ("warpgroup_mma_wait(0,", "warpgroup_mma_wait(1,"),
    "the copy out is not fenced": ("        c.store(gl.convert_layout(y, half))\n        fence_async_shared()\n",
                                   "        c.store(gl.convert_layout(y, half))\n"),
    "half of the rows": ("row = m * BM + HALF * (BM // 2)", "row = m * BM"),
}  # fmt: skip


@pytest.fixture(scope="module")
def bench():
    with Bench.open(shipped.path("matmul")) as bench:
        yield bench


def verify(bench, text):
    kernel = Kernel.parse(text)
    return Evaluation(bench).verify(kernel, {**bench.facts.config, **kernel.config})


def test_a_product_with_specialised_warps_is_right(bench):
    verdict = verify(bench, TEXT)
    assert verdict.accepted and verdict.depth == "full", verdict
    kernel = Kernel.parse(TEXT)
    first = bench.facts.shapes[0]
    accepted, samples = Evaluation(bench, (first.key,)).sample_times(
        kernel, {**bench.facts.config, **kernel.config}, {}
    )
    assert accepted.accepted
    print(f"\n{first.label}: {sorted(samples[first.key])[len(samples[first.key]) // 2]:.1f} us")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_between_its_warps_is_seen(bench, fault):
    old, new = FAULTS[fault]
    assert old in TEXT
    verdict = verify(bench, TEXT.replace(old, new))
    assert not verdict.accepted, verdict
