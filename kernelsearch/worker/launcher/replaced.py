"""What is traced in place of operations that TorchInductor calls libraries for, or makes right for one size only."""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def _slide_windows(
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

    The library's has no tensor cores for it either, and nothing is fused with it.
    """
    window = weight.shape[2:]
    known = all(isinstance(n, int) for n in window) and math.prod(window) <= LARGEST_WINDOW
    if not known or transposed or weight.shape[1] != 1 or weight.shape[0] != x.shape[1] or x.shape[1] != groups:
        return NotImplemented
    if any(padding):
        x = functional.pad(x, [n for p in reversed(padding) for n in (p, p)])
    reach = [d * (n - 1) for d, n in zip(dilation, window, strict=True)]
    counts = [(n - r - 1) // s + 1 for n, r, s in zip(x.shape[2:], reach, stride, strict=True)]
    total = None
    for place in product(*map(range, window)):
        starts = [d * i for d, i in zip(dilation, place, strict=True)]
        spans = [slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(starts, counts, stride, strict=True)]
        part = x[(..., *spans)] * weight[(slice(None), 0, *place)].reshape(-1, *[1] * len(window))
        total = part if total is None else total + part
    return total if bias is None else total + bias.reshape(-1, *[1] * len(window))


def _first(number: Any) -> Any:
    return number[0] if isinstance(number, (tuple, list)) else number


def _pool_rows(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`max_pool1d` as a pool of planes that are one row high: PyTorch's own asks for plain sizes."""
    window = _first(kernel_size)
    spans = (1, window), (1, _first(stride) if stride else window), (0, _first(padding)), (1, _first(dilation))
    return functional.max_pool2d(x.unsqueeze(-2), *spans, ceil_mode).squeeze(-2)


FUNCTIONS = {torch.max_pool1d: _pool_rows, functional.max_pool1d: _pool_rows}


class Replacing(TorchFunctionMode):
    """Within the context, functions that would make sizes constant are replaced before they reach the dispatcher."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return FUNCTIONS.get(function, function)(*args, **(kwargs or {}))


REPLACED = {
    torch.ops.aten.mm.default: _multiply_vector,
    torch.ops.aten.mv.default: _multiply_vector,
    torch.ops.aten.convolution.default: _slide_windows,
    **get_decompositions([torch.ops.aten.glu]),
}
