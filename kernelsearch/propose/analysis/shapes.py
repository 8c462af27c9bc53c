"""Shapes of the values of a jit function, as far as its text tells: which are scalars, which blocks.

A shape is a tuple of dimensions written as text (`("BLOCK_M", "BLOCK_N")`, `()` for a scalar); None is unknown.
"""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import kinds
from kernelsearch.propose.analysis.kinds import SCALAR
from kernelsearch.propose.analysis.reader import KindReader, axis_of

__all__ = ["Shape", "Shapes", "axis_of"]

Shape = kinds.Shape | None


class Shapes:
    """The shapes of one function: `of(node)` of each expression, `names` behind the last statement."""

    def __init__(self, function: ast.FunctionDef, constexprs: tuple[str, ...]) -> None:
        arguments = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
        self._reader = KindReader(dict.fromkeys([*arguments, *constexprs], SCALAR), other=SCALAR)
        self._reader.read(function.body)
        self.names: dict[str, Shape] = {name: kind.shape for name, kind in self._reader.scope.items()}

    def of(self, node: ast.AST) -> Shape:
        """The shape of an expression of the function; None where it is unknown."""
        kind = self._reader.by_node.get(id(node))
        return kind.shape if kind is not None else None
