"""Tables that vLLM and SGLang look up: the names of files and fields, the best config of each number of tokens."""

import json

import pytest
from gated_record import write_seed_run

from kernelsearch.core.types import Evidence
from kernelsearch.export import ExportError
from kernelsearch.export.examine import examine
from kernelsearch.export.package import ExportOptions, export
from kernelsearch.kernel.source import Kernel

DEVICE = "NVIDIA H100 80GB HBM3"
TASK = """
import torch, triton, triton.language as tl

def reference(x, w):
    return x @ w.T

def get_inputs(M=16, N=64, K=64SIZES):
    return [torch.randn(M, K), torch.randn(N, K)]

SHAPES = [dict(M=m, N=64, K=64) for m in (256, 1, 16)]
TEST_SHAPES = [dict(M=5, N=32, K=32)]
SPACE = {"BLOCK_SIZE_M": [16, 64], "BLOCK_SIZE_N": [32], "BLOCK_SIZE_K": [32], "GROUP_SIZE_M": [1, 8]}

@triton.jit
def scaled_mm(x_ptr, w_ptr, y_ptr, M, N, K, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr,
              BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr):
    m = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
    n = tl.program_id(1) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)[None, :]
    k = tl.arange(0, BLOCK_SIZE_K)
    y = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32)
    for at in range(0, K, BLOCK_SIZE_K):
        x = tl.load(x_ptr + m * K + (at + k)[None, :], mask=(m < M) & ((at + k)[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n * K + (at + k)[:, None], mask=(n < N) & ((at + k)[:, None] < K), other=0.0)
        y += tl.dot(x, w, input_precision="ieee")
    tl.store(y_ptr + m * N + n, y, mask=(m < M) & (n < N))

def product(x, w):
    (m, k), n = x.shape, w.shape[0]
    y = torch.empty((m, n))
    grid = lambda meta: (triton.cdiv(m, meta["BLOCK_SIZE_M"]), triton.cdiv(n, meta["BLOCK_SIZE_N"]))
    scaled_mm[grid](x, w, y, m, n, k, BLOCK_SIZE_M=16, BLOCK_SIZE_N=32, BLOCK_SIZE_K=32, GROUP_SIZE_M=1)
    return y
"""


@pytest.fixture
def exported(tmp_path):
    def make(form, text=TASK, **options):
        path = tmp_path / "scaled.py"
        path.write_text(text.replace("SIZES", ""))
        facts = examine(path).facts
        seed, large = Kernel.parse(facts.seed), {**facts.config, "num_warps": 8}
        large |= {name: 64 for name in ("BLOCK_SIZE_M",) if name in large}
        runs = [(seed, large, (5.0, 9.0, 10.5))]  # better at 256 tokens only
        write_seed_run(tmp_path / "found.db", facts, (10.0, 4.0, 10.0), Evidence.MEASURED, DEVICE, runs)
        out = tmp_path / form
        whole = {"tasks": ("scaled",), "out": str(out), "name": "tables", "dbs": (str(tmp_path / "found.db"),)}
        export(ExportOptions(**whole, evidence=Evidence.MEASURED, format=form, **options))
        return {file.name: json.loads(file.read_text()) for file in sorted(out.glob("*.json"))}

    return make


def test_each_number_of_tokens_has_the_best_config_of_the_tasks_own_kernel(exported):
    ((name, table),) = exported("vllm-fp8").items()
    assert name == "N=64,K=64,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json"
    assert list(table) == ["1", "16", "256"]
    small = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1, "num_stages": 3}
    assert table["1"] == table["16"] == {**small, "num_warps": 4}
    assert table["256"] == {**small, "BLOCK_SIZE_M": 64, "num_warps": 8}


def test_experts_are_in_the_names_of_tables_for_mixtures(exported):
    text = TASK.replace("SIZES", ", E=8").replace("N=64, K=64) for m", "N=64, K=64, E=8, quant='int8_w8a16') for m")
    text = text.replace("E=8):", "E=8, quant=None):")
    names = {form: list(exported(form, text)) for form in ("vllm-moe", "sglang-moe")}
    whole = ["E=8,N=64,device_name=NVIDIA_H100_80GB_HBM3,dtype=int8_w8a16.json"]
    assert names == {"vllm-moe": whole, "sglang-moe": whole}


def test_what_the_task_does_not_say_is_one_line(exported):
    with pytest.raises(ExportError, match="has no E: call the parameters of get_inputs so"):
        exported("vllm-moe")
    with pytest.raises(ExportError, match="is not tuned on GROUP_SIZE_M: it is not the engine's kernel"):
        exported("vllm-fp8", TASK.replace("GROUP_SIZE_M", "GROUP"))
