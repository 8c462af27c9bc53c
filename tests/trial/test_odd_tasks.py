"""Task files such as people have them, each searched to its end without a GPU."""

import pytest

from kernelsearch.record.store import Store

HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n"
SCALE = """
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * FACTOR, mask=i < n)
"""
SCALE_2 = """
def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), 2.0, BLOCK=256)
    return y
"""
SHAPES = "SHAPES = [dict(rows=64, cols=96)]\nTEST_SHAPES = [dict(rows=3, cols=50)]\n"
INPUTS = "def get_inputs(rows=64, cols=96): return [torch.randn(rows, cols)]\n"

TASKS = {
    "kernelbench_with_new": HEAD + SCALE + '''
rows = 128
cols = 320
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
    def forward(self, x):
        return torch.relu(x * 2.0) + self.weight
def get_inputs():
    return [torch.randn(rows, cols)]
def get_init_inputs():
    return [cols]
class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))
    def forward(self, x):
        y = torch.empty_like(x)
        scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 2.0, BLOCK=128)
        return torch.relu(y) + self.weight
''',
    "kernelbench_of_one_row_and_a_plain_grid": HEAD + SCALE + '''
cols = 3000
class Model(nn.Module):
    def forward(self, x): return x * 2.0
def get_inputs(): return [torch.randn(1, cols)]
def get_init_inputs(): return []
class ModelNew(nn.Module):
    def forward(self, x): return scale(x)
''' + SCALE_2,
    "one_number": HEAD + '''
@triton.jit
def loss_kernel(x_ptr, t_ptr, y_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        d = tl.load(x_ptr + i, mask=i < n, other=0.0) - tl.load(t_ptr + i, mask=i < n, other=0.0)
        total += tl.sum(d * d, axis=0)
    tl.store(y_ptr, total / n)
def loss(x, t):
    y = torch.empty((), dtype=x.dtype, device=x.device)
    loss_kernel[(1,)](x, t, y, x.numel(), BLOCK=256)
    return y
def reference(x, t): return torch.nn.functional.mse_loss(x, t)
def get_inputs(rows=8, cols=96): return [torch.randn(rows, cols), torch.randn(rows, cols)]
SHAPES = [dict(rows=8)]
TEST_SHAPES = [dict(rows=3, cols=50)]
''',
    "autotuned": HEAD + '''
@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((64, 1), (128, 2), (256, 4))], key=["n"]
)
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2, mask=i < n)
def scale(x):
    y = torch.empty_like(x)
    scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
def reference(x): return x * 2
''' + INPUTS + SHAPES,
    "several_kernels_with_torch_between": HEAD + SCALE + '''
@triton.jit
def sum_kernel(x_ptr, s_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(s_ptr + row, tl.sum(tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0), axis=0))
def launcher(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), 3.0, BLOCK=256)
    z = torch.tanh(y).contiguous()
    s = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    sum_kernel[(x.shape[0],)](z, s, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return s - s.mean()
def reference(x):
    s = torch.tanh(x * 3.0).sum(-1)
    return s - s.mean()
''' + INPUTS + SHAPES,
    "in_place": HEAD + '''
@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(x_ptr + i, x + tl.load(y_ptr + i, mask=i < n, other=0.0), mask=i < n)
MUTATES = ("x",)
def add_(x, y):
    add_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
def reference(x, y):
    x.add_(y)
def get_inputs(rows=64, cols=96): return [torch.randn(rows, cols), torch.randn(rows, cols)]
''' + SHAPES,
    "two_outputs": HEAD + '''
@triton.jit
def split_kernel(x_ptr, a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(a_ptr + i, tl.maximum(x, 0.0), mask=i < n)
    tl.store(b_ptr + i, x > 0, mask=i < n)
def split(x):
    a, b = torch.empty_like(x), torch.empty(x.shape, dtype=torch.bool, device=x.device)
    split_kernel[(triton.cdiv(x.numel(), 128),)](x, a, b, x.numel(), BLOCK=128)
    return {"relu": a, "mask": b}
def reference(x): return {"relu": torch.relu(x), "mask": x > 0}
''' + INPUTS + SHAPES,
    "helper_functions": HEAD + '''
@triton.jit
def square(x): return x * x
@triton.jit
def norm(x, mask): return tl.sum(tl.where(mask, square(x), 0.0), axis=0)
@triton.jit
def norm_kernel(x_ptr, y_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + i, mask=i < cols, other=0.0)
    tl.store(y_ptr + row, norm(x, i < cols))
def norms(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    norm_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
def reference(x): return (x * x).sum(-1)
''' + INPUTS + SHAPES,
    "rows_of_50257": HEAD + SCALE.replace("* FACTOR", "+ FACTOR") + '''
def shift(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 2.0, BLOCK=1024)
    return y
def reference(x): return x + 2.0
def get_inputs(rows=256, cols=50257): return [torch.randn(rows, cols)]
SHAPES = [dict(rows=256)]
TEST_SHAPES = [dict(rows=2, cols=5003)]
''',
    "annotated_sixty_four_bits": HEAD + SCALE.replace("ptr, n,", "ptr, n: tl.int64,") + SCALE_2
    + "def reference(x): return x * 2\n" + INPUTS + SHAPES,
}  # fmt: skip

