"""On a GPU: what `tensor_descriptor` makes of the shipped products is right at full depth, by the copy engine.

With `-s` it prints the times of pointers and descriptors beside each other:
`python -m pytest tests/gpu/test_descriptors_gpu.py -m gpu -s`.
"""

import importlib
import timeit
from pathlib import Path

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import kernelsearch
from described_task import OWN, PASSED
from kernelsearch.compile.tensor_maps import TensorMap
from kernelsearch.core.types import Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import edit_named
from kernelsearch.tasks import shipped
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.worker.gpu.cuda import CudaError, encode_tensor_map

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
            kernels[("loads", "loads and stores", "loads, host", "loads and stores, host")[number]] = rewrite.kernel
        assert len(kernels) == (3 if name == "attention" else 5)  # attention's matrices begin behind the pointers
        print(f"\n{name}, {first.label}: microseconds")
        for config in CONFIGS[name]:
            times = {}
            for kind, kernel in kernels.items():
                verdict, samples = evaluation.sample_times(kernel, {**bench.facts.config, **config}, {})
                assert verdict.word is Word.ACCEPT, (kind, config, verdict)
                times[kind] = sorted(samples[first.key])[len(samples[first.key]) // 2]
            print("  ", " ".join(str(v) for v in config.values()), "  ", {k: round(t, 1) for k, t in times.items()})
        for kernel in kernels.values():
            # with the smallest tiles: of larger ones each float32 binary takes the compiler 5 s and more
            verdict = evaluation.verify(kernel, {**bench.facts.config, **CONFIGS[name][-1]})
            assert verdict.accepted and verdict.depth == "full", verdict


def test_descriptors_that_a_launcher_passes_are_right_and_so_are_a_kernels_own_of_them(tmp_path):
    path = tmp_path / "passed.py"
    path.write_text(PASSED)
    with Bench.open(path) as bench:
        evaluation = Evaluation(bench, (bench.facts.shapes[0].key,))
        own = Kernel.parse(f"DESCRIPTORS = {{{OWN}}}\n" + bench.seed.code)
        for kernel, config in ((bench.seed, {}), (bench.seed, {"BM": 128}), (own, {"BM": 32, "BN": 64})):
            verdict = evaluation.verify(kernel, {**bench.facts.config, **config})
            assert verdict.accepted and verdict.depth == "full", verdict


def test_a_map_that_is_kept_costs_little_and_one_that_is_impossible_is_said():
    x = torch.zeros(512, 512, dtype=torch.bfloat16, device="cuda")
    how = TensorMap(3, 2, 9, (128, 64))
    told = how, x.data_ptr(), tuple(x.shape), tuple(x.stride()), (False, False)
    first = encode_tensor_map(*told)
    assert any(bytes(first)) and encode_tensor_map(*told) is first
    again = min(timeit.repeat(lambda: encode_tensor_map(*told), number=10_000, repeat=5)) / 10_000
    assert again < 5e-6
    with pytest.raises(CudaError, match="tensor map of"):
        encode_tensor_map(how, x.data_ptr() + 2, *told[2:])


def test_an_exported_call_pays_little_for_descriptors_that_did_not_change(tmp_path, monkeypatch):
    """The template's own helper, on tensors of this device: all three of a product in at most 5 microseconds."""
    package = tmp_path / "of_templates"
    package.mkdir()
    for name in ("_launch", "_binaries"):
        text = (Path(kernelsearch.__file__).parent / f"export/templates/{name}.py.txt").read_text()
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    described = importlib.import_module("of_templates._launch").described
    tensors = [torch.zeros(4096, 4096, dtype=torch.bfloat16, device="cuda") for _ in range(3)]

    def call():
        return [described(x, (4096, 4096), (4096, 1), (128, 64)) for x in tensors]

    first = call()
    assert all(a is b for a, b in zip(first, call(), strict=True)) and isinstance(first[0], TensorDescriptor)
    cost_us = min(timeit.repeat(call, number=10_000, repeat=5)) / 10_000 * 1e6
    print(f"\nthree unchanged descriptors of an exported call: {cost_us:.2f} us")
    assert cost_us <= 5
