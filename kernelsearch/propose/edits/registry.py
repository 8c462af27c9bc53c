"""The list of all edits. The tests and the search use a new edit as soon as its name is in this list.

A user's own join it from a file, or from the entry points `kernelsearch.edits` of an installed package (a class each).
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from kernelsearch.core import plugins
from kernelsearch.core.arguments import checked
from kernelsearch.core.errors import EditError
from kernelsearch.propose.edits.base import Edit

NAMES = (
    "tile_loop lane_accumulator online two_pass fused_passes rows_2d rows_per_program sliding_rows persistent "
    "grouped_order split_reduction tensor_descriptor split_epilogue align_rows peel_tail drop_mask inner_tiles "
    "hoist_invariant early_loads late_sums store_forwarding loop_stages loop_unroll flatten_loops warp_specialize "
    "eviction_hint cache_modifier contiguity_hint reciprocal exp2 short_functions streamed_product wide_accumulate "
    "dot_precision constant_sizes gluon_product gluon_attention"
).split()
"""The edits' files. The class in `rows_2d.py` is `Rows2D`. The order decides which edit a seed draws."""


def _load_edit(name: str) -> Edit:
    module = importlib.import_module(f"{__package__}.{name}")
    return getattr(module, name.title().replace("_", ""))()


def list_edits() -> list[Edit]:
    """The shipped edits, then those of installed packages. Raises KernelsearchError for one that cannot be loaded."""
    others = [make() for make in plugins.load_entry_points("edits").values()]
    for edit in others:
        edit.file = inspect.getfile(type(edit))
    return [*map(_load_edit, NAMES), *others]


EDITS = list_edits()
"""The edits of this process; `add_edit` adds one."""


@checked
def add_edit(path: str) -> Edit:
    """Adds the edit of a file for this process: its one subclass of Edit. Raises EditError."""
    file = Path(path)
    module = plugins.execute_file(file, f"kernelsearch_edits.{file.stem}", EditError)
    own = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Edit) and c is not Edit]
    own = [c for c in own if c.__module__ == module.__name__]
    if len(own) != 1:
        raise EditError(f"{path} has {len(own)} classes that are edits: it needs one, a subclass of Edit")
    with plugins.blame(path, EditError, "cannot be made"):
        edit = own[0]()
    edit.file = path
    if edit.name in NAMES:
        raise EditError(f"there is an edit {edit.name} already: rename {path}")
    EDITS[:] = [*(e for e in EDITS if e.name != edit.name), edit]
    return edit


def edit_named(name: str) -> Edit | None:
    """The edit with this name, or None."""
    return next((e for e in EDITS if e.name == name), None)