# As Triton's tutorials are written: no inputs function, launches and prints at the file's top, a unit test at its end.
BARE = (
    HEAD
    + """
DEVICE = triton.runtime.driver.active.get_active_torch_device()

@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    output = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, output, mask=mask)

def add(x: torch.Tensor, y: torch.Tensor):
    output = torch.empty_like(x)
    assert x.device == DEVICE and y.device == DEVICE and output.device == DEVICE
    n_elements = output.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta['BLOCK_SIZE']), )
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output

def add_torch(x, y): return x + y
def get_inputs(n=3001): return [torch.rand(n), torch.rand(n)]

torch.manual_seed(0)
size = 501
x = torch.rand(size, device=DEVICE)
y = torch.rand(size, device=DEVICE)
output_triton = add(x, y)
if __name__ == "__main__":
    raise SystemExit("a task file's main block never runs")
"""
)


def searched(run, tmp_path, name, text, *options, trials=3):
    """The summary of a short search over a task file, which must have accepted its seed."""
    (tmp_path / f"{name}.py").write_text(text)
    done = run("optimize", f"{name}.py", "--trials", trials, "--json", "--quiet", *options)
    assert done.code == 0, done.err
    return done.json


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TASKS if name != "autotuned"])
def test_odd_task(run, tmp_path, name):
    summary = searched(run, tmp_path, name, TASKS[name])
    assert summary["trials"] == 3 or summary["used_up"], summary
    assert summary["verdicts"]["accept"] >= 1
    assert summary["best"]["evidence"] == "estimated" and summary["best"]["speedup"] >= 1.0


@pytest.mark.slow
def test_a_tutorials_file_as_it_is(run, tmp_path, capfd):
    summary = searched(run, tmp_path, "add", BARE)
    assert summary["trials"] == 3 and summary["best"]["shapes"][0]["seed_us"] > 0


def test_the_autotuners_configs_are_the_space_and_its_strategy_tries_them_all(run, tmp_path):
    summary = searched(run, tmp_path, "autotuned", TASKS["autotuned"], "--strategy", "autotune", trials=50)
    tried = tried_configs(tmp_path / "kernelsearch.db")
    union = {(b, w) for b in (64, 128, 256) for w in (1, 2, 4)}
    assert summary["used_up"] and summary["kernels"] == 1 and summary["best"]["speedup"] >= 1.0
    assert {(c["BLOCK"], c["num_warps"]) for c in tried} == union and len(tried) == len(union)
    own = {(64, 1), (128, 2), (256, 4)}  # the decorator's configs, of which the best is the seed's
    assert (tried[0]["BLOCK"], tried[0]["num_warps"]) in own


def tried_configs(database):
    with Store.open(str(database), write=False) as store:
        return [dict(t.config) for t in store.load_trials(1)]


def test_what_a_sound_seed_may_not_hide(run, tmp_path):
    """Each of these tasks with its reference changed is refused, so that accepting them above means something."""
    for name, old, new in (
        ("two_outputs", '"mask": x > 0', '"mask": x < 0'), ("in_place", "x.add_(y)", "x.sub_(y)"),
        ("several_kernels_with_torch_between", "x * 3.0", "x * 3.01"),
        ("helper_functions", "(x * x).sum(-1)", "(x * x).mean(-1)"),
    ):  # fmt: skip
        (tmp_path / f"{name}.py").write_text(wrong_reference(TASKS[name], old, new))
        done = run("optimize", f"{name}.py", "--trials", 3, "--quiet")
        assert done.code == 2 and "is itself rejected" in done.err, (name, done.err)
        assert "(inputs: " in done.err and "--explain` says more" in done.err


def wrong_reference(text, old, new):
    head, tail = text.split("def reference", 1)
    assert old in tail
    return f"{head}def reference{tail.replace(old, new, 1)}"
