"""A package covers more than the searched shapes: where the task's own kernel is judged right at export."""

import ast
import tempfile

import pytest
import torch
from click.testing import CliRunner
from gated_record import imported, run_python, write_seed_run
from test_export_forms import HEAD
from test_export_package import fake

from kernelsearch.cli.export import export as command
from kernelsearch.core.types import Evidence, Verdict, Word
from kernelsearch.export.examine import examine
from kernelsearch.trial import own_sizes

HALVED = (
    HEAD
    + """
def reference(x):
    return x / 2

def get_inputs(rows=8, cols=64, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]

SHAPES = [dict(rows=64, cols=128)]
TEST_SHAPES = [dict(rows=6, cols=36)]

@triton.jit
def halve_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n_cols + cols
    x = tl.load(x_ptr + at, mask=cols < n_cols).to(tl.float32)
    tl.store(y_ptr + at, {result}, mask=cols < n_cols)

def {name}(x):
    y = torch.empty_like(x)
    halve_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The command's own folders are where the kept workers may read."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def exported(folder, name, result="x / 2", task=HALVED, **more):
    """(What the command says, the package's task) for a kernel that computes `result`."""
    text = task.replace("{name}", name).replace("{result}", result)
    for old, new in more.items():
        text = text.replace({"launch": "    y = torch.empty_like(x)"}[old], new)
    path = folder / f"{name}.py"
    path.write_text(text)
    facts = examine(path).facts
    write_seed_run(folder / "found.db", facts, (10.0,), Evidence.ESTIMATED, "h100")
    options = f"--task {name} --out {folder / 'out'} --name of-{name.replace('_', '-')} --db {folder / 'found.db'}"
    done = CliRunner().invoke(command, [*options.split(), "--evidence", "estimated"])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output, imported(folder / "out", f"of_{name}")._dispatch, folder / "out"


def chosen(dispatch, *shape, dtype=torch.float32):
    (task,) = dispatch.TASKS.values()
    dispatch._NAMES[torch.device("cuda", 0)] = "h100"
    return task.choose((fake(*shape, dtype=dtype),))


def test_other_sizes_and_dtypes_run_the_tasks_own_kernel_where_it_is_right(tmp_path):
    said, dispatch, out = exported(tmp_path, "halved")
    assert "halved: the task's own kernel also runs for x: float32, 1..64 x 1..128, contiguous\n" in said
    for dtype in ("float16", "bfloat16"):
        line = f"x: {dtype}, 1..6 x 1..36, contiguous"
        assert line in said and line in (out / "README.md").read_text()
    assert chosen(dispatch, 20, 50).entry.label == "rows=64 cols=128 dtype=float32"
    for shape, dtype in (((1, 128), "float32"), ((64, 1), "float32"), ((6, 36), "float16"), ((1, 7), "bfloat16")):
        choice = chosen(dispatch, *shape, dtype=getattr(torch, dtype))
        assert choice.entry is not None and choice.entry.kernel == "of the task itself", (shape, dtype, choice.reason)
    explained = dispatch.explain("halved", fake(1, 128))
    assert explained.startswith("kernel of the task itself with ") and explained.endswith(
        ", which was judged in a wider range"
    )
    for shape, dtype in (((65, 128), "float32"), ((64, 128), "float16"), ((6, 36), "float64")):
        assert chosen(dispatch, *shape, dtype=getattr(torch, dtype)).entry is None
    code = """
import contextlib, torch
torch.cuda.current_device = lambda: None
torch.cuda.device = lambda device: contextlib.nullcontext()
import of_halved
dispatch, task = of_halved._dispatch, of_halved._dispatch.TASKS["halved"]
dispatch.device_name = lambda device: "h100"
task.choose = lambda inputs: dispatch.Choice(dispatch.Entry("", "", task.seed[1]), task.seed[0])
x = torch.randn(1, 7, dtype=torch.bfloat16)
torch.testing.assert_close(task.public(x, fallback=False), x / 2)
print("ran")
"""
    ran = run_python(code, out, TRITON_INTERPRET="1")
    assert ran.stdout == "ran\n", ran.stderr[-2000:]


@pytest.mark.parametrize(
    ("name", "result", "more", "covered", "not_covered"),
    [
        (  # wrong where a row has an odd number of elements
            "even_only", "tl.where((n_cols % 2 == 0) | (n_cols == 1), x / 2, x)", {},
            [((1, 128), torch.float32), ((20, 50), torch.float32)],
            [((6, 35), torch.float32), ((20, 51), torch.float32), ((6, 36), torch.float16)],
        ),
        (  # the launcher takes float32 alone
            "one_dtype", "x / 2", {"launch": "    assert x.dtype == torch.float32\n    y = torch.empty_like(x)"},
            [((1, 1), torch.float32)], [((6, 36), torch.float16), ((6, 36), torch.bfloat16)],
        ),
        (  # wrong in 16 bits: a constant that only float32 resolves away
            "half_wrong", "x / 2 + (0.25 if y_ptr.dtype.element_ty == tl.float16 else 0.0)", {},
            [((1, 1), torch.float32), ((6, 36), torch.bfloat16)], [((6, 36), torch.float16)],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_or_refused_stays_outside(tmp_path, name, result, more, covered, not_covered):
    said, dispatch, _ = exported(tmp_path, name, result, **more)
    faults = [line for line in said.splitlines() if "own kernel is wrong at rows" in line]
    assert ["cols=119" in f and "add it to TEST_SHAPES" in f for f in faults] == [True] * (name == "even_only")
    for shape, dtype in covered:
        choice = chosen(dispatch, *shape, dtype=dtype)
        assert choice.entry is not None, (shape, dtype, choice.reason)
    for shape, dtype in not_covered:
        assert chosen(dispatch, *shape, dtype=dtype).entry is None, (shape, dtype)


TAIL = """
def reference(x):
    return x / 2

def get_inputs(n=64):
    return [torch.randn(n, device="cuda")]  # as many files have it: a machine without a GPU exports them too

SHAPES = [dict(n=4096)]
TEST_SHAPES = [dict(n=64), dict(n={result})]

@triton.jit
def halve_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) / 2, mask=at < n)

def {name}(x):
    y = torch.zeros_like(x)
    halve_kernel[(max(1, x.shape[0] // 64),)](x, y, x.shape[0], BLOCK=64)
    return y
"""


@pytest.mark.parametrize("tested, free", [(192, 64), (33, 33)])
def test_a_kernel_that_forgets_its_tail_covers_multiples_alone(tmp_path, monkeypatch, tested, free):
    """Sizes between those of the shapes were claimed, and came back with zeros at their ends."""

    def judge(path, config, quick, tell):  # as the interpreter does, in no time
        sizes = [shape["n"] for shape in ast.literal_eval(path.read_text().rpartition("TEST_SHAPES = ")[2])]
        right = {f"test:{i}": n <= 64 or n % 64 == 0 for i, n in enumerate(sizes)}
        return {
            key: Verdict(Word.ACCEPT if is_right else Word.WRONG, "judge", "far off") for key, is_right in right.items()
        }

    monkeypatch.setattr(own_sizes, "judge_own_sizes", judge)
    said, dispatch, out = exported(tmp_path, f"tail_{tested}", str(tested), HEAD + TAIL)
    assert "x axis 0: multiples of 64 above 63" in said
    assert "`x axis 0` multiples of 64 above 63" in (out / "README.md").read_text()
    for size in (64, 128, 4032, free):
        assert chosen(dispatch, size).entry is not None, size
    for size in (65, 100, 4000):
        choice = chosen(dispatch, size)
        assert choice.entry is None and choice.reason.cure == "pad it to a multiple of 64"
