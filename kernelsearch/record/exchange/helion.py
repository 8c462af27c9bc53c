"""Translates a config of Helion into a config of a task's own kernel.

Helion does not name tiles: `block_sizes` are in the order of its own loops. The kernel's tile-like constexprs get them
in the order of its signature, which is a guess (the kernel file says so); num_warps and num_stages stay as they are.
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
        config = json.loads(Path(path).read_text())
        if isinstance(config, dict) and isinstance(config.get("config"), str):
            config = json.loads(config["config"])
    except (OSError, ValueError, RecursionError) as error:
        raise SpaceError(f"{path} cannot be read as a Helion config: {error}") from None
    if not isinstance(config, dict) or not ("block_sizes" in config or "num_warps" in config):
        raise SpaceError(f"{path} is not a Helion config: it has neither block_sizes nor num_warps")
    return config


def translate_config(config: Mapping[str, Any], tiles: Sequence[str], space: Mapping[str, Sequence[Any]]) -> Config:
    """The kernel's config from Helion's. Raises SpaceError.

    tiles are the kernel's tile-like constexprs in the order of its signature.
    """
    sizes = config.get("block_sizes") or []
    if not isinstance(sizes, list):
        raise SpaceError(f"Helion's block_sizes are a list, not {sizes!r}")
    if len(sizes) != len(tiles):
        own = f"the kernel's {len(tiles)} tiles ({', '.join(tiles) or 'none'})"
        raise SpaceError(f"Helion's {len(sizes)} block sizes {sizes} do not fit {own}")
    options = {name: config[name] for name in CARRIED if name in config and (name in space or name.startswith("num_"))}
    return dict(zip(tiles, sizes, strict=True)) | options
