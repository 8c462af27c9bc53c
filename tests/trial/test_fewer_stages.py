"""A config whose pipeline fits the timed types only is judged with fewer stages at test shapes of wider ones."""

from dataclasses import replace

import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks import shipped
from kernelsearch.trial import Rejection
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.fewer_stages import lower_stages

FULL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4}
"""Tiles of 16 KiB a stage in bfloat16, 32 in float32, of the 99 that an L4 has."""


@pytest.fixture(scope="module")
def bench():
    with Bench.open(shipped.path("matmul"), "l4") as opened:
        yield opened


def compile_with(bench, kernel, **stages):
    """The bytes of shared memory at the first timed shape, and at the test shape of float32."""
    candidate = BoundCandidate(bench, kernel, {**bench.facts.config, **FULL, **stages})
    timed, wide = bench.facts.shapes[0].key, bench.facts.test_shapes[2].key
    built = candidate.compile((timed, wide))
    return [built[key].shared for key in built]


@pytest.mark.slow
def test_stages_go_where_they_do_not_fit(bench):
    loops = bench.seed.code.replace("range(0, K, BLOCK_K)", "tl.range(0, K, BLOCK_K, num_stages=AHEAD)")
    loops = Kernel.parse(loops.replace("BLOCK_K: tl.constexpr", "BLOCK_K: tl.constexpr, AHEAD: tl.constexpr"))
    for kernel, name in ((bench.seed, "num_stages"), (loops, "AHEAD")):
        narrow, wide = compile_with(bench, kernel, **{name: 5})
        assert narrow < 99 * 1024 and narrow / wide < 1.5  # else twice
        alone, _ = compile_with(bench, kernel, **{name: 2})
        assert alone < narrow


def test_a_timed_shape_keeps_its_stages(bench):
    with pytest.raises(Rejection, match="bytes of shared memory"):
        compile_with(bench, bench.seed, num_stages=9)


def test_one_stage_everywhere_cannot_be_lowered(bench):
    spec = BoundCandidate.of_seed(bench).specialisations(bench.facts.shapes[0].key)[0][0]
    alone = replace(spec, options=(("num_stages", 1),))
    assert lower_stages(bench.seed, alone) is None
    assert dict(lower_stages(bench.seed, replace(spec, options=())).options) == {"num_stages": 2}
