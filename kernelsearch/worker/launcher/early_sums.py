"""Takes sums, means and average pools before the products and convolutions that they are of: all of these are linear.

The sum of a product's rows is a product with the sums of the weights, and that of a convolution's output over all
places is a product with sums of its input: what was a matrix product becomes a read of its operands. A sum over some
axes of places leaves a convolution of fewer axes; an average pool of a convolution is one with longer steps and a
larger window, which needs fewer products and never writes what is pooled. TorchInductor takes no sum out of its place.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any, NamedTuple, Protocol

import torch
from torch.fx import GraphModule, Node, Proxy
from torch.fx.node import map_aggregate
from torch.nn import functional
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
PRECISE = (torch.float32, torch.float64)
"""The types in which sums of weights lose nothing to speak of; 16 bits would round each of them."""
TF32_BITS = -1 << 13
"""The bits of a float32 number that tf32 has."""
POOLS = {aten.avg_pool2d.default: 2, aten.avg_pool3d.default: 3}
_args_of: Callable[[Node], tuple[Any, ...]] = operator.attrgetter("args")  # of the types that its operation has
_proxy: Callable[[Any], Any] = Proxy  # whose operators have no types
Found = tuple[Any, Mapping[int, Any]]
"""A sum, whose axes are still there, and what `spread` has to know: the sizes that its axes had."""


class Convolution(NamedTuple):
    """The arguments of `aten.convolution`. Of its output at o, with p for padding, d for dilation and s for stride:

    x[o * s - p + k * d] meets w[k]; if it is transposed, x[i] meets w[k] where o is i * s - p + k * d.
    """

    x: Node
    weight: Node
    bias: Node | None
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    @property
    def window(self) -> Sequence[Any]:
        return self.weight.meta["val"].shape[2:]  # type: ignore[no-any-return]

    @property
    def is_known(self) -> bool:
        """True if its window has plain numbers as sizes."""
        return all(isinstance(n, int) for n in self.window)

    def list_axes(self) -> list[tuple[int, ...]]:
        """(Window, stride, padding, dilation, output padding) of each axis."""
        lists = (self.window, self.stride, self.padding, self.dilation, self.output_padding)
        return list(zip(*lists, strict=True))

    def add_bias(self, total: Any, times: Any = 1) -> Any:
        if self.bias is None:
            return total
        bias = Proxy(self.bias).reshape(-1, *[1] * len(self.window))
        return total + (bias if isinstance(times, int) and times == 1 else bias * times)


def convolve(x: Any, weight: Any, axes: Sequence[tuple[int, ...]], transposed: bool = False, groups: int = 1) -> Any:
    """A convolution without bias; axes has (stride, padding, dilation, output padding) of each."""
    stride, padding, dilation, output_padding = (list(each) for each in zip(*axes, strict=True))
    return _call(
        aten.convolution.default, x, weight, None, stride, padding, dilation, transposed, output_padding, groups
    )


class Linear(Protocol):
    """A sum over axes, or an average of their windows."""

    @property
    def axes(self) -> Collection[int]:
        """Those of the node that it is taken of."""

    def take(self, node: Node) -> Found | None:
        """That of a product or a convolution, computed from its operands; None where that gains nothing."""

    def spread(self, value: Any, ndim: int, sizes: Mapping[int, Any]) -> Any:
        """That of a number, or of a tensor that is spread to so many axes; None where it cannot be had as simply."""


def move_sums(graph: GraphModule) -> bool:
    """Moves what can be moved, also past numbers and vectors that are added or multiplied; True if anything was."""
    moved = False
    for node in list(graph.graph.nodes):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dtype not in PRECISE:
            continue
        with graph.graph.inserting_before(node):
            result = _read(node)
        if result is not None:
            result.node.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(result.node)
            moved = True
    if moved:
        graph.graph.eliminate_dead_code()
        graph.recompile()
    return moved


def _read(node: Node) -> Any:
    """The new value of a sum, a mean or an average pool; None where it stays."""
    if node.target in (aten.sum.dim_IntList, aten.mean.dim):
        inner, dims, *rest = _args_of(node)
        axes = sorted({d % inner.meta["val"].ndim for d in dims})
        if (found := _pull(inner, Sum(axes))) is None:
            return None
        total = found[0] / math.prod(found[1].values()) if node.target == aten.mean.dim else found[0]
        return total if rest and rest[0] else total.squeeze(axes)
    if node.target in POOLS and len(node.args) <= 3:
        inner, window, *rest = _args_of(node)
        if list(rest[0] if rest else window) != list(window) or not isinstance(inner, Node):
            return None
        if window[0] == 1 and inner.target == aten.unsqueeze.default and inner.args[1] == -2 and _is_single(inner):
            return _pool_columns(inner.args[0], window[1])
        found = _pull(inner, AveragePool(tuple(window)))
        return found and found[0]
    return None


def _is_single(node: Node) -> bool:
    return len(node.users) == 1


def _pull(node: Any, linear: Linear) -> Found | None:
    """The sum of a value, taken earlier, or None; what was added to the graph until then is dead code."""
    if not isinstance(node, Node) or not _is_single(node) or node.kwargs:
        return None
    if node.target == aten.neg.default and (found := _pull(node.args[0], linear)):
        return -found[0], found[1]
    if node.target in (aten.add.Tensor, aten.sub.Tensor, aten.rsub.Scalar) and len(node.args) == 2:
        return _pull_from_two(node, linear)
    if node.target in (aten.mul.Tensor, aten.div.Tensor):
        value, factor = _args_of(node)
        if node.target == aten.mul.Tensor and isinstance(value, Node) and not _has_shape_of(value, node):
            value, factor = factor, value
        if _is_constant(factor, node, linear.axes) and (found := _pull(value, linear)):
            factor = Proxy(factor) if isinstance(factor, Node) else factor
            return (found[0] * factor if node.target == aten.mul.Tensor else found[0] / factor), found[1]
    return linear.take(node)


def _pull_from_two(node: Node, linear: Linear) -> Found | None:
    for i in (0, 1):
        operand, other = node.args[i], node.args[1 - i]
        if isinstance(operand, Node) and _has_shape_of(operand, node) and (found := _pull(operand, linear)):
            spread = linear.spread(other, node.meta["val"].ndim, found[1])
            if spread is None:
                return None
            left, right = (found[0], spread) if i == 0 else (spread, found[0])
            if node.target == aten.rsub.Scalar:
                left, right = right, left
            return (left + right if node.target == aten.add.Tensor else left - right), found[1]
    return None


def _has_shape_of(value: Node, node: Node) -> bool:
    return bool(value.meta["val"].shape == node.meta["val"].shape)


def _is_constant(value: Any, node: Node, axes: Collection[int]) -> bool:
    """True for a number and for a tensor that is the same along these axes of the node."""
    if not isinstance(value, Node):
        return True
    return all(_is_one(n) for a, n in _list_axes(value, node.meta["val"].ndim) if a in axes)


def _list_axes(value: Node, ndim: int) -> list[tuple[int, Any]]:
    """(An axis of what the value is spread to, the value's own size there)."""
    shape = value.meta["val"].shape
    return [(ndim - len(shape) + i, n) for i, n in enumerate(shape)]


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


# ---------------------------------------------------------------- sums


@dataclass(frozen=True)
class Sum:
    """The sum over axes."""

    axes: Sequence[int]

    def take(self, node: Node) -> Found | None:
        if node.target in (aten.mm.default, aten.addmm.default):
            *bias, left, right = _args_of(node)
            total, sizes = _sum_product(_proxy(left), _proxy(right), self.axes)
            return (total + self.spread(bias[0], 2, sizes) if bias else total), sizes
        if node.target == aten.convolution.default and min(self.axes) >= 2:
            return _sum_convolution(self.axes, Convolution(*_args_of(node)))
        return None

    def spread(self, value: Any, ndim: int, sizes: Mapping[int, Any]) -> Any:
        if not isinstance(value, Node):
            return value * math.prod(sizes.values())
        own = {a: i for i, (a, n) in enumerate(_list_axes(value, ndim)) if a in sizes and not _is_one(n)}
        total = Proxy(value).sum(list(own.values()), keepdim=True) if own else Proxy(value)
        others = [size for a, size in sizes.items() if a not in own]
        return total * math.prod(others) if others else total


def _sum_product(left: Any, right: Any, axes: Collection[int]) -> tuple[Any, dict[int, Any]]:
    sizes = {axis: (left, right)[axis].size(axis) for axis in axes}
    if 0 in axes:
        left = left.sum(0, keepdim=True)
    if 1 in axes:
        return (left * right.sum(1)).sum(1, keepdim=True), sizes
    return (left.t() * right).sum(0, keepdim=True), sizes


def _sum_convolution(axes: Collection[int], conv: Convolution) -> Found | None:
    """Of each place of the window along these axes: its weights, and the sum of the input that meets them.

    Places that meet the same part of the input share its sum. Where the stride is 1, that part needs no division.
    """
    along = {a: conv.list_axes()[a - 2] for a in axes}
    if (
        conv.groups != 1
        or not conv.is_known
        or any((d if conv.transposed else s) > 1 for _, s, _, d, _ in along.values())
    ):
        return None
    sizes, ends = {}, []
    for axis, (n, s, p, d, more) in along.items():
        size, reach = _proxy(conv.x).size(axis), d * (n - 1)
        if conv.transposed:
            sizes[axis] = (size - 1) * s - 2 * p + reach + more + 1
            ends.append([(max(0, -((k - p) // s)), min(0, (reach + more - p - k) // s)) for k in range(n)])
        else:
            sizes[axis] = size + 2 * p - reach
            ends.append([(max(0, k * d - p), min(0, p - reach + k * d)) for k in range(n)])
    places = defaultdict(list)
    for place in product(*(range(n) for n, *_ in along.values())):
        places[tuple(own[k] for own, k in zip(ends, place, strict=True))].append(place)
    parts, weights = [], []
    for spans, same in places.items():
        parts.append(_cut(conv.x, axes, [slice(begin, end or None) for begin, end in spans]).sum(list(axes)))
        weights.append(reduce(operator.add, (_cut(conv.weight, axes, place) for place in same)))
    if rest := [own for a, own in enumerate(conv.list_axes(), 2) if a not in along]:
        if conv.x.meta["val"].dtype == torch.float32:
            parts, weights = [half for part in parts for half in _split(part)], [w for w in weights for _ in "ab"]
        x, weight = (_call(aten.cat.default, v, a) for v, a in ((parts, 1), (weights, 0 if conv.transposed else 1)))
        total = convolve(x, weight, [own[1:] for own in rest], conv.transposed)
    else:
        columns = weights if conv.transposed else [w.t() for w in weights]  # (channels of the input, of the output)
        terms = ((p.unsqueeze(2) * w.unsqueeze(0)).sum(1) for p, w in zip(parts, columns, strict=True))
        total = reduce(operator.add, terms)
    for axis in axes:
        total = total.unsqueeze(axis)
    return conv.add_bias(total, math.prod(sizes.values())), sizes


def _split(total: Any) -> tuple[Any, Any]:
    """A float32 sum as two tensors, which tf32 rounds to 21 bits together.

    A convolution may round each value that is summed to 11 bits, and these errors average out; that of a sum does not.
    """
    bits = _call(aten.view.dtype, total, torch.int32)
    coarse = _call(aten.view.dtype, bits & TF32_BITS, torch.float32)
    return coarse, total - coarse


def _call(function: Any, *args: Any) -> Any:
    """The function of proxies that come from several nodes, and so have tracers of their own."""
    nodes = map_aggregate(args, lambda a: a.node if isinstance(a, Proxy) else a)
    return Proxy(next(a for a in tree_leaves(nodes) if isinstance(a, Node)).graph.call_function(function, nodes))


def _cut(value: Node, axes: Collection[int], at: Sequence[Any]) -> Any:
    """A value at these places or slices of its axes."""
    chosen = dict(zip(axes, at, strict=True))
    return _proxy(value)[tuple(chosen.get(a, slice(None)) for a in range(max(axes) + 1))]


# ---------------------------------------------------------------- average pools


@dataclass(frozen=True)
class AveragePool:
    """The average over windows that lie side by side along the last axes; what is left over at an end is dropped."""

    window: tuple[int, ...]

    @property
    def axes(self) -> Collection[int]:
        return range(2, 2 + len(self.window))

    def take(self, node: Node) -> Found | None:
        if node.target != aten.convolution.default:
            return None
        conv = Convolution(*_args_of(node))
        if not conv.is_known or max(conv.dilation) > 1:
            return None
        total = (_pool_transposed if conv.transposed else _pool_convolution)(self.window, conv)
        return None if total is None else (conv.add_bias(total), {})

    def spread(self, value: Any, ndim: int, sizes: Mapping[int, Any]) -> Any:
        if isinstance(value, Node):
            same = all(_is_one(n) for a, n in _list_axes(value, ndim) if a in self.axes)
            return Proxy(value) if same else None
        return value


def _pool_convolution(pool: tuple[int, ...], conv: Convolution) -> Any:
    """The convolution with the pool's steps whose window has all windows that the pool averages."""
    wide = [n + (m - 1) * s for n, m, s in zip(conv.window, pool, conv.stride, strict=True)]
    if math.prod(wide) >= math.prod(conv.window) * math.prod(pool):
        return None
    moved = []
    for place in product(*map(range, pool)):
        around = [(i * s, w - n - i * s) for i, s, n, w in zip(place, conv.stride, conv.window, wide, strict=True)]
        moved.append(functional.pad(_proxy(conv.weight), [n for pair in reversed(around) for n in pair]))
    weight = reduce(operator.add, moved) / math.prod(pool)
    axes = [(s * m, p, 1, 0) for (_, s, p, *_), m in zip(conv.list_axes(), pool, strict=True)]
    return convolve(Proxy(conv.x), weight, axes, groups=conv.groups)


def _pool_transposed(pool: tuple[int, ...], conv: Convolution) -> Any:
    """A transposed convolution whose steps are the pool's window, which makes one output of each input: a plain one.

    The pool's output m has the outputs m * s + r for r below s: of x[m + t] those with t * s - p + k in 0 ... s - 1.
    """
    if tuple(conv.stride) != pool or conv.groups != 1:
        return None
    places, around = [], []
    for n, s, p, _, more in conv.list_axes():
        first, last = (p - n) // s + 1, (p + s - 1) // s
        starts = (p - t * s for t in range(first, last + 1))
        places.append([slice(max(0, start), min(n, start + s)) for start in starts])
        around.append((-first, (n - 2 * p + more) // s - 1 + last))
    x = functional.pad(_proxy(conv.x), [n for pair in reversed(around) for n in pair])
    axes = range(2, 2 + len(pool))
    sums = [_cut(conv.weight, axes, place).sum(list(axes)) for place in product(*places)]
    channels = [Proxy(conv.weight).size(a) for a in (0, 1)]
    weight = _call(aten.stack.default, sums, 2).reshape(*channels, *map(len, places)).transpose(0, 1) / math.prod(pool)
    return convolve(x, weight, [(1, 0, 1, 0)] * len(pool))


def _pool_columns(node: Any, width: int) -> Any:
    """An average pool of a product's rows, as a product with the pooled weights; None for anything else."""
    if not isinstance(node, Node) or node.target != aten.unsqueeze.default or node.args[1] != 1 or not _is_single(node):
        return None
    inner = node.args[0]
    if (
        not isinstance(inner, Node)
        or inner.target not in (aten.mm.default, aten.addmm.default)
        or not _is_single(inner)
    ):
        return None
    *bias, left, right = map(_proxy, inner.args)
    total = left @ _pool_rows(right.t(), width).t()
    if bias:
        total = total + _pool_rows(bias[0].unsqueeze(1), width).squeeze(1)
    return total.unsqueeze(1).unsqueeze(1)


def _pool_rows(matrix: Any, width: int) -> Any:
    return functional.avg_pool2d(matrix.unsqueeze(0), (width, 1)).squeeze(0)
