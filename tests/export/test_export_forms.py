"""Other forms of task: inputs changed in place, several outputs, an autotuned seed."""

import importlib
import sys
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest
from gated_record import imported, run_own_tests, run_python, write_seed_run

from kernelsearch.core.types import Evidence
from kernelsearch.export import ExportError
from kernelsearch.export.examine import examine
from kernelsearch.export.package import ExportOptions, export
from kernelsearch.export.texts import list_requirements
from kernelsearch.kernel.source import Kernel

HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"

IN_PLACE = (
    HEAD
    + """
MUTATES = ("x",)

def reference(x, bias, scale=1.0):
    x.add_(bias * scale)

def get_inputs(rows=8, cols=64):
    return [torch.randn(rows, cols), torch.randn(cols), 0.5]

SHAPES = [dict(rows=64, cols=128)]
TEST_SHAPES = [dict(rows=5, cols=33)]

@triton.jit
def add_kernel(x_ptr, b_ptr, scale, n_cols, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    at = x_ptr + tl.program_id(0) * n_cols + cols
    x = tl.load(at, mask=cols < n_cols)
    tl.store(at, x + tl.load(b_ptr + cols, mask=cols < n_cols) * scale, mask=cols < n_cols)

def in_place(x, bias, scale=1.0):
    add_kernel[(x.shape[0],)](x, bias, scale, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=1)
"""
)

GIVEN_BACK = (
    IN_PLACE.replace("    x.add_(bias * scale)", "    return (x.add_(bias * scale),)")
    .replace("num_warps=1)\n", "num_warps=1)\n    return (x,)\n")
    .replace("def in_place", "def given_back")
)

BOTH = (
    IN_PLACE.replace("    x.add_(bias * scale)", "    return x.add_(bias * scale) * 2.0")
    .replace("def add_kernel(x_ptr,", "def add_kernel(x_ptr, y_ptr,")
    .replace(
        "    tl.store(at, x + tl.load(b_ptr + cols, mask=cols < n_cols) * scale, mask=cols < n_cols)",
        """\
    x += tl.load(b_ptr + cols, mask=cols < n_cols) * scale
    tl.store(at, x, mask=cols < n_cols)
    tl.store(y_ptr + tl.program_id(0) * n_cols + cols, x * 2.0, mask=cols < n_cols)""",
    )
    .replace("](x, bias", "](x, y, bias")
    .replace("    add_kernel[", "    y = torch.empty_like(x)\n    add_kernel[")
    .replace("num_warps=1)\n", "num_warps=1)\n    return y\n")
    .replace("torch.randn(cols), 0.5]", "torch.randn(cols)]")
    .replace("def in_place", "def both")
)
"""Changes an input and returns a tensor of its own; get_inputs leaves out a number that is a default."""

CAST = (
    HEAD
    + """
def reference(x, dtype, mask):
    return (x * 2).to(dtype)

def get_inputs(rows=8, dtype=torch.float16):
    return [torch.randn(rows, 64), dtype, None]

SHAPES = [dict(rows=64)]
TEST_SHAPES = [dict(rows=5), dict(rows=5, dtype=torch.bfloat16)]

@triton.jit
def cast_kernel(x_ptr, y_ptr):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(y_ptr + at, (tl.load(x_ptr + at) * 2).to(y_ptr.dtype.element_ty))

def cast(x, dtype, mask):
    y = torch.empty_like(x, dtype=dtype)
    cast_kernel[(x.shape[0],)](x, y, num_warps=1)
    return y
"""
)

OWN = (
    CAST.replace("def reference(x, dtype, mask):\n    return (x * 2).to(dtype)\n", "").replace("def cast(", "def own(")
    + "\nimport kernelsearch\n\nreference = kernelsearch.kernel_as_reference(own)\nLAUNCHER = 'own'\n"
)
"""A kernel that is its own reference."""

