"""One spelling of a kernel, as a person might write it: what edits are tried on where they refuse it as it is written.

Addresses begin with their pointer, scalars come before blocks and rows before columns; an address that is read once
stands in its access; comparisons have the larger block on the left; `a = a + b` is `a += b`. Only sums and products of
integers are put in order: those of addresses, and of what addresses are made of.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.language import FUNCTIONS, METHODS
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import find_effects
from kernelsearch.propose.analysis.flow import factors, terms
from kernelsearch.propose.analysis.shapes import ACROSS, REDUCTIONS, Shapes

PLACED = {
    **dict.fromkeys([n for n in FUNCTIONS if n.startswith("atomic_")], 2),
    **dict.fromkeys(["dot", "full", "store", "maximum", "minimum"], 2),
    **dict.fromkeys([*REDUCTIONS, *ACROSS, "load", "zeros"], 1),
    "atomic_cas": 3,
    "range": 0,
}
"""How many arguments of a function are given by position, where that is not all of them."""
_FLIPPED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq,
}  # fmt: skip


@lru_cache(maxsize=1024)
def place_arguments(text: str) -> str:
    """The function with the first arguments of `tl`'s functions by position: `tl.load(p)` for `tl.load(pointer=p)`."""
    module, found = parse_python(text), False
    for call in (n for n in ast.walk(module) if isinstance(n, ast.Call) and n.keywords):
        head, _, name = tree.callee(call).rpartition(".")
        params = FUNCTIONS.get(name, ())[: PLACED.get(name)] if head in ("tl", "tl.math") else ()
        if not params and isinstance(call.func, ast.Attribute) and call.func.attr in METHODS & {"to", "cast"}:
            params = ("dtype",)
        named = {k.arg: k for k in call.keywords}
        while len(call.args) < len(params) and (keyword := named.get(params[len(call.args)])):
            call.args.append(keyword.value)
            call.keywords.remove(keyword)
            found = True
    return ast.unparse(module) + "\n" if found else text


def canonicalise(text: str, constexprs: tuple[str, ...], blocks: Mapping[str, str]) -> str | None:
    """The function in the canonical spelling; None if it has it. blocks are those of the launch's descriptors."""
    node = tree.function_of(text)
    before = ast.unparse(node)
    _inline_addresses(node)
    node = tree.function_of(ast.unparse(node))
    _Speller(node, Shapes(node, constexprs, blocks)).respell()
    after = ast.unparse(ast.fix_missing_locations(node))
    return None if after == before else after + "\n"


def find_pointer_params(node: ast.FunctionDef) -> set[str]:
    """The parameters that are pointers: what addresses add up from, and nothing multiplies, compares or counts to."""
    reached = _reach(node, _addresses(node), lambda e: [t for _, t in terms(e)])
    numbers: set[str] = set()
    for n in ast.walk(node):
        if isinstance(n, ast.Compare) or (isinstance(n, ast.BinOp) and not isinstance(n.op, (ast.Add, ast.Sub))):
            numbers |= {s.id for s in ast.iter_child_nodes(n) if isinstance(s, ast.Name)}
        elif tree.callee(n) in ("range", "tl.range", "tl.static_range", "tl.arange", "tl.cdiv", "triton.cdiv"):
            numbers |= tree.reads(n)
    typed = {tree.text_of(n.value) for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr == "dtype"}
    return {a.arg for a in node.args.args} & reached & (typed | reached - numbers)


def _addresses(node: ast.AST) -> list[ast.expr]:
    return [call.args[0] for call in tree.calls(node, "load", "store", *_ATOMICS) if call.args]


_ATOMICS = tuple(name for name in FUNCTIONS if name.startswith("atomic_"))


def _reach(node: ast.AST, roots: Iterable[ast.expr], parts_of) -> set[str]:  # type: ignore[no-untyped-def]
    """The names that the parts of the roots are, and of whatever is assigned to such a name."""
    values: dict[str, list[ast.expr]] = {}
    for pair in filter(None, map(tree.assignment, (n for n in ast.walk(node) if isinstance(n, ast.stmt)))):
        values.setdefault(pair[0], []).append(pair[1])
    found: set[str] = set()
    todo = list(roots)
    while todo:
        for part in parts_of(todo.pop()):
            if isinstance(part, ast.Name) and part.id not in found:
                found.add(part.id)
                todo += values.get(part.id, ())
    return found


