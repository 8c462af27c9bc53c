"""The list of all edits. The tests and the search use a new edit as soon as its name is in this list."""

from __future__ import annotations

import importlib

from kernelsearch.propose.edits.base import Edit

NAMES = (
    "tile_loop lane_accumulator online two_pass fused_passes rows_2d rows_per_program persistent grouped_order "
    "split_reduction tensor_descriptor split_epilogue align_rows peel_tail drop_mask hoist_invariant early_loads "
    "late_sums store_forwarding loop_stages loop_unroll flatten_loops warp_specialize eviction_hint cache_modifier "
    "contiguity_hint reciprocal exp2 short_functions streamed_product wide_accumulate dot_precision constant_sizes"
).split()
"""The edits' files. The class in `rows_2d.py` is `Rows2D`. The order decides which edit a seed draws."""


def _load_edit(name: str) -> Edit:
    module = importlib.import_module(f"{__package__}.{name}")
    return getattr(module, name.title().replace("_", ""))()


EDITS: tuple[Edit, ...] = tuple(map(_load_edit, NAMES))


def edit_named(name: str) -> Edit | None:
    """The edit with this name, or None."""
    return next((e for e in EDITS if e.name == name), None)