TWO_OUT = (
    HEAD
    + """
def reference(x, bias=None):
    y = x if bias is None else x + bias
    return y.sum(-1), y.amax(-1)

def get_inputs(rows=8, cols=64):
    return [torch.randn(rows, cols), torch.randn(cols)]

SHAPES = [dict(rows=64, cols=128)]
TEST_SHAPES = [dict(rows=5, cols=33)]

@triton.autotune(configs=[triton.Config({"ROWS": 1}, num_warps=1), triton.Config({"ROWS": 2}, num_warps=2)],
                 key=["n_cols"])
@triton.jit
def two_kernel(x_ptr, b_ptr, s_ptr, m_ptr, n_rows, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)
    x = x + tl.load(b_ptr + cols, mask=cols < n_cols, other=0.0)[None, :]
    tl.store(s_ptr + rows, tl.sum(tl.where(mask, x, 0.0), axis=1), mask=rows < n_rows)
    tl.store(m_ptr + rows, tl.max(tl.where(mask, x, float("-inf")), axis=1), mask=rows < n_rows)

def two_out(x, bias=None):
    s = torch.empty(x.shape[0], device=x.device)
    m = torch.empty_like(s)
    grid = lambda meta: (triton.cdiv(x.shape[0], meta["ROWS"]),)
    two_kernel[grid](x, bias, s, m, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return s, m
"""
)

MODULE = (
    HEAD
    + """
batch = 64

class Model(nn.Module):
    def __init__(self, width, factor=2.0):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
        self.register_buffer("shift", torch.randn(width))
        self.factor = factor

    def forward(self, x):
        return x * self.scale * self.factor + self.shift

def get_inputs(features=128):
    return [torch.randn(batch, features)]

def get_init_inputs(features=128):
    return [features]

TEST_SHAPES = [dict(batch=5, features=33)]

@triton.jit
def scale_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, n_cols, factor, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n_cols
    mask = cols < n_cols
    y = tl.load(x_ptr + row + cols, mask=mask) * tl.load(scale_ptr + cols, mask=mask) * factor
    tl.store(y_ptr + row + cols, y + tl.load(shift_ptr + cols, mask=mask), mask=mask)

class ModelNew(nn.Module):
    def __init__(self, width, factor=2.0):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
        self.register_buffer("shift", torch.randn(width))
        self.factor = factor

    def forward(self, x):
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        scale_kernel[(x.shape[0],)](x, self.scale, self.shift, y, x.shape[1], self.factor, BLOCK=block, num_warps=1)
        return y
"""
)

TEXTS = {"in_place": IN_PLACE, "given_back": GIVEN_BACK, "both": BOTH, "cast": CAST, "own": OWN, "two_out": TWO_OUT}


def exported(folder, task, text, **options):
    """An export of a task whose only kernel is its seed, estimated."""
    path = folder / f"{task}.py"
    path.write_text(text)
    facts = examine(path).facts
    write_seed_run(folder / f"{task}.db", facts, tuple(10.0 for _ in facts.shapes), Evidence.ESTIMATED, "h100")
    whole = {"tasks": (task,), "out": str(folder / f"out_{task}"), "name": f"form-{task.replace('_', '-')}",
             "dbs": (str(folder / f"{task}.db"),), "evidence": Evidence.ESTIMATED, "force": True}  # fmt: skip
    return export(ExportOptions(**{**whole, **options}))


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forms")
    return {name: exported(folder, name, text) for name, text in TEXTS.items()}


