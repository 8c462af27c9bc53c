"""Integer expressions as polynomials, so that two of them can be compared however they are written."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelsearch.propose.analysis import tree


class Opaque(Exception):
    """A name is inside something that is no sum, difference or product."""


@dataclass(frozen=True)
class Polynomial:
    """Coefficients other than 0 by monomial, each the sorted names or texts that are multiplied."""

    terms: frozenset[tuple[tuple[str, ...], int]]

    @staticmethod
    def of(name: str) -> Polynomial:
        return Polynomial(frozenset({((name,), 1)}))

    @staticmethod
    def number(value: int) -> Polynomial:
        return _make(Counter({(): value}))

    def __add__(self, other: Polynomial) -> Polynomial:
        total = Counter(dict(self.terms))
        total.update(dict(other.terms))
        return _make(total)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + Polynomial.number(-1) * other

    def __mul__(self, other: Polynomial) -> Polynomial:
        total: Counter[tuple[str, ...]] = Counter()
        for a, x in self.terms:
            for b, y in other.terms:
                total[tuple(sorted(a + b))] += x * y
        return _make(total)


def _make(terms: Counter[tuple[str, ...]]) -> Polynomial:
    return Polynomial(frozenset((names, n) for names, n in terms.items() if n))


def read_polynomial(node: ast.expr, known: Callable[[str], Polynomial | None], moving: set[str]) -> Polynomial:
    """An expression; known gives a name's polynomial, None for the name itself. What else there is, is one name.

    Raises Opaque where that has a name of moving inside. Casts to integers are left out: no index overflows.
    """

    def read(n: ast.AST) -> Polynomial:
        match n:
            case ast.Constant(int(value)):
                return Polynomial.number(value)
            case ast.Name(name):
                return known(name) or Polynomial.of(name)
            case ast.UnaryOp(ast.USub(), operand):
                return Polynomial.number(-1) * read(operand)
            case ast.BinOp(left, ast.Add(), right):
                return read(left) + read(right)
            case ast.BinOp(left, ast.Sub(), right):
                return read(left) - read(right)
            case ast.BinOp(left, ast.Mult(), right):
                return read(left) * read(right)
            case ast.Call(ast.Attribute(inner, "to"), [ast.Attribute(_, "int32" | "int64")], []):
                return read(inner)
            case ast.Call(_, [inner, ast.Attribute(_, "int32" | "int64")], []) if tree.is_tl(n, "cast"):
                return read(inner)
            case ast.Call(_, [_, ast.Constant(int(value)), _], []) if tree.is_tl(n, "full"):
                return Polynomial.number(value)
        if tree.reads(n) & moving:
            raise Opaque
        return Polynomial.of(tree.text_of(n))

    return read(node)


def evaluate_polynomial(polynomial: Polynomial, values: Mapping[str, Any]) -> int | None:
    """Its number where each name has its value; None if one has none that is a whole number."""
    total = 0
    for names, factor in polynomial.terms:
        known = [values.get(name) for name in names]
        if not all(isinstance(value, int) for value in known):
            return None
        total += factor * math.prod(known)  # type: ignore[arg-type]
    return total
