"""The bytes that any kernel must move, as the reference's own run shows them: each element read once, outputs once."""

import re

import pytest

from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.load import load
from kernelsearch.worker.launcher.least_bytes import SOURCE, find_least_bytes

TASK = """
import torch
{more}
def reference({names}):
    {body}

def get_inputs(rows=64, cols=128):
    return [{inputs}]
"""
X = "torch.randn(rows, cols)"
WHOLE = 64 * 128 * 4


def least_of(folder, body, inputs, names="x, y", more=""):
    (folder / "task.py").write_text(TASK.format(body=body, inputs=inputs, names=names, more=more))
    task = load(folder / "task.py", need_kernel=False)
    return find_least_bytes(task, "timed:0", target_by_name("h100"))


@pytest.mark.parametrize("body, inputs, least", [
    ("return x + y", f"{X}, {X}", 3 * WHOLE),
    ("return x + y", f"{X}, torch.randn(cols)", 2 * WHOLE + 128 * 4),
    ("return x * x.mean(-1, keepdim=True) + x.mT.mean() + y", f"{X}, 1.0", 2 * WHOLE),
    ("return (x + y).half(), x.sum(-1)", f"{X}, {X}", 2 * WHOLE + WHOLE // 2 + 64 * 4),
    ("return x[:, :32].exp() + y", f"{X}, 1.0", 2 * WHOLE // 4),  # the rest of a row is not read
    ("a, b = x.chunk(2, -1); return torch.cat((b, -a), -1) + y", f"{X}, 1.0", 2 * WHOLE),
    ("return x.masked_fill(y, 0.0) + x", f"{X}, torch.ones(rows, cols, dtype=torch.bool)", 2 * WHOLE + 64 * 128),
    ("return x + y", f"torch.randn(1, cols).expand(rows, cols), {X}", 2 * WHOLE + 128 * 4),
    ("x.add_(y)", f"{X}, {X}", 3 * WHOLE),
    ("return torch.zeros_like(x) + y", f"{X}, 1.0", WHOLE),  # its values are not read
])  # fmt: skip
def test_each_element_that_is_read_and_each_output_counts_once(tmp_path, body, inputs, least):
    more = 'MUTATES = ("x",)' if "add_" in body else ""
    assert least_of(tmp_path, body, inputs, more=more) == (least, SOURCE)


@pytest.mark.parametrize("body, inputs, why", [
    ("return x[y]", f"{X}, torch.zeros(rows, dtype=torch.long)", r"reads a part of an input .* \(index\)"),
    ("return x.gather(1, y)", f"{X}, torch.zeros(rows, 1, dtype=torch.long)", r"\(gather\)"),
    ("return torch.nn.functional.embedding(y, x)", f"{X}, torch.zeros(7, dtype=torch.long)", r"\(embedding\)"),
    ("return x.tril() + y", f"{X}, 1.0", r"\(tril\)"),
    ("return x[: int(y.sum())]", f"{X}, torch.ones(7)", "does not run without data"),
])  # fmt: skip
def test_a_part_that_depends_on_values_is_no_bound(tmp_path, body, inputs, why):
    least, said = least_of(tmp_path, body, inputs)
    assert least is None and re.search(why, said), said
