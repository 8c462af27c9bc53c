"""Marks sums over rows that the kernel of the rows can take along, such as the gradient of a norm's weight.

The gradient of a norm has sums along rows and sums over rows, and the second kind needs results of the first.
TorchInductor reads everything again for it, in kernels whose loops have another order. Here a sum over rows becomes one
operation, `kernelsearch::sum_rows`, whose operand Inductor has the kernel of the rows write; `inductor/column_sums.py`
then lets that kernel sum what it would write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._inductor.lowering import clone, fallback_handler, register_lowering
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from kernelsearch.worker.launcher.replaced import read_hint

aten = torch.ops.aten
NORMS = (
    *(aten.native_layer_norm.default, aten._fused_rms_norm.default, aten._softmax.default, aten._log_softmax.default),
    *(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default),
)
"""Operations that reduce along rows, beside plain reductions."""
VIEWS = (aten.view.default, aten._unsafe_view.default, aten.squeeze.dim, aten.squeeze.dims)
REDUCTIONS = (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.var_mean.correction)
FEWEST_ROWS = 1024
"""Of fewer rows everything lies in the L2 cache when it is read again."""
LONGEST_ROW = 8192
"""Elements of a row for whose sums a program has registers."""


@torch.library.custom_op("kernelsearch::sum_rows", mutates_args=())
def sum_rows(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The sum (cols) of the rows of x (rows, cols), in this dtype."""
    return x.float().sum(0).to(dtype)


@sum_rows.register_fake
def _(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.new_empty(x.shape[1], dtype=dtype)


@register_lowering(torch.ops.kernelsearch.sum_rows.default, type_promotion_kind=None)
def _lower(x: Any, dtype: torch.dtype) -> Any:
    """Inductor's call of the operation; its operand is written for it, be it an input."""
    x = clone(x)
    x.realize()
    return fallback_handler(torch.ops.kernelsearch.sum_rows.default, add_to_fallback_set=False)(x, dtype)


def take_column_sums(graph: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """The graph with the operation for its sums over rows, where something is summed along the same rows as well."""
    if any(node.target == aten.native_layer_norm_backward.default for node in graph.graph.nodes):
        graph = make_fx(graph, NORM_GRADIENTS)(*inputs)
    return make_fx(graph)(*inputs) if _mark(graph) else graph


def _normalize(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """A layer norm with mean and deviation in float32, as on a GPU; on a CPU these have the type of x."""
    wide = x.float()
    variance, mean = torch.var_mean(wide, dim=list(range(x.ndim - len(shape), x.ndim)), correction=0, keepdim=True)
    scale = torch.rsqrt(variance + eps)
    y = (wide - mean) * scale
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).to(x.dtype), mean, scale


NORM_GRADIENTS: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm.default: _normalize,
    **get_decompositions([aten.native_layer_norm_backward]),
}


def _mark(graph: GraphModule) -> bool:
    """Replaces sums over rows by the operation; True if any was. The graph has to be traced again then."""
    marked = [found for node in list(graph.graph.nodes) if (found := _read(node))]
    rows = {node for other in graph.graph.nodes if _is_along_rows(other) for node in _list_ancestors(other)}
    if not any(_shares(node, rows) for node, _ in marked):
        return False
    for node, axes in marked:
        with graph.graph.inserting_before(node):
            keep = node.meta["val"].ndim > axes
            total = graph.graph.call_function(_sum, (node.args[0], axes, keep, _find_dtype(node)))
        node.replace_all_uses_with(total)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return True


def _find_dtype(node: Node) -> torch.dtype:
    """The type in which a sum is wanted: its own, or that of the only copy of it, perhaps behind views."""
    one = node
    while len(one.users) == 1:
        (one,) = one.users
        if one.target == aten._to_copy.default and "dtype" in one.kwargs:
            return one.meta["val"].dtype  # type: ignore[no-any-return]
        if one.target not in VIEWS:
            break
    return node.meta["val"].dtype  # type: ignore[no-any-return]


def _sum(x: torch.Tensor, axes: int, keep: bool, dtype: torch.dtype) -> Any:
    """The sum of x over all but its last axes."""
    kept, summed = x.shape[x.ndim - axes :], x.ndim - axes
    total = torch.ops.kernelsearch.sum_rows(x.flatten(0, summed - 1).flatten(1).float(), dtype)
    return total.reshape([*[1] * summed, *kept] if keep else kept)


def _read(node: Node) -> tuple[Node, int] | None:
    """(A sum over all but the last axes of many rows that are not too long, how many axes it leaves)."""
    if node.target != aten.sum.dim_IntList or not node.users:
        return None
    x = node.args[0].meta["val"]  # type: ignore[union-attr]
    summed = sorted({d % x.ndim for d in node.args[1] or ()})  # type: ignore[union-attr, operator]
    axes = x.ndim - len(summed)
    if axes == 0 or summed != list(range(len(summed))) or not x.is_floating_point():
        return None
    sizes = list(map(read_hint, x.shape))
    rows, columns = math.prod(sizes[: len(summed)]), math.prod(sizes[len(summed) :])
    return (node, axes) if rows >= FEWEST_ROWS and columns <= LONGEST_ROW else None


def _is_along_rows(node: Node) -> bool:
    """Whether a node reduces along rows."""
    if node.target in NORMS:
        return True
    axes = node.args[1] if len(node.args) > 1 else None
    if node.target not in REDUCTIONS or not isinstance(axes, (list, tuple)):
        return False
    ndim = node.args[0].meta["val"].ndim  # type: ignore[union-attr]
    return ndim - 1 in {d % ndim for d in axes}  # type: ignore[operator]


def _shares(node: Node, rows: set[Node]) -> bool:
    """Whether a sum over rows is computed from something of its own shape that sums along rows are computed from."""
    shape = node.args[0].meta["val"].shape  # type: ignore[union-attr]
    return any(other in rows and other.meta["val"].shape == shape for other in _list_ancestors(node))


def _list_ancestors(node: Node) -> Iterator[Node]:
    """What a node is computed from that is a tensor."""
    seen, todo = set[Node](), list(node.all_input_nodes)
    while todo:
        if (one := todo.pop()) not in seen:
            seen.add(one)
            todo += one.all_input_nodes
            if isinstance(one.meta.get("val"), torch.Tensor):
                yield one
