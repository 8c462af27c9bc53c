"""Splits the loops of kernels between axes, where TorchInductor would split them at some number of elements.

A mean over the batch and the pixels of an image is computed in parts, and a second kernel joins these. Inductor's parts
are as long as each other; where one ends in the middle of an image, each element's address takes divisions and a mask.
A part for each image, or each of its rows, needs neither. So it is with tiles: they have rows and columns where
Inductor knows that there are whole rows, which it does not know where a row is shorter than the input's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import sympy
import torch._inductor.sizevars as sizevars
import torch._inductor.tiling_utils as tiling_utils
from torch._inductor.codegen.block_analysis import BlockPatternMatcher
from torch._inductor.ir import Reduction, View, WelfordReduction
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing
from torch.utils._sympy.value_ranges import ValueRangeError

FEWEST, MOST = 0.5, 32.0
"""How many parts there may be for each one of Inductor's, which fill the GPU."""


@contextmanager
def split_between_axes() -> Iterator[None]:
    """Within the context, Inductor splits tiles between axes, and reductions where that makes about as many parts."""
    with ExitStack() as stack:
        knows = _know_multiples(SizeVarAllocator.statically_known_multiple_of)
        stack.enter_context(mock.patch.object(SizeVarAllocator, "statically_known_multiple_of", knows))
        for owner, name, error, unknown in (
            (SizeVarAllocator, "guard_or_false", ValueRangeError, False),  # a remainder of sums may have no range
            (tiling_utils, "extract_normalized_read_writes", AssertionError, None),  # then tiles are by rules alone
        ):
            stack.enter_context(mock.patch.object(owner, name, _unless(getattr(owner, name), error, unknown)))
        reshape = staticmethod(_reshape_in_bounds(View._dynamic_reshape_indexer))
        stack.enter_context(mock.patch.object(View, "_dynamic_reshape_indexer", reshape))
        stack.enter_context(mock.patch.object(sizevars, "join_dimensions", _join_all))
        match = _match_divided(BlockPatternMatcher.match_mod_div_block_expr)
        stack.enter_context(mock.patch.object(BlockPatternMatcher, "match_mod_div_block_expr", match))
        for kind, split_between in ((Reduction, _reduce_parts), (WelfordReduction, _merge_parts)):
            split = _split(kind.create_multilayer, split_between)
            stack.enter_context(mock.patch.object(kind, "create_multilayer", split))
        yield


def _know_multiples(knows: Callable[..., bool]) -> Callable[..., bool]:
    """Inductor's own method, which also knows the multiples of polynomials."""
    return lambda sizes, number, divisor: knows(sizes, number, divisor) or _divides(divisor, number)


def _unless(analyse: Callable[..., Any], error: type[Exception], unknown: Any) -> Callable[..., Any]:
    """Inductor's own function, of which the answer is `unknown` where it ends in this error."""

    def call(*args: Any) -> Any:
        try:
            return analyse(*args)
        except error:
            return unknown

    return call


def _join_all(expr: sympy.Expr) -> sympy.Expr:
    """Inductor's own function `join_dimensions`, which also joins where a row's length is a sum, such as `w - 2`.

    So the planes, rows and columns of a volume become one number, two at a time. Inductor matches patterns with each
    pair of terms, of which symbols as sizes make hundreds.
    """
    if not expr.has(ModularIndexing):
        return expr
    flat, joined = sympy.expand(expr), False
    while (pair := _find_pair(flat)) is not None:
        (column, row), joined = pair, True
        number, divisor, length = column.args
        both = FloorDiv(number, divisor)
        if len(row.args) == 3:
            both = ModularIndexing(number, divisor, sympy.expand(length * row.args[2]))
        flat = sympy.expand(flat - flat.coeff(column) * (column - both) - flat.coeff(row) * row)
    return flat if joined else expr


def _find_pair(expr: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr] | None:
    """(`n // a % b`, `n // ab` or `n // ab % c`) of which an expanded sum holds b times as much of the second."""
    parts = sorted(expr.atoms(FloorDiv, ModularIndexing), key=str)
    for column in (part for part in parts if len(part.args) == 3):
        number, divisor, length = column.args
        for row in (part for part in parts if part != column and part.args[0] == number):
            step, stride = expr.coeff(column), expr.coeff(row)
            follows = sympy.expand(row.args[1] - divisor * length) == 0
            if follows and step != 0 and sympy.expand(stride - step * length) == 0:
                return column, row
    return None