def _inline_addresses(node: ast.FunctionDef) -> None:
    """Puts an address that is computed for one access of the same block into it."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    written = Counter(n.id for n in names if isinstance(n.ctx, ast.Store))
    read = Counter(n.id for n in names if isinstance(n.ctx, ast.Load))
    params = {a.arg for a in node.args.args}
    for block in tree.blocks(node.body):
        for stmt in [s for s in block if not hasattr(s, "body")]:
            for call in tree.calls(stmt, "load", "store", *_ATOMICS):
                name = call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else ""
                before = block[: block.index(stmt)]
                maker = next((s for s in before if isinstance(s, ast.Assign) and tree.writes(s) == {name}), None)
                pair = tree.assignment(maker) if maker is not None and name not in params else None
                if maker is None or pair is None or written[name] != 1 or read[name] != 1 or find_effects(pair[1]):
                    continue
                if not tree.reads(pair[1]) & tree.writes(before[before.index(maker) :]):
                    call.args[0] = pair[1]
                    block.remove(maker)


class _Speller:
    """Puts the expressions of a function in order, in place."""

    def __init__(self, node: ast.FunctionDef, shapes: Shapes) -> None:
        self.node, self.shapes, self.params = node, shapes, {a.arg for a in node.args.args}
        self.constexprs = {a.arg for a in node.args.args if a.annotation and "constexpr" in tree.text_of(a.annotation)}
        self.indices = _reach(node, _addresses(node), _integers)
        self.pointers = find_pointer_params(node)
        pairs = [p for s in tree.all_statements(node.body) if (p := tree.assignment(s))]
        self.wide: set[str] = set()  # names of 64 bits: sums begin with them, so that none is of 32 that was of 64
        for _ in pairs:
            for name, value in pairs:
                self.pointers |= {name} if any(self._is_pointer(t) for _, t in terms(value)) else set()
                self.wide |= {name} if self._is_wide(value) else set()

    def respell(self) -> None:
        for address in _addresses(self.node):
            self._put(address)
        for stmt in tree.all_statements(self.node.body):
            pair = tree.assignment(stmt)
            if pair and pair[0] in self.indices:
                self._put(stmt.value)  # type: ignore[attr-defined]
        for node in ast.walk(self.node):
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _FLIPPED:
                left, right = node.left, node.comparators[0]
                if len(self.shapes.of(left) or ()) < len(self.shapes.of(right) or ()):
                    node.left, node.comparators, node.ops = right, [left], [_FLIPPED[type(node.ops[0])]()]
        for block in tree.blocks(self.node.body):
            block[:] = [_augment(s) for s in block]

    def _put(self, node: ast.expr) -> None:
        """Puts a sum or product of integers, and those inside it, in order."""
        match node:
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                parts = terms(node)
                for _, part in parts:
                    self._put(part)
                first, *rest = sorted(parts, key=lambda p: (p[0] < 0, *self._rank(p[1])))
                whole = first[1] if first[0] > 0 else ast.UnaryOp(ast.USub(), first[1])
                for sign, part in rest:
                    whole = ast.BinOp(whole, ast.Add() if sign > 0 else ast.Sub(), part)
                node.__dict__.update(whole.__dict__) if isinstance(whole, ast.BinOp) else None
            case ast.BinOp(op=ast.Mult()):
                parts = factors(node)
                self._put_each(parts)
                if len(parts) == 2:
                    node.left, node.right = sorted(parts, key=self._rank_factor)
            case ast.BinOp() | ast.Subscript() | ast.UnaryOp():
                self._put_each([n for n in ast.iter_child_nodes(node) if isinstance(n, (ast.BinOp, ast.Subscript))])

    def _put_each(self, parts: Iterable[ast.expr]) -> None:
        for part in parts:
            self._put(part)

    def _rank(self, part: ast.expr) -> tuple[object, ...]:
        """Where a term of a sum stands: pointers, scalars, blocks by the axis along which they lie, numbers."""
        shape = self.shapes.of(part) or ()
        laid = tuple(size == "1" for size in shape)
        number = isinstance(part, ast.Constant)
        return (number, not self._is_pointer(part), not self._is_wide(part), len(shape), laid, tree.text_of(part))

    def _rank_factor(self, part: ast.expr) -> tuple[object, ...]:
        """Where a factor stands: blocks, what is computed, arguments, constexprs, numbers."""
        name = part.id if isinstance(part, ast.Name) else ""
        kind = 3 * isinstance(part, ast.Constant) + 2 * (name in self.constexprs) + (name in self.params)
        return (-len(self.shapes.of(part) or ()), kind, tree.text_of(part))

    def _is_pointer(self, part: ast.expr) -> bool:
        return isinstance(part, ast.Name) and part.id in self.pointers

    def _is_wide(self, part: ast.expr) -> bool:
        return "int64" in tree.text_of(part) or bool(tree.reads(part) & self.wide)


def _integers(node: ast.expr) -> list[ast.expr]:
    """The parts of an integer that are integers, itself among them."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [*_integers(left), *_integers(right)]
        case ast.Subscript(value=inner) | ast.UnaryOp(operand=inner):
            return _integers(inner)
    return [node]


def _augment(stmt: ast.stmt) -> ast.stmt:
    """`name += value` for `name = name + value` and `name = value + name`."""
    match stmt:
        case ast.Assign([ast.Name(name) as target], ast.BinOp(ast.Name(own), ast.Add(), value)) if name == own:
            return ast.AugAssign(target, ast.Add(), value)
        case ast.Assign([ast.Name(name) as target], ast.BinOp(value, ast.Add(), ast.Name(own))) if name == own:
            return ast.AugAssign(target, ast.Add(), value)
    return stmt
