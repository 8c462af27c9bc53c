"""Fuses what TorchInductor leaves apart: reductions and scans with the element-wise code after them, and softmax.

Inductor fuses two kernels when their loops run over the same axes in the same order. A norm over channels, which are
not the last axis, and a sum from the back are no such pairs: it writes two kernels for each, and the second one reads
everything again. Here the loops of the element-wise code are reversed and reordered until they follow the reduction.

The maximum and the sum of a softmax it takes in one loop on a GPU only, which its stand-in here does not pass for, and
only there it puts tensors one after another in the kernel that reads or computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest import mock

import torch
import torch._inductor.config as config
import torch._inductor.fx_passes.joint_graph as joint_graph
import torch._inductor.fx_passes.post_grad as post_grad
from torch._inductor.dependencies import MemoryDep
from torch._inductor.ir import BaseView, ConcatKernel, Pointwise, Scan, TensorBox
from torch._inductor.lowering import clone, lowerings, pointwise_cat
from torch._inductor.scheduler import Scheduler, SchedulerNode
from torch._inductor.utils import is_pointwise_use
from torch._inductor.virtualized import V

Share = Callable[[Scheduler, Any, Any], int]
SHARED = "shared_data_after_reordering_loop"
SOFTMAX = torch.ops.prims.prepare_softmax_online.default
SCALED = ("mul_softmax_pattern", "div_softmax_pattern")
CAT, SLICE = torch.ops.aten.cat.default, torch.ops.aten.slice.Tensor
_LOWER_SOFTMAX, _LOWER_CAT, _LOWER_SLICE = lowerings[SOFTMAX], lowerings[CAT], lowerings[SLICE]
MOST_JOINED = 8
"""Tensors that one kernel puts one after another: each of its elements asks for all of them."""


@contextmanager
def fuse_more() -> Iterator[None]:
    """Within the context, Inductor fuses these too."""
    with (
        ExitStack() as stack,
        mock.patch.object(Scheduler, SHARED, follow_reductions(getattr(Scheduler, SHARED))),
        mock.patch.object(post_grad, "prepare_softmax_extra_check", lambda match: config.online_softmax),
        mock.patch.dict(lowerings, {SOFTMAX: _lower_softmax, CAT: _lower_cat, SLICE: _lower_slice}),
    ):
        for entry in _list_scaled_softmax():
            stack.enter_context(mock.patch.object(entry, "extra_check", lambda match: False))
        yield


def _list_scaled_softmax() -> list[Any]:
    """Inductor's patterns for a softmax of `x * a` or `x / a`, which they make three passes of: maximum, sum, result.

    They take the maximum before the scale, and the sum with another scale than the maximum is not one loop with it.
    """
    entries = (e for some in joint_graph.pass_patterns for found in some.patterns.values() for e in found)
    return [e for e in entries if getattr(getattr(e, "handler", None), "__name__", "") in SCALED]


def _lower_softmax(x: Any, dim: int) -> Any:
    """Inductor does it for rows of eight elements and more, and does not know how long a symbol is."""
    with config.patch(unroll_reductions_threshold=2):
        return _LOWER_SOFTMAX(x, dim)


def _lower_slice(x: Any, *bounds: Any, **named: Any) -> Any:
    """A part of what is not computed yet is computed by itself: used twice, a view would have the whole stored."""
    part = _LOWER_SLICE(x, *bounds, **named)
    computed = isinstance(part.data, BaseView) and isinstance(cast(Any, part.data.unwrap_view()).data, Pointwise)
    return clone(part) if computed else part


def _lower_cat(inputs: Sequence[Any], dim: int = 0) -> Any:
    """As on a GPU, unless the tensors are made by kernels that write them there: others, or one that makes them all."""
    used = any(is_pointwise_use(user) for user in V.current_node.users)
    reads = [x.get_read_names() for x in inputs]
    twins = reads.count(reads[0]) == len(reads) and len({tuple(x.get_size()) for x in inputs}) == 1
    made = [name for x in inputs if not isinstance(x.data.data, Pointwise) for name in x.get_read_names()]
    scans = any(isinstance(getattr(x.data.data, "data", None), Scan) for x in inputs)  # each writes to its place
    joined = len(inputs) <= MOST_JOINED and all(n in V.graph.graph_inputs for n in made) and (used or not twins)
    joined = joined and not scans
    if {x.get_dtype() for x in inputs} in ({torch.int8}, {torch.uint8}):  # on a CPU a library's
        dim %= len(inputs[0].get_size())
        return pointwise_cat(inputs, dim) if joined else TensorBox(ConcatKernel.create(inputs, dim))
    with config.patch(force_pointwise_cat=joined):
        return _LOWER_CAT(inputs, dim)


def follow_reductions(share: Share) -> Share:
    """Inductor's own method, which says how many bytes two nodes share, with more orders of the second one's loops."""

    def share_more(scheduler: Scheduler, first: Any, second: Any) -> int:
        score = share(scheduler, first, second)
        if score > 0 or not first.is_reduction() or second.is_reduction() or not isinstance(second, SchedulerNode):
            return score
        if not {d.name for d in first.read_writes.writes} & {d.name for d in second.read_writes.reads}:
            return score
        reductions = [node for node in first.get_nodes() if node.is_reduction() and isinstance(node, SchedulerNode)]
        followed = any(_follow(node, second) for node in reductions)
        return scheduler.score_fusion_memory(first, second) if followed else score

    return share_more


def _follow(first: Any, second: Any) -> bool:
    """Gives the second node's loops the order and direction of the first one's, by the largest buffer of both."""
    known = {dep.name: dep for dep in _list_accesses(first)}
    both = [dep for dep in second.read_writes.reads if isinstance(dep, MemoryDep) and dep.name in known]
    count = len(second._sizes[0])
    for dep in sorted(both, key=lambda d: V.graph.sizevars.optimization_hint(d.get_numel(), fallback=0), reverse=True):
        other = known[dep.name]
        reduced = _list_steps(other)[len(first._sizes[0]) :] if other.num_vars == sum(map(len, first._sizes)) else []
        own = _list_steps(dep)
        last = [i for i, (step, size) in enumerate(own) if (step, size) in reduced or (-step, size) in reduced]
        if dep.num_vars != count or not reduced or len(last) != len(reduced):
            continue
        backwards = [i for i in last if own[i] not in reduced]
        order = [*(i for i in range(count) if i not in last), *last]
        if not backwards and order == list(range(count)):
            return False
        _reverse(second, backwards)
        second.apply_new_loop_order(order)
        return True
    return False


def _list_accesses(node: Any) -> list[MemoryDep]:
    """What a node writes, then what it reads: of a buffer that it only writes the elements are those of a result."""
    return [d for deps in (node.read_writes.writes, node.read_writes.reads) for d in deps if isinstance(d, MemoryDep)]


def _list_steps(dep: MemoryDep) -> list[tuple[Any, Any]]:
    """(Elements from one turn of a loop to the next, turns) of each loop around an access."""
    return list(zip(V.graph.sizevars.stride_vars(dep.index, dep.var_names), dep.size, strict=True))


def _reverse(node: SchedulerNode, loops: list[int]) -> None:
    """Lets these loops run from their ends."""
    body, sizes = node._body, node._sizes[0]
    turned = {body.iter_vars[i]: sizes[i] - 1 - body.iter_vars[i] for i in loops}
    for name, expression in body.indexing_exprs.items():
        body.indexing_exprs[name] = expression.subs(turned, simultaneous=True)
