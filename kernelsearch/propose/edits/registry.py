"""The list of all edits. The tests and the search use a new edit as soon as its name is in this list.

A user's own join it from a file.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from kernelsearch.core import plugins
from kernelsearch.core.errors import EditError
from kernelsearch.propose.edits.base import Edit

NAMES = (
    "lane_accumulator online fused_passes rows_2d sliding_rows sliding_columns persistent grouped_order "
    "split_reduction stored_operand packed_loads swap_operands tensor_descriptor split_epilogue align_rows peel_tail "
    "drop_mask inner_tiles early_loads loop_stages loop_unroll flatten_loops share_rows summed_atomics spare_fill "
    "eviction_hint cache_modifier reciprocal exp2 short_functions streamed_product dot_precision constant_sizes "
    "gluon_product gluon_attention"
).split()
"""The edits' files. The class in `rows_2d.py` is `Rows2D`. The order decides which edit a seed draws."""

USUAL_GAINS = {
    "gluon_attention": 0.4, "split_reduction": 0.148, "gluon_product": 0.073, "short_functions": 0.066, "online": 0.062,
    "tensor_descriptor": 0.051, "lane_accumulator": 0.05, "exp2": 0.045, "loop_stages": 0.036,
    "streamed_product": 0.031, "split_epilogue": 0.022, "peel_tail": 0.021, "constant_sizes": 0.02,
    "align_rows": 0.018, "drop_mask": 0.016, "early_loads": 0.016, "grouped_order": 0.012,
    "reciprocal": 0.011, "loop_unroll": 0.01, "inner_tiles": 0.007, "eviction_hint": 0.007, "rows_2d": 0.004,
    "cache_modifier": 0.001, "persistent": 0.001,
}  # fmt: skip
"""What an edit of a first kernel gained in the mean, as a log: two searches over each of 32 tasks, measured on H200s.

Made by `studies/train/usual_gains.py`.
"""


def _load_edit(name: str) -> Edit:
    module = importlib.import_module(f"{__package__}.{name}")
    edit = getattr(module, name.title().replace("_", ""))()
    edit.usual_gain = USUAL_GAINS.get(name, edit.usual_gain)
    return edit


EDITS = list(map(_load_edit, NAMES))
"""The edits of this process; `add_edit` adds one."""


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
