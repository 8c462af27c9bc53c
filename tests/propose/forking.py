"""A process that imports once, and forks a child for every list of jobs: torch and triton take two seconds."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

END = '"end"\n'
"""The line behind the answers to a list of jobs, also if the child died before it gave them all."""


def serve(answer: Callable[[dict, Path, int], dict], lost: dict) -> None:
    """Answers each list of jobs, a line of JSON, with a line for each job; lost: what an error adds to its answer."""
    gc.freeze()
    for line in sys.stdin:
        if not os.fork():
            with tempfile.TemporaryDirectory() as folder:
                for number, job in enumerate(json.loads(line)):
                    try:
                        found = answer(job, Path(folder), number)
                    except Exception as error:  # the child's boundary: whatever a kernel raises is the answer
                        found = {"ok": False, "why": f"{type(error).__name__}: {error}"[-600:], **lost}
                    print(json.dumps(found), flush=True)
            os._exit(0)
        os.wait()
        print(END, end="", flush=True)
