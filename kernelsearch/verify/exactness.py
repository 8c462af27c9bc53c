"""Where whole numbers must come out exact: every order of sums and products of small ones gives the same bits.

A division is another matter. Attention over three equal keys gives back their value, and an honest kernel that
multiplies by the reciprocal of the sum of weights, 3 * v * (1 / 3), does not hit it. So exactness is asked for only
where the reference consists of operations that an honest kernel cannot write in a way that rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelsearch.verify.dispatch import DispatchMode

LARGEST = 2**20
"""Sums of whole numbers below this are far from 2**24, where float32 begins to round them."""

UNIT = 2.0**-8
"""What products of two multiples of 1/16 are multiples of."""

_SUMS_AND_PRODUCTS = (
    "add addbmm addcmul addmm addmv addr baddbmm bmm cross cumprod cumsum dot index_add mm mul mv neg prod "
    "rsub scatter_add square sub sum trace vdot"
)
_SELECTIONS = (
    "abs amax amin aminmax argmax argmin argsort bincount ceil clamp clamp_max clamp_min cummax cummin floor hardtanh "
    "max max_pool2d_with_indices max_pool3d_with_indices maximum min minimum relu round sgn sign sort threshold topk "
    "trunc unique where"
)
_COMPARISONS = (
    "all any bitwise_and bitwise_not bitwise_or bitwise_xor eq ge gt isfinite isinf isnan le logical_and logical_not "
    "logical_or logical_xor lt ne nonzero"
)
_MOVES = (
    "arange cat clone constant_pad_nd copy embedding empty empty_like empty_strided eye fill flip full full_like "
    "gather index index_copy index_put index_select lift_fresh masked_fill masked_scatter masked_select new_empty "
    "new_full new_ones new_zeros ones ones_like repeat resize roll scalar_tensor scatter scatter_reduce "
    "select_scatter slice_scatter stack take tril triu zero zeros zeros_like _local_scalar_dense _reshape_alias "
    "_to_copy _unsafe_view"
)
EXACT = frozenset(f"{_SUMS_AND_PRODUCTS} {_SELECTIONS} {_COMPARISONS} {_MOVES}".split())
"""Names of torch's operations (`aten`) without the underscore of those that work in place."""


class _Operations(DispatchMode):
    """While it is active, `exact` becomes False at the first operation that is not one of `EXACT` or a view."""

    exact = True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        powers = name in ("pow", "pow_") and type(args[1]) in (int, float) and args[1] in (2, 3)
        self.exact &= func.is_view or powers or name in EXACT or name.rstrip("_") in EXACT
        return func(*args, **(kwargs or {}))


def has_exact_operations(evaluate: Callable[[list[Any]], object], inputs: list[Any]) -> bool:
    """True if a reference, run on these inputs, only sums, multiplies, selects, compares and moves."""
    with _Operations() as operations:
        evaluate(inputs)
    return operations.exact


def is_exact(y: torch.Tensor, eager: torch.Tensor, rounded: torch.Tensor) -> bool:
    """True for multiples of 1 or UNIT, not all equal, far below 2**24, that eager hits: every order of summing must."""
    whole = any(bool((z == z.round()).all()) and bool((z.abs() < LARGEST).all()) for z in (y, y / UNIT))
    return whole and y.numel() > 1 and bool((y != y.reshape(-1)[0]).any()) and bool(torch.equal(eager, rounded))
