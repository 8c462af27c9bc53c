"""The results that the interpreter's tests share: each test file has a script that runs kernels in its own process."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def results(request):
    """The JSON that `run_X.py` prints for `test_X.py`; a process of its own is interpreter or compiler for life."""
    script = request.path.with_name(request.path.name.replace("test_", "run_"))
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[
        -3000:
    ]  # an address that is touched before it is checked ends it by a signal
    return json.loads(done.stdout)
