"""On a GPU: what `tensor_descriptor` makes of the shipped products is right at full depth, by the copy engine.

With `-s` it prints the times of pointers and descriptors beside each other:
`python -m pytest tests/gpu/test_descriptors_gpu.py -m gpu -s`.
"""

import pytest
import torch

from kernelsearch.core.types import Word
from kernelsearch.propose.edits import edit_named
from kernelsearch.tasks import shipped
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

PRODUCT = [
    {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3},
    {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4},
]
CONFIGS = {
    "matmul": PRODUCT,
    "linear_gelu": PRODUCT,
    "attention": [
        {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 2},
        {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3},
        {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3},
    ],
}


@pytest.mark.parametrize("name", CONFIGS)
def test_descriptors_are_right_and_their_times_are_printed(name):
    with Bench.open(shipped.path(name)) as bench:
        first = bench.facts.shapes[0]
        evaluation = Evaluation(bench, (first.key,))
        kernels = {"pointers": bench.seed}
        for number, rewrite in enumerate(edit_named("tensor_descriptor").apply(bench.seed, bench.facts)):
            kernels["loads" if number == 0 else "loads and stores"] = rewrite.kernel
        assert len(kernels) == 3
        print(f"\n{name}, {first.label}: microseconds")
        for config in CONFIGS[name]:
            times = {}
            for kind, kernel in kernels.items():
                verdict, samples = evaluation.sample_times(kernel, {**bench.facts.config, **config}, {})
                assert verdict.word is Word.ACCEPT, (kind, config, verdict)
                times[kind] = sorted(samples[first.key])[len(samples[first.key]) // 2]
            print("  ", " ".join(str(v) for v in config.values()), "  ", {k: round(t, 1) for k, t in times.items()})
        for kernel in kernels.values():
            verdict = evaluation.verify(kernel, {**bench.facts.config, **CONFIGS[name][0]})
            assert verdict.accepted and verdict.depth == "full", verdict
