"""Fresh workers are ready at once: torch's own compiler, seconds of work, is imported only where it compiles."""

import subprocess
import sys

import pytest

JUDGES = """
import torch
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.worker.launcher.standin import poison_empty

with poison_empty() as filled:
    x = torch.empty(3, 4)
assert len(filled) == 1 and x.isnan().all()
softmax = lambda x: torch.softmax(x, -1)
outputs = make_expectation(softmax, softmax, [torch.randn(3, 40)]).outputs
assert outputs[0].limits is not None
"""


@pytest.mark.parametrize("role", ["judge", "interpret", "run"])
def test_no_worker_imports_the_compiler_of_torch_to_judge(role):
    code = (
        f"import os, sys; os.environ['TRITON_INTERPRET'] = '{int(role == 'interpret')}'\n"
        f"from kernelsearch.worker.roles import {role}\n{role}.preload()\n{JUDGES}"
        "assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
