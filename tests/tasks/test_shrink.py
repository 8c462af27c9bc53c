"""Test shapes that are made of the timed ones: what shrinks, what stays, and what is said."""

import math

import pytest
import torch
from task_texts import HEAD, KERNEL

from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.load import load
from kernelsearch.tasks.shrink import choose_base, keep_by_shape, shrink_shape, spread_sizes
from kernelsearch.tasks.tried_inputs import count_input_elements
from kernelsearch.worker.launcher.standin import pretend_gpu

GROUPED = """
class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.GroupNorm(8, features)
    def forward(self, x): return self.norm(x)
class ModelNew(torch.nn.Module):
    def __init__(self, features): super().__init__()
    def forward(self, x): return scale(x)
batch, features, height, width = 32, 64, 64, 64
def get_inputs(): return [torch.randn(batch, features, height, width)]
def get_init_inputs(): return [features]
"""


def test_a_convolutional_task_shrinks_until_the_interpreter_can_run_it(opened):
    """Equal sizes that must not all be odd, a channel count that groups divide, and a batch that is not large."""
    task = opened(GROUPED)
    for _, shape in task.test_shapes:
        assert shape["features"] % 8 == 0
        assert shape["batch"] * shape["features"] * shape["height"] * shape["width"] <= 1 << 14
    assert len(task.test_shapes) == 2 and task.notes == ()


def test_a_task_whose_sizes_have_no_names_is_told_what_to_write():
    _, note = shrink_shape({"dtype": "float32"}, lambda shape: 1 << 25)
    assert "a parameter rows=4096; where the reference is a Model, rows = 4096 above it" in note
    assert "add TEST_SHAPES" in note


def test_small_sizes_shrink_before_those_that_were_large():
    """Of 16 heads and 37 rows, 37 rows are kept: with 3 a band of rows says nothing."""
    shapes, note = shrink_shape({"heads": 16, "n": 2048}, lambda p: p["heads"] * p["n"] ** 2)
    assert shapes == [{"heads": 3, "n": 37}, {"heads": 3, "n": 64}] and not note


@pytest.mark.parametrize(
    ("shapes", "chosen"),
    [
        ([dict(m=1, n=4096), dict(m=16, n=4096), dict(m=512, n=4096)], 2),
        ([dict(m=4096, n=4096), dict(m=512, n=4096)], 1),  # sizes that differ are two
        ([dict(m=512, n=4096, gap=0), dict(m=512, n=2048, gap=64)], 0),
        ([dict(m=8, n=4)], 0),
    ],
)
def test_the_shape_with_the_most_sizes_that_shrink_is_the_base(shapes, chosen):
    assert choose_base(shapes) == shapes[chosen]


def test_no_shape_is_tried_twice():
    tried = []

    def count(shape):
        tried.append(shape)
        return math.prod(shape.values()) if shape["rows"] == 8192 else None

    shapes, _ = shrink_shape({"rows": 8192, "cols": 2080}, keep_by_shape(count))
    assert len(tried) == len({repr(shape) for shape in tried}) and shapes[0]["cols"] < 2080


def test_a_size_that_stays_leaves_the_others_least_and_is_said():
    """Of 2048 channels the interpreter runs 2048 programs for each of the batch and of the values."""
    timed = {"batch": 4, "dim": 2048, "length": 4096}
    shapes, note = shrink_shape(timed, lambda p: math.prod(p.values()) if p["dim"] == 2048 else None)
    assert shapes == [{"batch": 1, "dim": 2048, "length": 3}]
    assert "batch=1 dim=2048 length=3 has 6144 elements" in note and "takes none smaller" in note


LABELLED = """
import torch.nn.functional as F
def reference(x): return F.cross_entropy(x @ x.t() / 99, torch.arange(x.shape[0], device=x.device))
def get_inputs(rows=1 << 15, cols=1024): return [torch.randn(rows, cols)]
"""


def test_what_is_made_on_the_device_of_a_tensor_on_meta_is_there_too(write):
    """The timed shape is far too large to run: a reference that failed on meta was judged at full size."""
    with pretend_gpu(target_by_name("h100"), "cpu"):
        task = load(write(HEAD, KERNEL, LABELLED))
        assert count_input_elements(task.builder, task.params("timed:0")) == 1 << 25
        with torch.device("meta"):
            x = torch.zeros(3)
        assert x.device == torch.device("cuda", 0)
        assert torch.arange(3, device=x.device).untyped_storage().device.type == "meta"
        assert torch.arange(3, device=torch.zeros(3).device).untyped_storage().device.type == "cpu"


