"""The launches of a task's launcher at a shape, for tests that need no judge."""

from kernelsearch.core.types import Trace
from kernelsearch.worker.launcher.trace import make_trace, run_launcher


def trace_launches(task, key, target=None, device=None) -> Trace:
    """The launches in order, as data."""
    return make_trace(key, run_launcher(task, key, target, device).launches)