def ran(code, *folders, **environment):
    done = run_python(code, *folders, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_kernels_of_every_form_compute_the_reference_in_the_interpreter(packages):
    code = """
import copy, importlib, torch
from importlib import import_module
torch.cuda.current_device = lambda: None
torch.cuda.device = lambda device: __import__("contextlib").nullcontext()
for package in ("form_in_place", "form_given_back", "form_both", "form_cast", "form_own", "form_two_out"):
    dispatch = import_module(package)._dispatch
    (task,) = dispatch.TASKS.values()
    table = next(iter(task.tables.values())).entries
    task.choose = lambda inputs: task.take(table[0])
    for case in task.cases:
        inputs = task.inputs(case, seed=1)
        mine, theirs = copy.deepcopy(inputs), copy.deepcopy(inputs)
        with torch.no_grad():
            got, want = task.public(*mine, fallback=False), task.reference(*theirs)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(*([x for x in xs if isinstance(x, torch.Tensor)] for xs in (mine, theirs)))
    print(package, "kernels ran")
"""
    out = ran(code, *(p.out for p in packages.values()), TRITON_INTERPRET="1")
    assert out.count("kernels ran") == len(TEXTS)


@pytest.mark.slow
def test_operators_of_every_form_are_sound_on_the_cpu(packages):
    code = """
import torch
from importlib import import_module
for package in ("form_in_place", "form_given_back", "form_both", "form_cast", "form_two_out"):
    dispatch = import_module(package)._dispatch
    (task,) = dispatch.TASKS.values()
    inputs = task.inputs(task.cases[-1], seed=1)
    torch.library.opcheck(task.operator, (*inputs, True))
    compiled = torch.compile(lambda *x: task.public(*x), fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        mine, theirs = [x.clone() if hasattr(x, "clone") else x for x in inputs], list(inputs)
        torch.testing.assert_close(compiled(*mine), task.reference(*theirs))
    torch.testing.assert_close(*([x for x in xs if isinstance(x, torch.Tensor)] for xs in (mine, theirs)))
    print(package, "sound")
"""
    assert (
        ran(code, *(p.out for p in packages.values())).count("sound") == len(TEXTS) - 1
    )  # of "own" nothing runs on a CPU


def test_what_only_changes_its_inputs_is_not_shown_with_a_result(packages):
    assert "\nform_in_place.in_place(x, bias, scale)\n" in (packages["in_place"].out / "README.md").read_text()
    assert "\ny0, y1 = form_two_out.two_out(x, bias)\n" in (packages["two_out"].out / "README.md").read_text()


@pytest.mark.parametrize(("name", "returns"), [("given_back", "tuple[Tensor]"), ("both", "Tensor")])
def test_what_is_changed_and_given_back_is_one_result(packages, name, returns):
    """By its own tests, which count what a call returns and what it changed."""
    out = packages[name].out
    assert f"-> {returns}:" in (out / f"form_{name}" / f"_{name}" / "__init__.py").read_text()
    done = run_own_tests(out, f"form_{name}")
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_seeded_file_gives_a_package_with_the_users_own_names(tmp_path):
    """`launch_seed` and NAME_seeded are nobody's words but ours."""
    launcher = "Model = None\nreference = sum_and_top\nLAUNCHER = 'launch_seed'\n"
    named = TWO_OUT.replace("def reference", "def sum_and_top").replace("def two_out", "def launch_seed") + launcher
    plain = TWO_OUT.replace("def two_out", "def launch_seed")
    documented = named.replace(
        "bias=None):\n", 'bias=None):\n    """The sum and the "top" of rows.\n\n    More."""\n', 1
    )
    public = {"file": (documented, "sum_and_top"), "pair": (plain, "pair")}
    for task, (text, name) in public.items():
        done = exported(tmp_path, f"{task}_seeded", text, name=f"own-{name}", tasks=(task,))
        readme = (done.out / "README.md").read_text()
        assert f".{name}(" in readme and "_seeded" not in readme.replace(f"{task}_seeded.py", "")
        assert "launch_seed" not in readme
        package = imported(done.out, f"own_{name.lower()}")
        assert hasattr(package, name)
        assert package.__doc__.startswith('The sum and the "top" of rows.\n\n' if text == documented else name)


def test_a_module_is_refused_because_a_compiled_model_takes_its_kernels(tmp_path):
    (tmp_path / "scaled.py").write_text(MODULE)
    with pytest.raises(ExportError, match=r"its launcher is a module: `kernelsearch collect` takes the model"):
        examine(tmp_path / "scaled.py")


def test_a_package_says_what_it_computes(tmp_path):
    """By the reference's docstring, else the file's, else what the reference returns, if that is one expression."""
    short = TWO_OUT.replace(
        "    y = x if bias is None else x + bias\n    return y.sum(-1), y", "    return x.sum(-1), x"
    )
    texts = {
        TWO_OUT: "",
        '"""Sums\nand tops.\n\nMore."""\n' + TWO_OUT: "Sums and tops.",
        short: "`(x.sum(-1), x.amax(-1))`",
    }
    for text, said in texts.items():
        (tmp_path / "summed.py").write_text(text)
        assert examine(tmp_path / "summed.py").summary == said


NAMED = (
    TWO_OUT
    + """

def rival(x, scale):
    from rival_kernels import two_out  # an optional package

    return two_out(x, scale)


BASELINES = {"rival": rival}
"""
)


def test_the_benchmark_runs_the_tasks_own_baselines_where_they_are_installed(tmp_path, monkeypatch):
    done = exported(tmp_path, "two_out", NAMED, name="rivalled", force=False)
    assert "rivalled/_two_out/baselines.py" in done.files and "`rival`" in (done.out / "README.md").read_text()
    package = imported(done.out, "rivalled")
    benchmark, task = importlib.import_module("rivalled.benchmark"), package._dispatch.TASKS["two_out"]
    monkeypatch.setattr(benchmark.torch, "compile", lambda call, **options: call)
    monkeypatch.setattr(benchmark.torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(task, "seed", None)  # without a GPU its launch fails as the active driver pleases
    inputs = task.inputs(task.cases[-1])
    calls, absent = benchmark.prepare_contestants(task, inputs)
    assert "rival" not in calls and absent["rival"] == "rival needs rival_kernels, which is not installed here"
    claim = {"vs_fastest": {"fastest": "rival", "ratio": 2.0, "low": 1.9, "high": 2.1}}
    shape = {"baselines": {}, "absent": absent, "control": {"low": 1.0, "high": 1.0}}
    found = benchmark.judge_claim(shape, claim)
    assert (found["verdict"], found["why"], found["claim"]) == ("not checked", absent["rival"], claim["vs_fastest"])
    (tmp_path / "rival_kernels.py").write_text("def two_out(x, scale): return 'rival ran'\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    calls, absent = benchmark.prepare_contestants(task, inputs)
    assert calls["rival"](*inputs) == "rival ran" and "rival" not in absent
    refuse = Mock(side_effect=AssertionError("rows of 257 are not divisible by 4\n"))
    with patch.object(sys.modules["rival_kernels"], "two_out", refuse):
        _, refused = benchmark.prepare_contestants(task, inputs)
    assert refused["rival"] == "rival does not run here: AssertionError: rows of 257 are not divisible by 4"
    own = {"time_us": 9.0, "ratio": 2.0, "low": 1.95, "high": 2.05}
    assert (
        benchmark.judge_claim({**shape, "absent": absent, "baselines": {"rival": own}}, claim)["verdict"]
        == "reproduced"
    )


def test_baselines_that_cannot_be_shipped_do_not_keep_the_kernel_back(tmp_path):
    text = NAMED.replace("BASELINES = {", "import numpy\n\nBASELINES = {'x': numpy.sum, ")
    done = exported(tmp_path, "two_out", text, name="unrivalled")
    text = (done.out / "unrivalled/_two_out/baselines.py").read_text()
    assert "BASELINES = {}" in text and "imports numpy" in text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return s, m\n", "return {'s': s}\n", "must return tensors of its own"),
        ("[torch.randn(rows, cols),", "[[rows, cols],", "x is a list"),
        ("(configs=[", "(configs=[triton.Config({'ROWS': 4}, pre_hook=print), ", "has a pre_hook"),
    ],
)
def test_forms_that_cannot_be_shipped_say_why(tmp_path, old, new, said):
    text = TWO_OUT.replace(old, new)
    if "[[" in new:
        text = text.replace("y = x if", "x = torch.ones(x); y = x if").replace(
            "    s = torch", "    x = torch.ones(x)\n    s = torch"
        )
    (tmp_path / "two_out.py").write_text(text)
    with pytest.raises(ExportError) as refused:
        examine(tmp_path / "two_out.py")
    assert said in str(refused.value) and "two_out.py cannot be shipped" in str(refused.value)


def test_block_pointers_keep_a_package_to_the_tritons_that_have_them(packages):
    def parts(kernel):
        return [SimpleNamespace(kernels={"d": kernel})]

    kernel = Kernel.parse(IN_PLACE[IN_PLACE.index("@triton.jit") : IN_PLACE.index("\ndef in_place")])
    assert list_requirements(parts(kernel)) == ("torch>=2.11", "triton>=3.6")
    assert '"triton>=3.6"]' in (packages["in_place"].out / "pyproject.toml").read_text()
    pointers = Kernel.parse(kernel.render().replace("tl.arange(0, BLOCK)", "tl.make_block_ptr(0, BLOCK)"))
    assert list_requirements(parts(pointers)) == ("torch>=2.11", "triton>=3.6,<3.9")
