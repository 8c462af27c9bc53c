"""KernelBench's form of a task file: sizes, weights and parameters that are sizes."""

import pytest
import torch
from task_texts import BENCH, BENCH_NEW, HEAD, KERNEL

from kernelsearch.core.errors import TaskError
from kernelsearch.tasks.load import load


def test_kernelbench(write):
    task = load(write(HEAD, KERNEL, BENCH, BENCH_NEW))
    assert (task.form, task.params("timed:0")) == ("kernelbench", dict(batch=4096, dim=8192))
    assert [p for _, p in task.test_shapes] == [dict(dim=37, batch=70), dict(dim=64, batch=32)]
    case = task.build("test:0", seed=1)
    assert case.inputs[0].shape == (70, 37) and case.reference(*case.inputs).shape == (70, 37)
    assert case.reference64(case.inputs[0].double()).dtype == torch.float64
    assert task.module.dim == 8192  # what a shape overrides is put back


def test_attributes_are_no_shape_parameters(write):
    text = BENCH.replace("return [torch.rand(batch, dim)]", "return [torch.rand(batch, 4 + torch.ones(2, 2).dim())]")
    text = text.replace("return [dim]", "return [6]")
    assert load(write(HEAD, KERNEL, text, BENCH_NEW)).params("timed:0") == dict(batch=4096)


GPT = """
import torch.nn as nn
batch, seq, width, heads = 128, 512, 768, 12
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
    def forward(self, x): return self.attention(x, x, x)[0]
def get_inputs(): return [torch.rand(batch, seq, width)]
def get_init_inputs(): return [width, heads]
class ModelNew(nn.Module):
    def __init__(self, width, heads): super().__init__()
    def forward(self, x): return scale(x)
"""


def test_sizes_that_hang_together_shrink_as_far_as_the_model_allows(write):
    task = load(write(HEAD, KERNEL, GPT))
    for key, params in task.test_shapes:
        assert params["width"] % params["heads"] == 0 and params["width"] < 768 and params["seq"] < 128, (key, params)
    assert task.notes == ()


BIAS = """
import torch.nn as nn
rows, width = 128, 512
bias_shape = (width, 1)
class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(shape))
    def forward(self, x): return x + self.bias[:, 0]
def get_inputs(): return [torch.rand(rows, width)]
def get_init_inputs(): return [bias_shape]
class ModelNew(Model):
    def forward(self, x): return scale(x)
"""


@pytest.mark.parametrize("written", ["(width, 1)", "(512, 1)"])
def test_tuples_of_sizes_follow_the_sizes(write, written):
    task = load(write(HEAD, KERNEL, BIAS.replace("(width, 1)", written)))
    case = task.build(task.test_shapes[0][0], seed=1)
    assert case.inputs[0].shape[1] < 512 and case.reference(*case.inputs).shape == case.inputs[0].shape
    assert task.module.bias_shape == (512, 1)


def test_a_number_in_a_tuple_stays_where_sizes_of_its_value_vary_without_it(write):
    rows = BIAS.replace("rows, width = 128, 512", "rows, width = 512, 64").replace("(width, 1)", "(512, 64)")
    task = load(write(HEAD, KERNEL, rows.replace("x + self.bias[:, 0]", "x, self.bias")))
    case = task.build(task.test_shapes[0][0], seed=1)
    x, bias = case.reference(*case.inputs)
    assert x.shape[0] < 512 and x.shape[1] < 64 and bias.shape == (512, 64)


def test_kernelbench_shares_weights_by_name(write):
    launcher = """
        class ModelNew(nn.Module):
            def __init__(self, f):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(f))
            def forward(self, x):
                if x.numel() < 0: scale(x)
                return x * self.weight
    """
    case = load(write(HEAD, KERNEL, BENCH, launcher)).build("test:0", seed=5)
    assert torch.equal(case.launch(*case.inputs), case.reference(*case.inputs))


NORM = """
import torch.nn as nn
rows, width = 128, 512
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
    def forward(self, x): return self.norm(x)
def get_inputs(): return [torch.rand(rows, width)]
def get_init_inputs(): return [width]
class ModelNew(Model):
    def forward(self, x): return scale(x) if x.numel() < 0 else self.norm(x)
"""


def test_a_launcher_serves_cases_of_all_seeds_and_no_weight_is_a_constant(write):
    """Weights that changed with a case's seed made every timed shape of a model with weights wrong on a GPU."""
    task = load(write(HEAD, KERNEL, NORM))
    one, other = (task.build("test:0", seed) for seed in (0, 5))
    assert not torch.equal(one.inputs[0], other.inputs[0])
    assert torch.equal(one.launch(*other.inputs), other.reference(*other.inputs))
    without = "nn.functional.layer_norm(self.norm[0](x), x.shape[1:])"
    bare = load(write(HEAD, KERNEL, NORM.replace("else self.norm(x)", f"else {without}"), name="y.py")).build(
        "test:0", 0
    )
    assert not torch.allclose(bare.launch(*bare.inputs), bare.reference(*bare.inputs), atol=0.1)


def test_kernelbench_without_a_kernel(write):
    path = write(HEAD, BENCH)
    with pytest.raises(TaskError, match=r"no kernel.*(?s:.)*class ModelNew"):
        load(path)
    task = load(path, need_kernel=False)
    assert task.build("test:0").launch is None


def test_kernelbench_shapes_must_be_its_parameters(write):
    with pytest.raises(TaskError, match="'rows'; the file's shape parameters are"):
        load(write(HEAD, KERNEL, BENCH, BENCH_NEW, "SHAPES = [dict(rows=2)]\n"))


def test_parameters_of_a_kernelbench_files_functions_are_its_sizes(write):
    own = BENCH.replace("get_inputs()", "get_inputs(rows=64, dim=dim)").replace("rand(batch,", "rand(rows,")
    own = own.replace("get_init_inputs()", "get_init_inputs(dim=dim)")
    task = load(write(HEAD, KERNEL, own, BENCH_NEW, "SHAPES = [dict(rows=9, dim=20), dict(rows=3)]\n"))
    assert task.params("timed:1") == dict(rows=3, dim=8192)
    case = task.build("timed:0")
    assert case.inputs[0].shape == case.reference(*case.inputs).shape == (9, 20)
    with pytest.raises(TaskError, match="scale.py: dim has two values: make them one, or rename one"):
        load(write(HEAD, KERNEL, own.replace("get_inputs(rows=64, dim=dim)", "get_inputs(rows=64, dim=5)"), BENCH_NEW))
