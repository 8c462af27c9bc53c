"""A file without a kernel gets its first ones from TorchInductor: judged right, readable, free of its runtime."""

import re

import pytest
import scripted_server

from kernelsearch.core.errors import TaskError
from kernelsearch.core.model_calls import AnswerRecord, ModelCall
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.propose.inductor.task_file import MARK, SLOW_PRODUCTS
from kernelsearch.record.store import Store
from kernelsearch.search import first_kernel
from turns import take_turn

HEAD = "import torch\n\n"
ROWS = "def get_inputs(rows=64, cols=300):\n    return [torch.randn(rows, cols)]\n"
TASKS = {
    "rows held whole, a weight of another dtype": """
def reference(x, w, eps=1e-5):
    x = x.float()
    y = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + eps)
    return (y * w).to(torch.bfloat16)

def get_inputs(rows=64, cols=300):
    return [torch.randn(rows, cols, dtype=torch.bfloat16), torch.randn(cols)]
""",
    "long rows in a loop": """
def reference(x):
    return torch.log_softmax(x, -1)

def get_inputs(rows=8, cols=20000):
    return [torch.randn(rows, cols)]
""",
    "a norm over channels, a sum from the back": """
def reference(x):
    return x * torch.rsqrt((x * x).mean(1, keepdim=True)), torch.cumsum(x.flip(2), 2).flip(2)

TEST_SHAPES = [dict(n=2, c=7, d=37), dict(n=3, c=8, d=16)]  # few programs

def get_inputs(n=3, c=40, d=700):
    return [torch.randn(n, c, d)]
""",
    "many channels, all of them empty at one place; one image": """
DOMAIN = {"x": "fixed"}

def reference(x):
    top = x.amax(1, keepdim=True)
    return top, (x - top).exp().sum(1, keepdim=True), torch.cummax(x, 2).values

TEST_SHAPES = [dict(n=1, c=37, d=5), dict(n=1, c=64, d=4)]  # few programs

def get_inputs(n=1, c=1000, d=12):
    return [torch.randn(n, c, d).masked_fill(torch.arange(d) == 0, -float("inf"))]
""",
    "a mean of a product, one pool and one mean of a convolution with padding": """
def reference(x, w, bias, y, v):
    pooled, mean = (torch.nn.functional.conv_transpose2d(y, v, bias[:5], stride=2, padding=1) for _ in "ab")
    pooled = torch.nn.functional.avg_pool2d(pooled * 3, 2)
    return torch.nn.functional.linear(x, w, bias).mean(1), pooled, (mean + 1).mean((2, 3))

def get_inputs(m=20, k=40, n=30, b=4, h=9):
    return [torch.randn(s) for s in ((m, k), (n, k), (n,), (b, 6, h, h), (6, 5, 3, 3))]
""",
    "several outputs, split over the rows and between images; windows of each channel": """
def reference(x, y, w, bias):
    mean, var = y.mean((0, 2), keepdim=True), y.var((0, 2), correction=0, keepdim=True)
    windows = torch.nn.functional.conv1d(y, w, bias, stride=2, padding=1, dilation=2, groups=y.shape[1])
    return x.mean(0), x.var(0, correction=0), (y - mean) * torch.rsqrt(var + 1e-5), windows

TEST_SHAPES = [dict(rows=9, cols=3, n=3, c=5, d=20), dict(rows=6, cols=4, n=4, c=4, d=16)]  # few programs

def get_inputs(rows=1024, cols=4, n=64, c=4, d=130):
    return [torch.randn(rows, cols), torch.randn(n, c, d), torch.randn(c, 1, 3), torch.randn(c)]
""",
    "a norm of groups, of which the channels are a multiple": """
def reference(x, w, b):
    return torch.nn.functional.group_norm(x, 8, w, b)

TEST_SHAPES = [dict(n=5, c=24, h=3), dict(n=4, c=32, h=4)]  # few programs

def get_inputs(n=300, c=64, h=40):
    return [torch.randn(n, c, h, h), torch.randn(c), torch.randn(c)]
""",
    "the gradient of a norm, whose weight's is summed over rows of the same kernel": """
def reference(x, w, b, dy):
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (x, w, b)]
        return torch.autograd.grad(torch.nn.functional.layer_norm(leaves[0], w.shape, *leaves[1:]), leaves, dy)

TEST_SHAPES = [dict(n=3, rows=5, cols=37), dict(n=1, rows=600, cols=16)]  # fewer rows than programs, and more

def get_inputs(n=2, rows=1024, cols=300):
    return [torch.randn(n, rows, cols), torch.randn(cols), torch.randn(cols), torch.randn(n, rows, cols)]
""",
    "the largest of all": "def reference(x):\n    return torch.exp(x - x.amax()), x.sum(), x.amin(())\n\n" + ROWS,
    "a scan": "def reference(x):\n    return x.cumsum(-1)\n\n" + ROWS,
    "a number between kernels": "def reference(x):\n    return x / torch.norm(x)\n\n" + ROWS,
    "an index, also of what is not finite": """
def reference(x, y):
    return (x / y).argmax(-1), x.gather(1, (x / y).argmin(-1, keepdim=True))

def get_inputs(rows=64, cols=300):
    return [torch.randn(rows, cols).relu(), torch.randn(rows, cols).relu()]
""",
    "a number": """
def reference(x, a):
    return torch.tanh(x) * a

def get_inputs(rows=64, cols=300):
    return [torch.randn(rows, cols), 2.5]
""",
    "numbers alone, and what they decide": """
def reference(x, alpha, gamma):
    return alpha * torch.tanh(x * (1 - alpha)) ** gamma if alpha >= 0 else x

def get_inputs(rows=64, cols=300):
    return [torch.randn(rows, cols), 0.25, 2.0]
""",
    "tensors without axes": """
def reference(x, t, shift):
    return torch.tanh(x / t) + shift

def get_inputs(rows=64, cols=300):
    return [torch.randn(rows, cols), torch.tensor(0.5), torch.tensor(3)]
""",
    "an input that it changes": """
MUTATES = ("y",)

def reference(x, y):
    y.add_(x)
    return y

def get_inputs(rows=64, cols=300):
    return [torch.randn(rows, cols), torch.randn(rows, cols)]
""",
    "a product": """
def reference(a, b):
    return a @ b

def get_inputs(m=96, n=64, k=128):
    return [torch.randn(m, k), torch.randn(k, n)]
""",
    "a product by the library, then a kernel": """
def reference(a, b):
    return torch.relu(a @ b).sum(-1)

def get_inputs(m=96, n=64, k=128):
    return [torch.randn(m, k), torch.randn(k, n)]
""",
    "a model with weights": """
rows, cols = 64, 300

class Model(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = torch.nn.LayerNorm(cols)

    def forward(self, x):
        return torch.nn.functional.gelu(self.norm(x))

def get_init_inputs():
    return [cols]

def get_inputs():
    return [torch.randn(rows, cols)]
""",
}


