"""Inputs too large for this machine: none is made where its values are not needed, and one that must be is refused."""

import os

import pytest
import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.judging import candidate_launch, case_choice, launch_counts, planning
from kernelsearch.worker.launcher import opening, standin, trace
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.roles import judge

H100 = target_by_name("h100")
FILE = """import torch
import triton
import triton.language as tl


class Model(torch.nn.Module):
    def forward(self, x):
        return x.neg()


@triton.jit
def neg_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, -tl.load(x + at, at < n), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        neg_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_counted_shape_of_kernelbench_takes_no_memory_for_its_values(tmp_path):
    path = tmp_path / "large.py"
    path.write_text(f"{FILE}\nROWS = {2**18}\ndef get_inputs():\n    return [torch.rand(ROWS, 1024)]\n")
    before = resident()
    case = candidate_launch.open_case(str(path), "timed:0", H100)
    with standin.poison_empty(most=trace.REAL_ELEMENTS):
        out = torch.empty_like(case.inputs[0])
        assert torch.empty(8).isnan().all()
    assert out.numel() == 2**28 and resident() - before < 2**28


def test_sizes_without_a_name_that_are_too_large_are_refused_at_once(tmp_path):
    path = tmp_path / "literal.py"
    path.write_text(f"{FILE}\ndef get_inputs():\n    return [torch.rand(4096, 8192)]\n")
    with pytest.raises(TaskError, match="33554432 elements, too many without a GPU: use names for the sizes"):
        judge._open(jobs.OpenTask(str(path), H100, False))


LARGE = f"""{FILE.partition("class ModelNew")[0].replace("class Model(", "class Other(")}
def launch(x):
    y = torch.empty_like(x)
    neg_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def get_inputs(rows=8192, cols=2080):
    return [torch.randn(rows, cols)]


def reference(x):
    return"""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("x * torch.rsqrtt(x)", r"reference fails at rows=8192 cols=2080: AttributeError: .*'rsqrtt' \(line 29\)"),
        ("x * x.mean(-1)", r"reference fails at rows=8192 cols=2080: RuntimeError: .*8192.*\(line 29\)"),
        ("x * eps", r"reference fails at .*NameError: name 'eps' is not defined \(line 29\)"),
        ("x.view(8192, 2080)", r"takes no smaller sizes: add TEST_SHAPES that it takes$"),
    ],
)
def test_a_faulty_reference_is_not_taken_for_sizes_that_cannot_be_varied(tmp_path, wrong, said):
    path = tmp_path / "large.py"
    path.write_text(f"{LARGE} {wrong}\n")
    with pytest.raises(TaskError, match=said):
        judge._open(jobs.OpenTask(str(path), H100, False))


def test_a_reference_that_reads_values_is_judged_at_smaller_sizes(tmp_path):
    path = tmp_path / "reads.py"
    path.write_text(f"{LARGE} x * x.sum().item()\n")
    facts = judge._open(jobs.OpenTask(str(path), H100, False))
    assert all(s.params["rows"] < 8192 for s in facts.test_shapes)


@pytest.mark.parametrize(
    ("body", "long"), [("(x @ x.t()).sum(-1, keepdim=True) * x", False), ("x.view(-1, 3, x.shape[1]).view(-1)", None)]
)
def test_no_made_shape_is_one_that_the_reference_refuses_or_for_which_it_makes_large_results(tmp_path, body, long):
    """Scores of 8192 rows took the judge a minute in float64; a view that fails ended the judging."""
    path = tmp_path / "large.py"
    path.write_text(f"{LARGE.replace('2080', '64')} {body}\nTEST_SHAPES = [dict(rows=9, cols=5)]\n")
    task = planning.add_long_shapes(opening.open_task(path, H100))
    size = case_choice.LargestResult()
    if long is None:
        with pytest.raises(TaskError, match="the reference fails at rows=7679 cols=5"):
            case_choice.try_reference(task, "odd:0", H100, size)
    else:
        case_choice.try_reference(task, "long:0", H100, size)
        assert size.elements == 8192**2 > judge.MOST_ELEMENTS


def test_whole_numbers_are_made_without_the_floats_beside_them(tmp_path):
    """Offsets depend on the largest index: 4.8 GB beside it, which an operation would fill, are not made."""
    inputs = "[torch.randn(600_000, 4096, dtype=torch.bfloat16) * 0.02, torch.randperm(600_000)]"
    path = tmp_path / "rows.py"
    path.write_text(f"{LARGE} x.neg()\n\n\ndef get_inputs():\n    return {inputs}\n".replace("(x):", "(x, at):"))
    before = resident()
    (whole,) = launch_counts._whole_numbers(str(path), "timed:0", H100).values()
    assert whole.max() == 599_999 and whole[:9].tolist() != list(range(9)) and resident() - before < 2**28
