"""How many terms a reference sums into one number: what an honest kernel's sums may err by grows with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelsearch.verify.dispatch import DispatchMode
from kernelsearch.verify.tolerance import COPIES

MOVES = COPIES | {"embedding", "constant_pad_nd", "detach", "alias", "fill_", "zero_"}
"""Operations that neither round nor sum."""
POINTWISE = frozenset(("hardswish", "glu", "log_sigmoid_forward", "_prelu_kernel"))
"""Operations of single elements that torch does not tag so."""
PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}
"""The position of the operand whose last axis a product sums."""


class TermsMode(DispatchMode):
    """While it is active, it counts the terms that the operations of torch sum.

    most is the product of what they sum one after another, infinite where one sums an unknown number; longest is what
    a single convolution sums, which no axis shows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[float] = []
        self.longest = 1.0

    @property
    def most(self) -> float:
        return math.prod(self.counts) if self.counts else math.inf

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor) and v.is_floating_point()]
        if tensors:
            self.counts.append(self._count(func, args, tensors, result))
        return result

    def _count(self, func: Any, args: tuple, tensors: Sequence[torch.Tensor], result: Any) -> float:
        name = func._schema.name.removeprefix("aten::")
        if func.is_view or torch.Tag.pointwise in func.tags or name in MOVES or name.rstrip("_") in POINTWISE:
            return 1.0
        if name == "convolution":
            weight, transposed = args[1], args[6]
            terms = weight.numel() / max(1, weight.shape[1] if transposed else weight.shape[0])
            self.longest = max(self.longest, terms)
            return terms
        if name in PRODUCTS:
            return float(args[PRODUCTS[name]].shape[-1])
        first = next((v for v in tree_leaves(result) if isinstance(v, torch.Tensor)), None)
        ratio = max(v.numel() for v in tensors) / max(1, first.numel()) if first is not None else math.inf
        return ratio if ratio > 1.0 else math.inf
