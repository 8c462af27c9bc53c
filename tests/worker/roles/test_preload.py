"""Fresh workers are ready at once: what a first job imports is imported before the fork, and torch's compiler never."""

import subprocess
import sys

import pytest

JUDGES = """
import torch
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.worker.launcher.standin import poison_empty

modules = set(sys.modules)
torch.randn(3, device="meta")
with poison_empty() as filled:
    x = torch.empty(3, 4)
assert len(filled) == 1 and x.isnan().all()
softmax = lambda x: torch.softmax(x, -1)
outputs = make_expectation(softmax, softmax, [torch.randn(3, 40)]).outputs
assert outputs[0].limits is not None
"""
NO_IMPORTS = "assert not set(sys.modules) - modules - {'torch.utils._device'}, sorted(set(sys.modules) - modules)\n"


@pytest.mark.parametrize("role", ["judge", "interpret", "run"])
def test_a_first_job_imports_nothing_slow(role):
    code = (
        f"import os, sys; os.environ['TRITON_INTERPRET'] = '{int(role == 'interpret')}'\n"
        f"from kernelsearch.worker.roles import {role}\n{role}.preload()\n{JUDGES}"
        f"{NO_IMPORTS * (role != 'run')}"
        "assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
