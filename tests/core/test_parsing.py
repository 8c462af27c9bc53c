"""Trees are built by one thread at a time: two at once may break each other on Python 3.11 (python/cpython#106905)."""

import gc
import re
import sys
import threading
from pathlib import Path

import pytest

from kernelsearch.core.parsing import parse_python

ROOT = Path(__file__).resolve().parents[2]
ALONE = ("worker/", "core/parsing.py")
"""Worker processes parse in one thread."""


@pytest.mark.slow
def test_many_threads_parse_at_once():
    text, failures, ready = (
        "x = " + "(" * 60 + "1" + ")" * 60 + "\n" + "y = [a + b * c for a in d]\n" * 200,
        [],
        threading.Barrier(8),
    )

    class Slow:
        def __del__(self):
            sum(range(20))  # a finaliser in Python: the interpreter may go to another thread

    def work():
        ready.wait()
        try:
            for _ in range(30):
                loop = [Slow()]
                loop.append(loop)
                parse_python(text)
        except SystemError as error:
            failures.append(error)

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(10)
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    assert not failures


@pytest.mark.parametrize("folder", ["kernelsearch", "strategies"])
def test_nothing_else_builds_trees(folder):
    files = [p for p in (ROOT / folder).rglob("*.py") if not str(p.relative_to(ROOT / folder)).startswith(ALONE)]
    assert files
    found = [str(p.relative_to(ROOT)) for p in files if re.search(r"\bast\.parse\(", p.read_text(encoding="utf-8"))]
    assert found == []
