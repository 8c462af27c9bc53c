"""The list of all edits. The tests and the search use a new edit as soon as it is in this list."""

from __future__ import annotations

from kernelsearch.propose.edits.align_rows import AlignRows
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.cache_modifier import CacheModifier
from kernelsearch.propose.edits.contiguity_hint import ContiguityHint
from kernelsearch.propose.edits.dot_precision import DotPrecision
from kernelsearch.propose.edits.drop_mask import DropMask
from kernelsearch.propose.edits.early_loads import EarlyLoads
from kernelsearch.propose.edits.eviction_hint import EvictionHint
from kernelsearch.propose.edits.exp2 import Exp2
from kernelsearch.propose.edits.flatten_loops import FlattenLoops
from kernelsearch.propose.edits.fused_passes import FusedPasses
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
from kernelsearch.propose.edits.store_forwarding import StoreForwarding
from kernelsearch.propose.edits.tensor_descriptor import TensorDescriptor
from kernelsearch.propose.edits.tile_loop import TileLoop
from kernelsearch.propose.edits.two_pass import TwoPass
from kernelsearch.propose.edits.wide_accumulate import WideAccumulate

EDITS: tuple[Edit, ...] = (
    TileLoop(),
    LaneAccumulator(),
    Online(),
    TwoPass(),
    FusedPasses(),
    Rows2D(),
    RowsPerProgram(),
    Persistent(),
    GroupedOrder(),
    SplitReduction(),
    TensorDescriptor(),
    AlignRows(),
    PeelTail(),
    DropMask(),
    HoistInvariant(),
    EarlyLoads(),
    StoreForwarding(),
    LoopStages(),
    LoopUnroll(),
    FlattenLoops(),
    EvictionHint(),
    CacheModifier(),
    ContiguityHint(),
    Reciprocal(),
    Exp2(),
    WideAccumulate(),
    DotPrecision(),
)


def edit_named(name: str) -> Edit | None:
    """The edit with this name, or None."""
    return next((e for e in EDITS if e.name == name), None)