IGNORED = """
LAUNCHER = "scale"
def reference(x, keep): return (x * keep[:, None]).sum() / keep.sum()
def get_inputs(rows=4096, cols=100000): return [torch.randn(rows, COLS), (torch.arange(rows) >= HIDDEN).float()]
"""


@pytest.mark.parametrize("hidden, rows", [("2", 3), ("3", 8), ("8", 16)])
def test_the_result_at_a_test_shape_is_finite_and_depends_on_the_inputs(write, hidden, rows):
    """Without a row that counts the reference was NaN, and every kernel right."""
    task = load(write(HEAD, KERNEL, IGNORED.replace("HIDDEN", hidden).replace("COLS", "20000")))
    assert task.test_shapes[0][1]["rows"] == rows
    case = task.build("test:0")
    assert case.reference(*case.inputs).isfinite()


GATHERED = """
def reference(x): return RESULT
def get_inputs(rows=4096, cols=1024): return [torch.randn(rows, cols // 32)]
"""


@pytest.mark.parametrize("result, cols, note", [
    ("x[:, torch.arange(x.shape[1] * 32) // 32]", 70, ""),
    ("x[torch.arange(x.shape[0]), 20]", 670, ""),
    ("x[:, :0]", 5, "at all small sizes an input or a result is empty"),
    ("x * 0", 70, "at all small sizes the reference's result is not finite, or the same for all inputs"),
])  # fmt: skip
def test_no_test_shape_is_empty_and_what_tells_nothing_is_said(write, result, cols, note):
    task = load(write(HEAD, KERNEL, GATHERED.replace("RESULT", result)))
    assert [n.partition(",")[0] for n in task.notes] == [note.partition(",")[0]] * bool(note)
    assert all(p["cols"] // 32 for _, p in task.test_shapes) or note


CONSTANT = """
LAUNCHER = "scale"
RUNS = []
def reference(x, w, v):
    RUNS.append(x.shape)
    return (x @ w @ v)[:, :1] * 0
def get_inputs(rows=300, inner=500, cols=700, last=900):
    return [torch.randn(rows, inner), torch.randn(inner, cols), torch.randn(cols, last)]
"""


def test_a_result_that_is_the_same_at_many_sizes_is_not_looked_at_in_all(write):
    """A model of KernelBench whose result is 0 took 472 runs of its reference, 75 seconds."""
    task = load(write(HEAD, KERNEL, CONSTANT))
    assert len(task.module.RUNS) < 600  # was 1310
    assert [note for note in task.notes if "the same for all inputs" in note]


HALF = """
LAUNCHER = "scale"
def reference(x, w):
    y = x @ w
    return y * (torch.arange(y.shape[1], device=y.device) < y.shape[1] // 512 * 512)
def get_inputs(rows=300, inner=500, cols=700):
    return [torch.randn(rows, inner), torch.randn(inner, cols)]
"""


def test_other_sizes_shrink_where_one_tells_nothing_when_it_is_small(write):
    task = load(write(HEAD, KERNEL, HALF))
    assert {p["cols"] for _, p in task.test_shapes} == {700} and task.test_shapes[0][1]["inner"] < 100
    assert not [note for note in task.notes if "the same for all inputs" in note]


def test_the_sizes_of_a_task_without_a_kernel_are_told_apart():
    """Each that may has two values, and none two are equal in all shapes: a kernel for squares would be accepted."""

    def takes(params):
        return None if params["heads"] != 8 or params["n"] != params["same"] else 1

    timed = {"batch": 4, "heads": 8, "rows": 64, "cols": 64, "n": 9, "same": 9, "scale": 2.0}
    tests = [{**timed, "rows": 37, "cols": 37, "n": 5, "same": 5}, {**timed, "rows": 32, "cols": 32}]
    spread = spread_sizes([timed], tests, takes)
    assert spread == [{**tests[0], "batch": 3, "cols": 36}, tests[1]]
    assert spread_sizes([timed], spread, takes) == spread
