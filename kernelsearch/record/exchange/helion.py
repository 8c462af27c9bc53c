"""A config that Helion found, as a config of a task's own kernel.

Helion names no tile: `block_sizes` are in the order of its own loops. They are given to the kernel's tile-like
constexprs in the order of its signature, which is a guess, and said; num_warps and num_stages carry over as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import SpaceError
from kernelsearch.core.types import Config

CARRIED = ("num_warps", "num_stages", "maxnreg")


def read(path: str | Path) -> dict[str, Any]:
    """Helion's config in a file of `helion.Config.save` or in a `.best_config` of its cache. Raises SpaceError."""
    try:
        found = json.loads(Path(path).read_text())
        if isinstance(found, dict) and isinstance(found.get("config"), str):
            found = json.loads(found["config"])
    except (OSError, ValueError, RecursionError) as error:
        raise SpaceError(f"{path} cannot be read as a Helion config: {error}") from None
    if not isinstance(found, dict) or not ("block_sizes" in found or "num_warps" in found):
        raise SpaceError(f"{path} is not a Helion config: it has neither block_sizes nor num_warps")
    return found


def carried(found: Mapping[str, Any], tiles: Sequence[str], space: Mapping[str, Sequence[Any]]) -> Config:
    """The kernel's config: tiles are its tile-like constexprs in the order of its signature. Raises SpaceError."""
    sizes = found.get("block_sizes") or []
    if len(sizes) != len(tiles):
        named = ", ".join(tiles) or "none"
        raise SpaceError(
            f"Helion's {len(sizes)} block sizes {list(sizes)} do not fit the kernel's {len(tiles)} tiles ({named})"
        )
    config = dict(zip(tiles, sizes, strict=True))
    return config | {
        name: found[name] for name in CARRIED if name in found and (name in space or name.startswith("num_"))
    }
