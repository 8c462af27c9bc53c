"""Model engines: one file an engine, all behind one contract (`base.Engine`), found by name (`registry`).

An engine's packages are extras: they are imported when a spec asks for that engine, and by nothing else.
"""

from __future__ import annotations

from kernelsearch.propose.engines.base import CUT, STOP, Ask, Engine, EngineSpec, Failure, Reply, Sample
from kernelsearch.propose.engines.registry import (
    ENGINES,
    WRITER,
    EngineCache,
    describe_missing,
    find_kind,
    open_engine,
    parse_spec,
    split_roles,
)

__all__ = ["CUT", "ENGINES", "STOP", "Ask", "Engine", "EngineCache", "EngineSpec", "Failure", "Reply", "Sample"]
__all__ += ["WRITER", "describe_missing", "find_kind", "open_engine", "parse_spec", "split_roles"]