def seed(folder, text):
    """(The task file with a seed, the other start) that a file's text becomes, made in this process."""
    from kernelsearch.worker.launcher import inductor

    (folder / "plain.py").write_text(text)
    return inductor.write_seeded_task(str(folder / "plain.py"), target_by_name("h100"))


@pytest.mark.slow
@pytest.mark.parametrize("name", take_turn(TASKS, 3))
def test_the_seed_is_right(run, tmp_path, name):
    (tmp_path / "plain.py").write_text(HEAD + TASKS[name])
    done = run("seed", "plain.py", "-o", "made.py")
    assert done.code == 0 and "wrote made.py" in done.out
    text = (tmp_path / "made.py").read_text()
    assert not [word for word in ("inductor", "triton_helpers", "heuristics") if word in text]
    if "softmax" in TASKS[name]:  # maximum and sum together, and no exponentials in memory
        assert "softmax_kernel" in text and "online_along" in text and text.count("empty((rows, cols)") == 1
    assert max(map(len, re.findall(r"\w+", text))) <= 80
    if "flip" in TASKS[name]:  # TorchInductor by itself writes two kernels for each of both
        assert text.count("_kernel[") == 2
    if "multiple" in name:  # sums and what they are of in one kernel, as for sizes that are constants
        assert text.count("_kernel[") == 1 and re.search(r"c_by_8 = \w+\.shape\[1?0?\] // 8", text)
    if "gradient" in name:  # what has rows is read once; what is summed over them is never written as a whole
        own = text.partition(MARK)[2]
        assert [own.count(f"tl.load({p}_ptr") for p in ("x", "dy", "w")] == [1, 1, 1], own
        assert own.count("torch.empty((512, cols)") == own.count("sum_parts_kernel[") == 2
    if "images" in name:  # a part is an image, a tile has rows of channels, and `c` is a name that Inductor uses itself
        assert "y_ptr + (r0_index + d * xindex)" in text and "y_ptr + (xindex + d * yindex)" in text
        assert text.count("YBLOCK: tl.constexpr") == 2 and "conv" not in text.partition(MARK)[2]
    judged = run("verify", "made.py")
    assert judged.code == 0, judged.out + judged.err


