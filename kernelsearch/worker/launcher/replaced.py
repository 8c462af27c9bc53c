"""What is traced in place of operations that TorchInductor calls libraries for, or makes right for one size only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import product
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.nn import functional
from torch.overrides import TorchFunctionMode

LARGEST_WINDOW = 49
"""Elements of a channel's window up to which its convolution is a sum of that many products."""


def _multiply_vector(matrix: Any, vector: Any) -> Any:
    """A product with a single column as a reduction: `tl.dot` needs a matrix."""
    if vector.ndim == 1:
        return (matrix * vector).sum(1)
    return (matrix * vector.t()).sum(1, keepdim=True) if vector.shape[1] == 1 else NotImplemented


def _convolve(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A convolution of each channel by itself as a sum over the window, which is a kernel like other element-wise ones.

    The library's has no tensor cores for it either, and nothing is fused with it. Other convolutions stay, but a bias
    is added by the kernel after them, because cuDNN's reads and writes everything once more.
    """
    window = weight.shape[2:]
    apart = not transposed and weight.shape[1] == 1 and weight.shape[0] == x.shape[1] == groups
    if apart and math.prod(read_hint(n) for n in window) <= LARGEST_WINDOW:
        window = list(map(int, window))  # right for this one only, as the library's is
    else:
        if bias is None:
            return NotImplemented
        given = (stride, padding, dilation, transposed, output_padding, groups)
        return torch.ops.aten.convolution.default(x, weight, None, *given) + bias.reshape(-1, *[1] * len(window))
    if any(padding):
        x = functional.pad(x, [n for p in reversed(padding) for n in (p, p)])
    total = None
    for place, part in _list_windows(x, window, stride, dilation):
        part = part * weight[(slice(None), 0, *place)].reshape(-1, *[1] * len(window))
        total = part if total is None else total + part
    return total if bias is None else total + bias.reshape(-1, *[1] * len(window))


def read_hint(size: int | torch.SymInt) -> int:
    """A size, or what a symbol stands for where it is traced, without making it constant."""
    return size if isinstance(size, int) else size.node.hint


def _list_windows(
    x: Any, window: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Each place of a window, with what of x is there in all windows."""
    reach = [d * (n - 1) for d, n in zip(dilation, window, strict=True)]
    sizes = x.shape[-len(window) :]
    counts = [(n - r - 1) // s + 1 for n, r, s in zip(sizes, reach, stride, strict=True)]
    for place in product(*map(range, window)):
        starts = [d * i for d, i in zip(dilation, place, strict=True)]
        spans = [slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(starts, counts, stride, strict=True)]
        yield place, x[(..., *spans)]


def _pool(function: Any, axes: int) -> Any:
    """`max_pool1d` or `max_pool3d` as the largest of the window's elements.

    PyTorch's own asks for plain sizes of rows, and TorchInductor reduces over the window of a volume, which takes
    divisions for each element.
    """

    def pool(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        window, pad, apart = (_repeat(n, axes) for n in (kernel_size, padding, dilation))
        if ceil_mode or return_indices or math.prod(window) > LARGEST_WINDOW:
            indices = {"return_indices": True} if return_indices else {}
            return function(x, kernel_size, stride or kernel_size, padding, dilation, ceil_mode, **indices)
        if any(pad):
            x = functional.pad(x, [n for p in reversed(pad) for n in (p, p)], value=-math.inf)
        parts = (part for _, part in _list_windows(x, window, _repeat(stride or kernel_size, axes), apart))
        return reduce(torch.maximum, parts)

    return pool


def _average_volumes(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """`avg_pool3d`, a library call, as the sum of the window's elements."""
    window, pad = _repeat(kernel_size, 3), _repeat(padding, 3)
    known = count_include_pad or not any(pad)
    if ceil_mode or not known or math.prod(window) > LARGEST_WINDOW:
        return NotImplemented
    if any(pad):
        x = functional.pad(x, [n for p in reversed(pad) for n in (p, p)])
    parts = (part for _, part in _list_windows(x, window, _repeat(stride or kernel_size, 3), (1, 1, 1)))
    return reduce(torch.add, parts) / (divisor_override or math.prod(window))


def _normalize_groups(
    x: Any, weight: Any, bias: Any, rows: Any, channels: Any, inner: Any, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    """`native_group_norm`, of which PyTorch's decomposition writes a scale and a shift of each channel for a CPU.

    The stand-in of a GPU would get these, and a row of channels without places a scale and a shift of each element.
    Where channels are known to be so many times the groups, all is in groups, and one kernel does it.
    """
    wide = x.float() if x.dtype.itemsize < 4 else x
    own = channels // groups
    parts = wide.reshape(rows, groups, own, inner)
    variance, mean = torch.var_mean(parts, dim=(2, 3), unbiased=False)
    rstd = torch.rsqrt(variance + eps)
    if isinstance(channels, torch.SymInt) and (channels.node.expr / groups).is_integer:
        wide, shape = parts, (1, groups, own, 1)
        spread = [t[..., None, None] for t in (mean, rstd)]
    else:
        shape = (1, channels, *[1] * (x.ndim - 2))
        spread = [t[..., None].expand(rows, groups, own).reshape(rows, *shape[1:]) for t in (mean, rstd)]
    out = (wide - spread[0]) * spread[1]
    out = out if weight is None else out * weight.reshape(shape)
    out = out if bias is None else out + bias.reshape(shape)
    return out.reshape(x.shape).to(x.dtype), mean.to(x.dtype), rstd.to(x.dtype)


def _repeat(number: Any, axes: int) -> tuple[int, ...]:
    given = tuple(number) if isinstance(number, (tuple, list)) else (number,)
    return given * axes if len(given) == 1 else given


FUNCTIONS = {
    torch.max_pool1d: _pool(torch.max_pool1d, 1),
    functional.max_pool1d: _pool(functional.max_pool1d, 1),
    torch.max_pool3d: _pool(torch.max_pool3d, 3),
    functional.max_pool3d: _pool(functional.max_pool3d, 3),
}


class Replacing(TorchFunctionMode):
    """Within the context, functions that would make sizes constant are replaced before they reach the dispatcher."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return FUNCTIONS.get(function, function)(*args, **(kwargs or {}))


REPLACED: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.mm.default: _multiply_vector,
    torch.ops.aten.mv.default: _multiply_vector,
    torch.ops.aten.convolution.default: _convolve,
    torch.ops.aten.native_group_norm.default: _normalize_groups,
    **get_decompositions([torch.ops.aten.glu]),
}
REPLACED_LATE = {torch.ops.aten.avg_pool3d.default: _average_volumes}
"""The same, for what `move_sums` must have found first."""


def prefers_channels_last(graph: torch.fx.GraphModule) -> bool:
    """True if all convolutions of a reference are of whole channels: with tensor cores cuDNN wants channels last.

    TorchInductor decides so too, where sizes are constants and a GPU is there (`decide_layout_opt`).
    """
    groups = [n.args[8] for n in graph.graph.nodes if n.target == torch.ops.aten.convolution.default]
    return bool(groups) and set(groups) == {1}


def sums_windows(graph: torch.fx.GraphModule) -> bool:
    """True if a convolution became a sum over its window: such a kernel is long, and still no work is done twice."""
    weights = [n.args[1] for n in graph.graph.nodes if n.target == torch.ops.aten.mul.Tensor]
    views = [w for w in weights if getattr(w, "target", None) == torch.ops.aten.view.default]
    return any(view.args[0].target == torch.ops.aten.select.int for view in views)


def holds_late(graph: torch.fx.GraphModule) -> bool:
    """True if a traced reference has operations that are replaced late."""
    return any(node.target in REPLACED_LATE for node in graph.graph.nodes)