def _match_divided(match: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's own method for indices that divide the variable: others never match, which takes minutes."""

    def match_some(index: sympy.Expr, variable: sympy.Symbol, *given: Any) -> Any:
        parts = index.atoms(FloorDiv, ModularIndexing)
        return match(index, variable, *given) if any(variable in part.free_symbols for part in parts) else None

    return match_some


def _reshape_in_bounds(reshape: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's own method without the remainder by the outermost axis, which no element's number exceeds."""

    def reshape_one(old: Sequence[Any], new: Sequence[Any], dense: int | None = None) -> Callable[..., Any]:
        reindex = reshape(old, new, dense)
        outer = next((n for n, size in enumerate(old) if size != 1), None)
        if outer is None or len(new) != 1 or dense is not None:
            return reindex

        def find(index: Sequence[Any]) -> list[Any]:
            places = list(reindex(index))
            if isinstance(places[outer], ModularIndexing):
                places[outer] = FloorDiv(*places[outer].args[:2])
            return places

        return find

    return reshape_one


def _divides(divisor: Any, number: Any) -> bool:
    """Whether one polynomial in sizes is a multiple of another, such as `hw - 2h - 2w + 4` of `w - 2`."""
    if not all(isinstance(e, sympy.Expr) and e.free_symbols for e in (divisor, number)):
        return False
    try:
        quotient, rest = sympy.div(sympy.expand(number), divisor)
    except sympy.PolynomialError:
        return False
    return rest == 0 and all(c.is_Integer for c in quotient.as_coefficients_dict().values())


def _split(split_evenly: Callable[..., Any], split_between: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's own method with the other way to split where an axis ends at the right place."""
    signature = inspect.signature(split_evenly)

    def split(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        axes = given["reduction_ranges"]
        count = _count_axes(axes, given["split"])
        return split_between(axes[:count], axes[count:], given) if count else split_evenly(*args, **kwargs)

    return split


def _count_axes(axes: Sequence[Any], split: int) -> int:
    """How many of the outer axes make as many parts as are needed; 0, if no number of them does."""
    return next((n for n in range(1, len(axes)) if FEWEST * split <= _hint(axes[:n]) <= MOST * split), 0)


def _hint(axes: Sequence[Any]) -> int:
    return int(V.graph.sizevars.optimization_hint(sympy_product(axes), fallback=1))


def _reduce_parts(outer: Sequence[Any], inner: Sequence[Any], given: dict[str, Any]) -> Any:
    """A reduction over the inner axes, then one of its results over the outer ones."""
    ranges = given["ranges"]
    return Reduction.create_multilayer_helper(
        given["device"],
        given["dst_dtype"],
        given["src_dtype"],
        _move_axes(given["inner_fn"], len(ranges)),
        ranges,
        given["reduction_ranges"],
        [*ranges, *outer],
        list(inner),
        given["reduction_type"],
        _hint(outer),
        given["reduction_hint"],
    )


def _merge_parts(outer: Sequence[Any], inner: Sequence[Any], given: dict[str, Any]) -> Any:
    """The same of mean, squared deviations and count."""
    device, dtype, ranges, hint = (given[name] for name in ("device", "dtype", "ranges", "reduction_hint"))
    loaders = tuple(_move_axes(load, len(ranges)) for load in given["inner_fns"])
    parts = WelfordReduction.create(
        device, dtype, loaders, [*ranges, *outer], list(inner), given["reduction_type"], hint
    )
    for part in parts:
        part.realize()
    hint = WelfordReduction._multilayer_second_step_hint(_hint(outer), _hint(ranges), hint)
    merged = tuple(partial(_load, part.make_loader()) for part in parts)
    return WelfordReduction.create(device, dtype, merged, ranges, list(outer), "welford_combine", hint)


def _move_axes(load: Callable[..., Any], kept: int) -> Callable[..., Any]:
    """The loader of a part: the axes that tell the parts apart come with those that are kept."""
    return lambda index, reduced: load(index[:kept], [*index[kept:], *reduced])


def _load(load: Callable[..., Any], index: Sequence[Any], reduced: Sequence[Any]) -> Any:
    return load([*index, *reduced])
