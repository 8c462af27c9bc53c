"""Sizes as symbols, while a reference is traced and TorchInductor works: kernels are then right for all sizes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, TypeGuard
from unittest import mock

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Max
from torch.utils._sympy.value_ranges import bound_sympy

from kernelsearch.worker.launcher.standin import replace_attributes


class BecameConstant(Exception):
    """Symbols turned out to have one value only, or cannot be followed.

    beyond: some shape has 2**31 elements; factors are those that symbols would need to be multiples of.
    """

    def __init__(self, names: Collection[str], beyond: bool = False, factors: Mapping[str, int] | None = None) -> None:
        self.names, self.beyond, self.factors = names, beyond, factors or {}


def make_symbol(env: ShapeEnv, name: str, value: int, factor: int = 1) -> Any:
    """A size with this value; with a factor, that many times a symbol."""
    source = ConstantSource(name)
    symbol = env.create_symbol(value // factor, source=source, dynamic_dim=DimDynamic.DYNAMIC)
    return env.create_symintnode(factor * symbol, hint=value, source=source if factor == 1 else None)


def pick_symbols(names: Sequence[str], values: Sequence[Any]) -> dict[str, torch.SymInt]:
    """Those of the named values that are symbols."""
    return {name: value for name, value in zip(names, values, strict=True) if _is_symbol(value)}


def _is_symbol(size: Any) -> TypeGuard[torch.SymInt]:
    return isinstance(size, torch.SymInt)


def find_factors(
    env: ShapeEnv, symbols: Mapping[str, torch.SymInt], inputs: Sequence[torch.Tensor] = ()
) -> dict[str, int]:
    """What sizes were found to be multiples of, such as channels of the number of groups.

    inputs may have quotients of sizes as theirs: a width that is shared by heads.
    """
    known = [(mod.args[0], int(mod.args[1])) for mod in env.divisible if mod.args[1].is_Integer]
    sizes = (size.node.expr for x in inputs for size in x.shape if _is_symbol(size))
    quotients = (q for size in sizes for q in size.atoms(FloorDiv) if q.args[1].is_Integer)
    known += [(q.args[0], int(q.args[1])) for q in quotients]
    factors = {name: [n for size, n in known if size == value.node.expr] for name, value in symbols.items()}
    return {name: math.lcm(*numbers) for name, numbers in factors.items() if numbers}


def _read_multiple(size: torch.SymInt) -> tuple[sympy.Symbol, int] | None:
    """(The symbol that a size is a multiple of, the factor); None where it became a number or something else."""
    expr = size.node.expr
    if len(expr.free_symbols) != 1:
        return None
    (symbol,) = expr.free_symbols
    factor = expr.coeff(symbol)
    return (symbol, int(factor)) if factor and expr == factor * symbol and factor.is_Integer else None


@contextmanager
def take_symbols() -> Iterator[None]:
    """Within the context, modules take symbols as sizes, and weights get no values: initialisers cannot use symbols."""
    named = [n for n in dir(torch.nn.init) if n.endswith("_") and not n.startswith("_")]
    fills = {name: lambda tensor, *args, **kwargs: tensor for name in named}
    sizes = SimpleNamespace(Integral=(int, torch.SymInt))
    with (
        replace_attributes(torch.nn.init, _calculate_fan_in_and_fan_out=lambda tensor: (1, 1), **fills),
        replace_attributes(torch.nn.modules.normalization, numbers=sizes),
    ):
        yield


def keep_len(module: ModuleType) -> AbstractContextManager[Any]:
    """A context in which `len` of a tensor is a symbol in a module's own code: Python's would make it a number."""
    return mock.patch.dict(vars(module), {"len": lambda x: x.shape[0] if isinstance(x, torch.Tensor) else len(x)})


@contextmanager
def drop_maxima(env: ShapeEnv) -> Iterator[None]:
    """Within the context, the larger one of 1 and a size is the size: strides have it, for sizes of 0."""
    make = Max.__new__

    def make_unless_known(cls: type, *args: Any, **options: Any) -> Any:
        sizes = [a for a in args if isinstance(a, sympy.Expr) and not a.is_number]
        if len(args) == 2 and len(sizes) == 1 and 1 in args and bound_sympy(sizes[0], env.var_to_range).lower >= 0:
            return sizes[0]
        return make(cls, *args, **options)

    with mock.patch.object(Max, "__new__", make_unless_known):
        yield


def check_guards(env: ShapeEnv, symbols: Mapping[str, torch.SymInt], shapes: Sequence[Mapping[str, Any]]) -> None:
    """Raises BecameConstant with the names in what was assumed of the sizes and is not so for one of these shapes.

    That is what decides between code: a size divides another, fewer than 2**31 elements. Of others, such as that a size
    is not 1, the kernels are right for the opposite too.
    """
    own = {read[0]: (name, read[1]) for name, value in symbols.items() if (read := _read_multiple(value))}
    broken, beyond = set[str](), False
    for guard in {env.replace(guard.expr) for guard in env.guards}:
        if isinstance(guard, sympy.Eq) or (isinstance(guard, sympy.Le) and guard.rhs == 2**31 - 1):
            names = {own[s][0] for s in guard.free_symbols if s in own}
            if any(guard.subs({s: p[n] // factor for s, (n, factor) in own.items()}) == sympy.false for p in shapes):
                broken, beyond = broken | names, beyond or isinstance(guard, sympy.Le)
    if broken:
        raise BecameConstant(broken, beyond)


def carry_hidden(
    symbols: Mapping[str, torch.SymInt], inputs: Sequence[torch.Tensor], given: Mapping[str, torch.SymInt]
) -> tuple[tuple[str, ...], list[torch.Tensor]]:
    """(Expressions for the symbols that are no input's size, a tensor with these symbols as its sizes).

    Inductor follows no other sizes than those of its arguments. An input has a multiple of such a symbol, and perhaps
    something more, or it is one of those that are given as a number, by name. The expressions have `{0}` and so on for
    the inputs; where no symbol is hidden there is no tensor.
    """
    shapes = [(i, axis, size) for i, x in enumerate(inputs) for axis, size in enumerate(x.shape)]
    sizes = [(i, axis, sympy.expand(size.node.expr)) for i, axis, size in shapes if _is_symbol(size)]
    plain, hidden = {size for _, _, size in sizes}, dict[str, tuple[str, torch.SymInt]]()
    for value in symbols.values():
        symbol, own = _read_multiple(value) or (None, 1)
        if symbol is None or symbol in plain:
            continue
        for name, number in given.items():
            if number.node.expr == own * symbol:
                hidden[str(symbol)] = name if own == 1 else f"{name} // {own}", value // own
        for i, axis, size in sizes:
            factor, more = size.coeff(symbol), size.subs(symbol, 0)
            if size == factor * symbol + more and factor.is_Integer and more.is_Integer and factor > 0:
                text = f"({{{i}}}.shape[{axis}] - {more})" if more else f"{{{i}}}.shape[{axis}]"
                hidden[str(symbol)] = f"{text} // {factor}", value // own
    carrier = [torch.empty([size for _, size in hidden.values()], device=inputs[0].device)] if hidden else []
    return tuple(text for text, _ in hidden.values()), carrier
