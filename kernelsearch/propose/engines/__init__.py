"""Model engines: one file an engine, all behind one contract (`base.Engine`), found by name (`registry`).

An engine's packages are extras: they are imported when a spec asks for that engine, and by nothing else.
"""

from __future__ import annotations

from kernelsearch.propose.engines.base import CUT, STOP, Ask, Engine, EngineSpec, Failure, Reply, Sample
from kernelsearch.propose.engines.engine_cache import EngineCache
from kernelsearch.propose.engines.registry import ENGINES, describe_missing, open_engine, parse_spec

__all__ = [
    "CUT",
    "ENGINES",
    "STOP",
    "Ask",
    "Engine",
    "Failure",
    "EngineCache",
    "Reply",
    "Sample",
    "EngineSpec",
    "open_engine",
    "describe_missing",
    "parse_spec",
]
