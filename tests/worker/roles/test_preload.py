"""Fresh workers are ready at once: what torch imports late, and slowly, is imported before a worker is forked."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("role", ["run", "interpret"])
def test_the_slow_part_of_torch_is_imported_before_the_fork(role):
    code = (
        f"import os, sys; os.environ['TRITON_INTERPRET'] = '{int(role == 'interpret')}'\n"
        f"from kernelsearch.worker.roles import {role}\n{role}.preload()\n"
        "assert 'torch._dynamo' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
