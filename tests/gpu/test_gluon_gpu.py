"""On a GPU: kernels in Gluon, by hand and by edits, are right; warps that do not wait for each other are seen."""

from pathlib import Path

import pytest
import torch

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import edit_named
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


def require_right(bench, kernel):
    """Fails unless the kernel is accepted at full depth; prints its time at the first shape."""
    config = {**bench.facts.config, **kernel.config}
    verdict = Evaluation(bench).verify(kernel, config)
    assert verdict.accepted and verdict.depth == "full", verdict
    first = bench.facts.shapes[0]
    accepted, samples = Evaluation(bench, (first.key,)).sample_times(kernel, config, {})
    assert accepted.accepted
    print(f"\n{first.label}: {sorted(samples[first.key])[len(samples[first.key]) // 2]:.1f} us")


def test_a_product_with_specialised_warps_is_right(bench):
    require_right(bench, Kernel.parse(TEXT))


@pytest.mark.parametrize(
    ("task", "edit"), [("matmul", "gluon_product"), ("linear_gelu", "gluon_product"), ("attention", "gluon_attention")]
)
def test_what_an_edit_writes_in_gluon_is_right(task, edit):
    with Bench.open(shipped.path(task)) as bench:
        rewrites = edit_named(edit).apply(bench.seed, bench.facts)
        assert isinstance(rewrites, list), rewrites
        for rewrite in rewrites:
            require_right(bench, rewrite.kernel)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_between_its_warps_is_seen(bench, fault):
    old, new = FAULTS[fault]
    assert old in TEXT
    verdict = verify(bench, TEXT.replace(old, new))
    assert not verdict.accepted, verdict
