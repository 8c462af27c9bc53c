"""The launches of a task's launcher at a shape, for tests that need no judge."""

from kernelsearch.core.types import Trace
from kernelsearch.worker.launcher.trace import run_launcher


def trace_launches(task, key, target=None, device=None) -> Trace:
    """The launches in order, as data."""
    return run_launcher(task, key, target, device).to_trace(key)