@pytest.mark.slow
def test_a_search_begins_with_it_with_and_without_a_model(run, tmp_path):
    """Databases of versions in which a model wrote the first kernel hold its calls: they stay, and show."""
    (tmp_path / "plain.py").write_text(HEAD + TASKS["a number"])
    with scripted_server.Server(scripted_server.obedient) as server:
        model = ("--target", "h100", "--model", f"openai:{server.url}#m?answers=edit&seed=off", "--json")
        done = run("optimize", "plain.py", "--trials", 3, *model)
        assert done.code == 0 and "seeded by TorchInductor, see plain_seeded.py" in done.err, done.err
        assert done.json["trials"] == 3 and {m["arm"] for m in done.json["models"]} <= {"model:m", "repair:m"}
        with Store.open(str(tmp_path / "kernelsearch.db")) as store:
            (row,) = store.load_runs()
            seed = store.load_trials(row.id)[0].kernel
            answers = (AnswerRecord("BODY", "stop", 9, "right", "", seed),)
            store.add_call(
                row, ModelCall(0, "first:m", "openai:m", seed, "first", "do", "system", "page", "g", answers)
            )
        again = run("optimize", "plain.py", "--trials", 5, *model, "--resume")
    assert again.code == 0 and "has it with a first one, from an earlier run" in again.err, again.err
    (old,) = [m for m in again.json["models"] if m["arm"] == "first:m"]
    assert again.json["trials"] == 5 and (old["calls"], old["answers"]) == (1, 1)


REFUSED = {
    "y = x.sum().item()\n    return x if y > 0 else -x": "(y = x.sum().item()) depends on data (_local_scalar_dense)",
    "return x * x.tolist()[0][0]": "line 5 (return x * x.tolist()[0][0]) depends on data",
    "return x[x > 0]": "line 5 (return x[x > 0]) depends on data (index.Tensor)",
    "return torch.unique(x)": "line 5 (return torch.unique(x)) depends on data (_unique2)",
    "return x * torch.ones(x.shape[1])": "has tensors of two devices (mul.Tensor)",
    "return x + torch.ones(3, 1, device='cuda')": "has tensors of two devices (add.Tensor)",
    "return x.to_sparse().sum(1)": "line 5 (return x.to_sparse().sum(1)) has sparse tensors (_to_sparse)",
    "return torch.compile(F.gelu)(x)": "line 5 (return torch.compile(F.gelu)(x)) is compiled by torch.compile: remove",
    "y = torch.relu(x)": "it returns no tensor",
    "x[:, 0].add_(1)\n    return x": "line 5 (x[:, 0].add_(1)) changes an input (add_.Tensor): change a copy, or name",
    "return F.scaled_dot_product_attention(*[x[None, None]] * 3, dropout_p=0.5)": "makes random numbers (native_drop",
    "return torch.from_numpy(x.numpy())": ".numpy() is not supported for tensor subclasses. (line 5)",
    "return F.dropout(x, 0.5)": "line 5 (return F.dropout(x, 0.5)) makes random numbers (native_dropout)",
    "return torch.fft.rfft(x).abs()": "line 5 (return torch.fft.rfft(x).abs()) has complex numbers (_fft_r2c)",
    "return x": "it returns inputs as they are, or views of them: nothing is computed",
    "return x.t()[:, :0]": "it returns inputs as they are, or views of them: nothing is computed",
    "return torch.linalg.svd(x)[1]": "it is library calls only (aten._linalg_svd.default)",
    "return x * torch.tensor([0.5] * 300).to(x.device)": "it makes 300 constants: give them as an input",
    "return open('nowhere').read()": "No such file or directory: 'nowhere' (line 5)",
}


@pytest.mark.slow
@pytest.mark.parametrize("body", REFUSED)
def test_what_has_no_kernel_is_said_in_one_line(tmp_path, body):
    text = f"import torch, torch.nn.functional as F\n\n\ndef reference(x):\n    {body}\n\n{ROWS}"
    with pytest.raises(TaskError) as refused:
        seed(tmp_path, text)
    said = str(refused.value)
    assert said.startswith("plain.py: TorchInductor") and REFUSED[body] in said and "\n" not in said
    own = [cure for sign, cure in first_kernel.CURES.items() if sign in REFUSED[body]]
    advice = first_kernel.advise(said, "plain.py")
    add = "linalg" in body or "views" in said
    assert advice == "; " + own[0] if own else ("has no kernel: add one" in advice) == add


