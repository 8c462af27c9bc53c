"""Matrix products fed by the copy engine, in one step: edits that pay only together, with the config that suits them.

Each edit alone gains little or loses on Hopper: descriptors without a persistent loop, large tiles whose epilogue
leaves no memory for one more stage. A search of one step at a time turns back. Where loads go through descriptors of
the host, the loops may be flattened.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelsearch.core.types import Value
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.flatten_loops import FlattenLoops
from kernelsearch.propose.edits.grouped_order import GroupedOrder
from kernelsearch.propose.edits.persistent import Persistent
from kernelsearch.propose.edits.short_functions import ShortFunctions
from kernelsearch.propose.edits.split_epilogue import SplitEpilogue
from kernelsearch.propose.edits.tensor_descriptor import TensorDescriptor

FOLLOWING = (SplitEpilogue(), ShortFunctions(), Persistent(), GroupedOrder())
"""What follows `tensor_descriptor`."""


class StreamedProduct(Edit):
    summary = "a product in a persistent loop that the copy engine feeds: several edits and their config in one step"
    refusal = "no loop with a dot can be flattened after tensor descriptors of the host"

    def change(self, view: View) -> Changes:
        refuse_if(view.assumed, "it has branches that the launches decide")
        rows, columns, depth = _find_sizes(view)
        described = TensorDescriptor().apply(view.kernel, view.task, view.function.name)
        if isinstance(described, NotApplicable):
            raise described
        hosted = [rewrite.kernel for rewrite in described if rewrite.kernel.descriptors]
        tiles = {
            rows: 128,
            columns: 256,
            depth: 64,
            "num_warps": 8,
            "num_stages": 4,
            "WAVES": 1,
            "GROUP": 8,
            "PARTS": 2,
        }
        nested = _follow(view, hosted[-1], FOLLOWING, Persistent) if hosted else None
        if nested and (flat := _follow(view, nested, (FlattenLoops(),), FlattenLoops)):
            why = "A persistent loop that the copy engine feeds; the epilogue comes in parts."
            yield Change(_start(nested, tiles), why)
            yield Change(_start(flat, tiles), f"{why} Flattened, so that loads run ahead across tiles.")


def _find_sizes(view: View) -> tuple[str, str, str]:
    """The constexprs of a tile's rows and columns, and of the products that a loop adds up for it in one turn."""
    for loop in tree.loops(view.body):
        for pair in filter(None, map(tree.assignment, loop.body)):
            tile, dots = view.shapes.names.get(pair[0]), tree.calls(pair[1], "dot")
            if dots and pair[0] in tree.reads(pair[1]) and tile and len({*tile}) == 2:
                return tile[0], tile[1], (view.shapes.of(dots[0].args[0]) or ("", ""))[-1]
    raise NotApplicable("no loop accumulates a tile by dots")


def _follow(view: View, kernel: Kernel, edits: tuple[Edit, ...], needed: type[Edit]) -> Kernel | None:
    """The kernel after each edit that applies, None if the one that is needed does not."""
    for edit in edits:
        rewrites = edit.apply(kernel, view.task, view.function.name)
        if isinstance(rewrites, list):
            kernel = rewrites[0].kernel
        elif isinstance(edit, needed):
            return None
    return kernel


def _start(kernel: Kernel, wanted: Mapping[str, int]) -> Kernel:
    """The kernel with a config next to these values, as far as its space has them."""
    config: dict[str, Value] = dict(kernel.config)
    for name, values in kernel.space.items():
        fitting = [v for v in values if isinstance(v, int) and v <= wanted.get(name, -1)]
        if fitting:
            config[name] = max(fitting)
    return kernel.with_changes(config=config)
