"""How many terms a reference sums into one number: what an honest kernel's sums may err by grows with it."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernelsearch.verify.dispatch import DispatchMode, list_tensors
from kernelsearch.verify.tolerance import COPIES, PRODUCTS

MOVES = COPIES | {"embedding", "constant_pad_nd", "detach", "alias", "fill_", "zero_"}
"""Operations that neither round nor sum."""
POINTWISE = frozenset(("hardswish", "glu", "log_sigmoid_forward", "_prelu_kernel"))
"""Operations of single elements that torch does not tag so."""
ADDITIONS = frozenset(("add", "sub", "rsub", "addcmul", "addcdiv", "lerp"))
"""Those that may be one of many by which a reference sums by itself."""
REDUCTIONS = frozenset(
    "sum mean var var_mean std std_mean linalg_vector_norm logsumexp prod amax amin max min nansum".split()
)
"""Operations that make one number of so many elements as the result has fewer."""


class TermsMode(DispatchMode):
    """While it is active, it counts the terms that the operations of torch sum.

    most is the product of what they sum one after another, infinite where one sums an unknown number; longest is what
    a single convolution sums, which no axis shows, and deepest what a single matrix product does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[float] = []
        self.longest = 1.0
        self.deepest = 0.0

    @property
    def most(self) -> float:
        return math.prod(self.counts) if self.counts else math.inf

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given, made = list_tensors((args, kwargs)), list_tensors(result)
        if any(v.is_complex() for v in (*given, *made)):
            self.counts.append(math.inf)
        elif any(v.is_floating_point() for v in given):
            self.counts.append(self._count(func, args, result))
        return result

    def _count(self, func: Any, args: tuple, result: Any) -> float:
        name = func._schema.name.removeprefix("aten::")
        if func.is_view or name in MOVES:
            return 1.0
        name = name.removesuffix("_")
        if torch.Tag.pointwise in func.tags or name in POINTWISE:
            whole = [v for v in list_tensors(args) if v.shape == list_tensors(result)[0].shape]
            return 2.0 if name in ADDITIONS and len(whole) > 1 else 1.0
        if name == "convolution":
            terms = _count_convolution(*args[1:9])
            self.longest = max(self.longest, terms)
            return terms
        if name in PRODUCTS:
            self.deepest = max(self.deepest, float(args[PRODUCTS[name]].shape[-1]))
            return float(args[PRODUCTS[name]].shape[-1])
        if name not in REDUCTIONS:
            return math.inf
        first = list_tensors(result)[0]
        return max(1.0, args[0].numel() / max(1, first.numel()))


def _count_convolution(
    weight: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, more: Any, groups: int
) -> float:
    """The most elements of the input that one of the output takes."""
    sizes = list(weight.shape[2:])
    if not transposed:
        return float(weight.shape[1] * math.prod(sizes))
    steps, gaps = (list(v) * (len(sizes) if len(v) == 1 else 1) for v in (stride, dilation))
    taps = [size if gap > 1 else -(-size // step) for size, step, gap in zip(sizes, steps, gaps, strict=True)]
    return float(weight.shape[0] // groups * math.prod(taps))
