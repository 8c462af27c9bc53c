"""The list of all edits; a new edit is tested and tried as soon as it stands here."""

from __future__ import annotations

from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.cache_hints import CacheModifier, EvictionHint
from kernelsearch.propose.edits.drop_mask import DropMask
from kernelsearch.propose.edits.exp2 import Exp2
from kernelsearch.propose.edits.grouped_order import GroupedOrder
from kernelsearch.propose.edits.hoist_invariant import HoistInvariant
from kernelsearch.propose.edits.lane_accumulator import LaneAccumulator
from kernelsearch.propose.edits.loop_stages import LoopStages
from kernelsearch.propose.edits.loop_unroll import LoopUnroll
from kernelsearch.propose.edits.online import Online
from kernelsearch.propose.edits.peel_tail import PeelTail
from kernelsearch.propose.edits.persistent import Persistent
from kernelsearch.propose.edits.reciprocal import Reciprocal
from kernelsearch.propose.edits.rows_2d import Rows2D
from kernelsearch.propose.edits.rows_per_program import RowsPerProgram
from kernelsearch.propose.edits.split_reduction import SplitReduction
from kernelsearch.propose.edits.tile_loop import TileLoop
from kernelsearch.propose.edits.two_pass import TwoPass

EDITS: tuple[Edit, ...] = (
    TileLoop(),
    LaneAccumulator(),
    Online(),
    TwoPass(),
    Rows2D(),
    RowsPerProgram(),
    Persistent(),
    GroupedOrder(),
    SplitReduction(),
    DropMask(),
    PeelTail(),
    HoistInvariant(),
    EvictionHint(),
    CacheModifier(),
    LoopStages(),
    LoopUnroll(),
    Reciprocal(),
    Exp2(),
)


def edit_named(name: str) -> Edit | None:
    """The edit of this name, None when there is none."""
    return next((e for e in EDITS if e.name == name), None)
