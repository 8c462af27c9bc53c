"""Model engines: one file an engine, all behind one contract (`base.Engine`), found by name (`registry`).

An engine's packages are extras: they are imported when a spec asks for that engine, and by nothing else.
"""

from __future__ import annotations

from kernelsearch.propose.engines.base import CUT, STOP, Ask, Engine, Failure, Reply, Sample, Spec
from kernelsearch.propose.engines.registry import ENGINES, make, not_installed, parsed
from kernelsearch.propose.engines.shared import Opened

__all__ = [
    "CUT",
    "ENGINES",
    "STOP",
    "Ask",
    "Engine",
    "Failure",
    "Opened",
    "Reply",
    "Sample",
    "Spec",
    "make",
    "not_installed",
    "parsed",
]