THREE = "def get_inputs(b=2, n=96, d=32):\n    return [torch.randn(b, n, d) for _ in range(3)]\n"
PARTS = {
    "attention": (
        "def reference(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v)\n",
        ["safe_softmax_kernel[", "triton.Config({'XBLOCK': ", "torch.bmm("],
    ),
    "attention for heads of one width": (
        "def reference(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v)\n\n\n"
        "def get_inputs(n=96, m=96, d=64, e=64):\n    shapes = (2, 2, n, d), (2, 2, m, d), (2, 2, m, e)\n"
        "    return [torch.randn(s, dtype=torch.half) for s in shapes]\n",
        ["attention_kernel[", "right for e = d only\nTEST_SHAPES = [{'n': 37, 'm': 36, 'd': 5, 'e': 5}"],
    ),
    "attention of grouped queries": (
        "def reference(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)\n\n\n"
        "def get_inputs(n=96):\n    return [torch.randn(2, h, n, 32, dtype=torch.half) for h in (4, 2, 2)]\n",
        ["kv = h // group", "q.shape[1] // k.shape[1]"],
    ),
    "a vector": ("def reference(a, b, c):\n    return a @ b[0, 0]\n", ["tl.sum("]),
    "a number": ("def reference(a, b, c):\n    return torch.minimum(a, torch.tensor(0.5))\n", ["0.5"]),
    "slopes of heads in a list": (
        "def reference(x):\n    slopes = torch.tensor([2.0 ** -i for i in range(x.shape[1])])\n"
        "    return x * slopes.to(x.device)[:, None] + torch.tensor([[True], [False]]).to(x.device)\n\n\n"
        "def get_inputs(b=3, h=2, d=40):\n    return [torch.randn(b, h, d)]\n",
        ["tl.where(", " == "],
    ),
    "a module in lists that casts itself": (
        "class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(48).to(torch.bfloat16)])\n"
        "        self.register_buffer('gain', torch.rand(48))\n        self.bfloat16()\n\n"
        "    def forward(self, x):\n        return self.norms[0](x) * self.gain\n\n\n"
        "def get_inputs(rows=64):\n    return [torch.randn(rows, 48, dtype=torch.bfloat16)]\n",
        ["self.norms[0].weight", "self.gain"],
    ),
    "rows apart": (
        "def reference(a, b, c):\n    return a.sum(1)\n",
        ["for r0_offset in tl.range(0, r0_numel, R0_BLOCK)", "torch.empty((b_size, d)", "TEST_SHAPES = [{'b': 3"],
    ),
    "gates of a width that is no input's, padding": (
        "def reference(x):\n    return F.pad(F.glu(x, 1), (1, 2))\n\n\ndef get_inputs(n=9, c=40, d=30):\n"
        "    return [torch.randn(n, 2 * c, d)]\n",
        ["c = x.shape[1] // 2", "c, 3 + d)", "no size is the same in all shapes"],
    ),
    "tensors with the names of sizes, numbers made on their device": (
        "def reference(x, w):\n    return x * w + torch.arange(x.shape[1], device=x.device)\n\n\n"
        "def get_inputs(h=9, w=40):\n    return [torch.randn(h, w), torch.randn(w)]\n",
        ["def launch_seed(x, w):", "w_size = x.shape[1]", "h = x.shape[0]", "no size is the same in all shapes"],
    ),
    "what is right for even sizes": (
        "def reference(x):\n    return F.adaptive_max_pool2d(x, 2)\n\n\n"
        "def get_inputs(n=3, c=8, h=14, w=10):\n    return [torch.randn(n, c, h, w)]\n",
        ["right for h = 14 and w = 10 only\nTEST_SHAPES"],
    ),
    "windows of volumes": (
        "def reference(x):\n    return F.max_pool3d(x, (2, 3, 3), 2, (1, 1, 0), 2), F.avg_pool3d(x, 2, padding=1)\n\n\n"
        "def get_inputs(n=2, c=3, h=9, w=11):\n    return [torch.randn(n, c, h, h, w)]\n",
        ["tl.load(x_at + 4, ", "tmp1 = tl.full([1, 1], 0", "triton.Config({'YBLOCK': 32, 'XBLOCK': 4}, num_warps=1"],
    ),
    "windows of rows, and where they are": (
        "def reference(x):\n    return F.max_pool1d(x, 4, ceil_mode=True), F.max_pool1d(x, 3, 1, 1), "
        "*F.max_pool1d(x, 2, return_indices=True)\n\n\n"
        "def get_inputs(n=2, c=3, w=12):\n    return [torch.randn(n, c, w)]\n",
        ["constant_pad_nd_maximum_slice_kernel", "return torch.as_strided(buf0", "buf3 = torch.empty"],
    ),
    "a scan of all but the last": (
        "def reference(x):\n    return torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)\n\n\n"
        "def get_inputs(n=9, d=40):\n    return [torch.randn(n, d)]\n",
        ["tl.associative_scan(", "torch.as_strided(out"],
    ),
    "a reference of probabilities": (
        "def reference(p, q):\n    return F.kl_div(p.log(), q, reduction='sum'), F.binary_cross_entropy(q, p)\n\n\n"
        "def get_inputs(n=9, d=40):\n    return [torch.rand(n, d).softmax(-1), torch.rand(n, d)]\n",
        ["DOMAIN = {'p': 'unit', 'q': 'unit'}"],
    ),
    "a reference of positive numbers": (
        "def reference(x, w):\n    return x.log() * w\n\n\n"
        "def get_inputs(n=9, d=40):\n    return [torch.rand(n, d) + 0.5, torch.randn(n, d)]\n",
        ["DOMAIN = {'x': 'positive'}"],
    ),
    "results in a dictionary, an own backward pass": (
        "class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n\n\n"
        "def reference(a, b, c):\n    return [Twice.apply(a), {'b': b + 1}]\n",
        ["return out0, out1"],
    ),
    "a small batch": (
        "batch, rows = 2, 64\n\n\nclass Model(torch.nn.Module):\n    def __init__(self, d):\n"
        "        super().__init__()\n"
        "        self.norm = torch.nn.LayerNorm(d)\n\n    def forward(self, x):\n        return self.norm(x)\n\n\n"
        "def get_inputs(d=96):\n    return [torch.randn(batch, rows, d)]\n\n\n"
        "def get_init_inputs(d=96):\n    return [d]\n",
        ["batch = x.shape[0]", "d = norm_weight.shape[0]", "((batch, rows, d)", "TEST_SHAPES = [{'d': 37, 'batch': 3"],
    ),
    "a batch of one": (
        "def reference(x):\n    return x.softmax(-1)\n\n\ndef get_inputs(b=1, d=96):\n    return [torch.randn(b, d)]\n",
        ["right for b = 1 only"],
    ),
    "sizes with the names of functions, and their products": (
        "def reference(x):\n    return x.mean(3), F.rms_norm(x, x.shape[3:]).transpose(1, 2).contiguous()\n\n\n"
        "def get_inputs(batch=3, size=9, dim=40):\n    return [torch.randn(batch, size, 4, dim)]\n",
        ["    size = x.shape[1]", "    dim = x.shape[3]", "size_4 = 4 * size\n"],
    ),
    "convolutions with channels last, their bias in the kernel after them": (
        "def reference(x, w, bias):\n    return F.relu(F.conv2d(x, w, bias))\n\n\n"
        "def get_inputs(n=9, h=14, w=12):\n    shapes = (n, 24, h, w), (40, 24, 3, 3), (40,)\n"
        "    return [torch.randn(s) for s in shapes]\n",
        [", (24 * h * w_size, 1, 24 * w_size, 24), ", "bias=None)", "relu_kernel["],
    ),
    "a causal convolution of each channel by itself, in one kernel with what is done after it": (
        "def reference(x, w, bias):\n    pad = w.shape[1] - 1\n"
        "    y = F.conv1d(x, w[:, None], bias, padding=pad, groups=x.shape[1])[..., : x.shape[2]]\n"
        "    return F.silu(y)\n\n\n"
        "def get_inputs(b=9, c=24, n=70, width=4):\n    shapes = (b, c, n), (c, width), (c,)\n"
        "    return [torch.randn(s) for s in shapes]\n",
        ["add_constant_pad_nd_mul_kernel(x_ptr, w_ptr, bias_ptr, out_ptr", "right for width = 4 only"],
    ),
    "sums, means and pools before products and convolutions": (
        "def reference(x, w, y, v):\n    pooled = F.avg_pool2d(F.conv2d(y, v), 2)\n"
        "    return F.linear(x, w).mean(1), F.conv_transpose2d(y, v).mean((2, 3)), pooled\n\n\n"
        "def get_inputs(m=30, k=50, n=70, b=9, h=14):\n    shapes = (m, k), (n, k), (b, 24, h, h), (24, 24, 3, 3)\n"
        "    return [torch.randn(s) for s in shapes]\n",
        ["empty_strided((24, 24, 4, 4)", "stride=(2, 2)"],
    ),
    "buffers": (
        "class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = torch.nn.BatchNorm1d(96)\n        self.register_buffer('kept', torch.zeros(32))\n\n"
        "    def forward(self, a, b, c):\n        self.kept = self.kept * 0.9\n        return self.norm(a)\n",
        ["self.norm.running_mean", "(kept, kept, 32"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", take_turn(PARTS, 3))
def test_what_a_seed_has(tmp_path, name):
    text, parts = PARTS[name]
    made, _ = seed(tmp_path, f"import torch, torch.nn.functional as F\n\n\n{THREE}\n{text}")
    assert [part for part in parts if part not in made] == []


GATED = """
def reference(x, scale):
    return torch.nn.functional.group_norm(torch.sigmoid(x * scale), 4)

def get_inputs(n=16, c=32, h=120):
    return [torch.randn(n, c, h, h), torch.randn(c, 1, 1)]
"""


@pytest.mark.slow
def test_what_two_kernels_read_is_computed_twice_and_not_stored(tmp_path):
    """Inductor stores exponentials and sigmoids that are read twice if it writes for a CPU."""
    own = seed(tmp_path, HEAD + GATED)[0].partition(MARK)[2]
    assert own.count("tl.sigmoid(") == 2 and len(re.findall(r"torch\.empty\w*\(\(n, c, h", own)) == 1, own


@pytest.mark.parametrize("scaled", ["x / 0.8", "x * a"])
def test_a_softmax_with_a_temperature_is_in_one_pass(tmp_path, scaled):
    """TorchInductor takes the maximum ahead of the scale, and then three passes."""
    text = f"def reference(x, a):\n    return torch.softmax({scaled}, -1) + a\n\n"
    text += "def get_inputs(rows=4096, cols=50000):\n    return [torch.randn(rows, cols), torch.randn(1)]\n"
    own = seed(tmp_path, HEAD + text)[0].partition(MARK)[2]
    assert own.count("for r0_offset in") == 2 and "online_along(" in own, own


@pytest.mark.slow
def test_a_group_norm_has_no_scale_and_shift_of_each_element(tmp_path):
    """PyTorch writes both, of each channel, for a CPU, which the stand-in of a GPU is made of."""
    norm = "torch.nn.functional.group_norm(x, 16, w, b).clamp(-2, 2)"
    inputs = "n=1024, c=8192):\n    return [torch.randn(n, c), torch.randn(c), torch.randn(c)]\n"
    made = seed(tmp_path, HEAD + f"\ndef reference(x, w, b):\n    return {norm}\n\ndef get_inputs({inputs}")[0]
    own = made.partition(MARK)[2]
    assert re.findall(r"torch\.empty\(\((.*?)\),", own) == ["n, 16", "n, 16", "n, c"], own
    assert "var_mean_kernel[" in own


@pytest.mark.parametrize("shape", ["rows=4096, cols=20000", "rows=64, cols=96"])
def test_sums_over_rows_that_are_long_or_few_have_a_kernel_of_their_own(tmp_path, shape):
    """A program has no registers for the sums of long rows, and few rows lie in a cache when they are read again."""
    text = f"def reference(x):\n    y = x.softmax(-1)\n    return y, y.sum(0)\n\ndef get_inputs({shape}):\n"
    made = seed(tmp_path, HEAD + text + "    return [torch.randn(rows, cols)]\n")[0]
    assert "PARTS" not in made and made.count("_kernel[") >= 2, made


@pytest.mark.slow
def test_places_that_a_convolution_leaves_are_counted_without_divisions(tmp_path):
    norm = "F.group_norm(F.conv2d(x, w).sigmoid(), 4)"
    inputs = "n=512, h=120, v=90):\n    return [torch.randn(n, 8, h, v), torch.randn(32, 8, 3, 3)]\n"
    text = f"import torch.nn.functional as F\n\ndef reference(x, w):\n    return {norm}\n\ndef get_inputs({inputs}"
    own = seed(tmp_path, HEAD + text)[0].partition(MARK)[2]
    assert own.count("tl.sigmoid(") == 2 and "divide_down" not in own and not re.search(r"[%/] \(?-2", own), own


@pytest.mark.slow
def test_places_of_a_volume_are_counted_without_divisions(tmp_path):
    """The number of a place was made of planes, rows and columns, each by divisions, though it only counts up."""
    norm = "F.group_norm(F.silu(F.conv_transpose3d(x, w, b, stride=2, padding=1)), 4)"
    inputs = "n=128, d=16, h=32, v=36):\n    shapes = (n, 3, d, h, v), (3, 16, 3, 3, 3), (16,)\n"
    text = f"import torch.nn.functional as F\n\ndef reference(x, w, b):\n    return {norm}\n\ndef get_inputs({inputs}"
    own = seed(tmp_path, HEAD + text + "    return [torch.randn(s) for s in shapes]\n")[0].partition(MARK)[2]
    loads = re.findall(r"tl\.load\(buf0_ptr \+ (.*)", own)
    assert len(loads) == 2 and not re.search(r"divide_down|r0_\d (//|%)|index (//|%)", " ".join(loads)), own


@pytest.mark.slow
def test_a_softmax_of_channels_that_lie_last_is_one_kernel(tmp_path):
    """Inductor compared the sizes of its tiles as symbols, and took the same number of places for two."""
    text = """
import torch.nn.functional as F

def reference(x, w):
    return torch.sigmoid(torch.softmax(F.conv2d(x, w), 1) * 2)

def get_inputs(n=64, h=70, v=60):
    return [torch.randn(n, 32, h, v), torch.randn(64, 32, 3, 3)]
"""
    own = seed(tmp_path, HEAD + text)[0].partition(MARK)[2]
    assert "torch.ops.aten.convolution(" in own
    assert len(re.findall(r"def \w*softmax\w*\(", own)) == own.count("tl.load(buf2_ptr") == 1, own


@pytest.mark.slow
def test_an_analysis_of_tiles_that_ends_in_an_assertion_is_done_without(tmp_path, monkeypatch):
    """torch 2.11 asserts sizes of loops that were fused into one, which 2.13 does not."""
    import torch._inductor.tiling_utils as tiling_utils

    asked = []

    def fail(*args, **kwargs):
        asked.append(args)
        raise AssertionError

    monkeypatch.setattr(tiling_utils, "get_pw_red_splits", fail)
    assert "_kernel[" in seed(tmp_path, HEAD + GATED)[0] and asked


JOINED = """
def reference(x, cos, sin, q):
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin, torch.stack((q & 15, q >> 4), -1).flatten(-2).half() - 8

def get_inputs(t=9, d=20):
    q = torch.randint(0, 256, (t, d), dtype=torch.uint8)
    return [torch.randn(t, 2 * d), torch.randn(t, 2 * d), torch.randn(t, 2 * d), q]
"""


def test_tensors_are_put_one_after_another_where_they_are_computed(tmp_path):
    own = seed(tmp_path, HEAD + JOINED)[0].partition(MARK)[2]
    assert "aten.cat" not in own and own.count("_kernel[") == own.count("torch.empty(") == 2


WHOLE = """
def reference(x, y):
    return ((x - y) ** 2).mean()

def get_inputs({sizes}):
    return [torch.randn({names}), torch.randn({names})]
"""


@pytest.mark.parametrize("sizes, part", [("n=8192, d=4096", "+ d * xindex)"), ("n=7, d=4000000", "xindex * ((")])
def test_a_sum_of_everything_takes_no_remainders(tmp_path, sizes, part):
    own = seed(tmp_path, HEAD + WHOLE.format(sizes=sizes, names="n, d"))[0].partition(MARK)[2]
    assert part in own and "%" not in own


def test_only_indices_that_are_divided_are_matched():
    """TorchInductor takes minutes to find that a window of 49 elements has none."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv

    from kernelsearch.worker.launcher.splits import _match_divided

    i, n, m = sympy.symbols("i n m", integer=True, positive=True)
    match = _match_divided(lambda index, *given: index)
    assert match(n * FloorDiv(i, m), i, n, 2) is not None
    assert match(n * i + FloorDiv(n, m), i, n, 2) is None


MIXED = """
PRECISION = "ieee"

def reference(x, w, bias, r):
    y = F.gelu(F.linear(x, w, bias)) * 0.5 + r
    q, k, v = (y[:, 20 * i : 20 * i + 20].reshape(2, -1, 2, 10).transpose(1, 2) for i in range(3))
    return y, F.scaled_dot_product_attention(q, k, v, is_causal=True).sigmoid()

def get_inputs(m=96, k=48):
    shapes = (2 * m, k), (60, k), (60,), (2 * m, 60)  # no input has m itself as a size
    return [torch.randn(s, dtype=torch.bfloat16) for s in shapes]
"""


@pytest.mark.slow
def test_products_are_kernels_with_their_epilogue_where_they_may_be_faster(run, tmp_path):
    """That is with tensor cores; else they stay calls of torch's, which are those that a GPU has."""
    text = "import torch, torch.nn.functional as F\n" + MIXED
    (tmp_path / "plain.py").write_text(text)
    assert run("seed", "plain.py", "-o", "made.py").code == 0
    made = (tmp_path / "made.py").read_text()
    own = made.partition(MARK)[2]
    assert re.search(r"addmm\w*_gelu\w*_kernel\[", own) and "attention_kernel[" in own and "tl.erf(" in own
    assert not [word for word in ("torch.mm(", "torch.addmm(", "attend(", "tl.reshape(", "tl.trans(") if word in own]
    judged = run("verify", "made.py")
    assert judged.code == 0, judged.out + judged.err
    exact = seed(tmp_path, text.replace("bfloat16", "float32"))[0].partition(MARK)[2]
    assert "torch.mm(" in exact and "(attend(" in exact and "for_cpu" not in exact and SLOW_PRODUCTS in exact
    tf32 = seed(tmp_path, text.replace("bfloat16", "float32").replace('"ieee"', '"tf32"'))[0].partition(MARK)[2]
    assert "input_precision='tf32'" in tf32 and "'ieee'" not in tf32 and "torch.mm(" not in tf32
    assert SLOW_PRODUCTS not in made + tf32


def test_a_search_without_a_first_kernel_ends_with_one_line_that_says_what_to_do(run, tmp_path):
    (tmp_path / "plain.py").write_text(f"{HEAD}\ndef reference(x):\n    return torch.linalg.svd(x)[1]\n\n{ROWS}")
    with scripted_server.Server(scripted_server.obedient) as server:
        done = run("optimize", "plain.py", "--target", "h100", "--model", f"openai:{server.url}#m")
        assert not server.requests
    assert done.code == 2 and not done.out and "Traceback" not in done.err
    line = done.err.strip().split("\n")[-1]
    assert "it is library calls only" in line and "add one, and the function that launches it" in line
    assert sorted(p.name for p in tmp_path.glob("*.py")) == ["plain.py"]


def test_no_file_is_overwritten(run, tmp_path):
    (tmp_path / "plain.py").write_text(HEAD + TASKS["a scan"])
    assert run("seed", "plain.py", "-o", "plain.py").code == 2
    assert (tmp_path / "plain.py").read_text() == HEAD + TASKS["a scan"]


@pytest.mark.slow
def test_a_number_the_length_of_a_tensor_a_size_of_1_and_2_to_the_31_elements_may_be_sizes(run, tmp_path):
    text = """import torch

def reference(x, n):
    return torch.softmax(x[:, :n].float(), -1) * len(x)

def get_inputs(rows=64, cols=300, n=200):
    return [torch.randn(rows, cols, dtype=torch.bfloat16), n]

SHAPES = [dict(rows=64, cols=300, n=200), dict(rows=1, cols=4096, n=1000), dict(rows=9000, cols=300000, n=64)]
TEST_SHAPES = [dict(rows=3, cols=100, n=33), dict(rows=1, cols=64, n=64)]
"""
    (tmp_path / "plain.py").write_text(text)
    assert run("seed", "plain.py", "-o", "made.py").code == 0
    assert "to(tl.int64)" in (tmp_path / "made.py").read_text()
    assert run("verify", "made.py").code == 0
    heads = "def reference(x):\n    return x.softmax(-1)\n\ndef get_inputs(rows=64, hidden=512):\n"
    sizes = "TEST_SHAPES = [dict(rows=3, hidden=264)]\nSHAPES = [dict(rows=64, hidden=512), dict(rows=9, hidden=800)]\n"
    (tmp_path / "heads.py").write_text(f"import torch\n\n{heads}    return [torch.randn(rows, hidden // 8)]\n\n{sizes}")
    assert run("seed", "heads.py", "-o", "divided.py").code == 0
