"""One spelling of a kernel, as a person might write it: what edits are tried on where they refuse it as it is written.

Addresses begin with their pointer, scalars come before blocks and rows before columns; an address that is read once
stands in its access; comparisons have the larger block on the left; `a = a + b` is `a += b`. Only sums and products of
integers are put in order: those of addresses, and of what addresses are made of.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from kernelsearch.core.parsing import parse_python, read_dotted
from kernelsearch.kernel.language import FUNCTIONS, METHODS
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import update_of
from kernelsearch.propose.analysis.effects import find_effects
from kernelsearch.propose.analysis.flow import factors, strip_axes, terms
from kernelsearch.propose.analysis.shapes import ACROSS, REDUCTIONS, Shapes

_ATOMICS = [name for name in FUNCTIONS if name.startswith("atomic_")]
PLACED = {
    **dict.fromkeys([*REDUCTIONS, *ACROSS, "load", "zeros"], 1),
    **dict.fromkeys([*_ATOMICS, "dot", "full", "store", "maximum", "minimum"], 2),
    "atomic_cas": 3,
    "range": 0,
}
"""How many arguments of a function are given by position, where that is not all of them."""
_OF_DESCRIPTORS = frozenset(["load", "store", "gather", *_ATOMICS])
"""Methods of tensor descriptors, too: only a sum is known to be no descriptor."""
SCALARS = ("program_id", "num_programs", "load", *REDUCTIONS)
"""Functions of `tl` whose results are tensors even where they are scalars: these have methods, numbers have none."""
MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq,
}  # fmt: skip


@lru_cache(maxsize=1024)
def place_arguments(text: str) -> str:
    """The function with functions of `tl` for methods, and their first arguments by position.

    `tl.load(pointer=p).sum(0)` is `tl.sum(tl.load(p), axis=0)`; `x.to(dtype)` stays.
    """
    module, found = parse_python(text), False
    for call in (n for n in ast.walk(module) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)):
        found |= _call_function(call)
        name, known = call.func.attr, tree.is_tl(call, call.func.attr)  # type: ignore[attr-defined]
        params = FUNCTIONS.get(name, ())[: PLACED.get(name)] if known else ("dtype",) * (name in ("to", "cast"))
        named = {k.arg: k for k in call.keywords}
        while len(call.args) < len(params) and (keyword := named.get(params[len(call.args)])):
            call.args.append(keyword.value)
            call.keywords.remove(keyword)
            found = True
    return ast.unparse(module) + "\n" if found else text


def _call_function(call: ast.Call) -> bool:
    """Makes `tl.sum(x, axis=0)` of `x.sum(0)`, in place, and `x.to(dtype)` of `x.cast(dtype)`; whether it did."""
    func: ast.Attribute = call.func  # type: ignore[assignment]
    name, value = func.attr, func.value
    is_tensor = isinstance(value, ast.BinOp) or name not in _OF_DESCRIPTORS
    if name not in METHODS & FUNCTIONS.keys() or {*read_dotted(value)[:1]} & tree.MODULES or not is_tensor:
        return False
    if name == "cast":
        func.attr = "to"
        return True
    call.func = ast.Attribute(ast.Name("tl", ast.Load()), name, ast.Load())
    if PLACED.get(name) == 1:
        named = zip(FUNCTIONS[name][1:], call.args, strict=False)
        call.args, call.keywords = [], [*(ast.keyword(n, a) for n, a in named), *call.keywords]
    call.args.insert(0, value)
    return True


def write_constants(text: str, constants: Iterable[str]) -> str:
    """The function with the values of the file's constants for their names."""
    node = tree.function_of(text)
    read = tree.reads(node) - tree.writes(node) - {a.arg for a in node.args.args}
    pairs = filter(None, map(tree.assignment, (s for c in constants for s in tree.statements(c))))
    values = {n: v.args[0] if isinstance(v, ast.Call) and v.args else v for n, v in pairs if n in read}
    return tree.text_of(tree.substitute(node, values)) + "\n" if values else text


def canonicalise(text: str, constexprs: tuple[str, ...], blocks: Mapping[str, str]) -> str | None:
    """The function in the canonical spelling; None if it has it. blocks are those of the launch's descriptors."""
    node = tree.function_of(text)
    before = ast.unparse(node)
    _inline_addresses(node)
    _inline_ranges(node)
    _Speller(node, Shapes(node, constexprs, blocks), constexprs).respell()
    after = ast.unparse(ast.fix_missing_locations(node))
    return None if after == before else after + "\n"


def find_pointer_params(node: ast.FunctionDef) -> set[str]:
    """The parameters that are pointers: what addresses add up from, and nothing multiplies, compares or counts to."""
    reached = _reach(node, lambda address: [t for _, t in terms(address)])
    numbers: set[str] = set()
    for n in ast.walk(node):
        if isinstance(n, ast.Compare) or (isinstance(n, ast.BinOp) and not isinstance(n.op, (ast.Add, ast.Sub))):
            numbers |= {s.id for s in ast.iter_child_nodes(n) if isinstance(s, ast.Name)}
        elif tree.callee(n).rpartition(".")[2] in ("range", "static_range", "arange", "cdiv"):
            numbers |= tree.reads(n)
    typed = {tree.text_of(n.value) for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr == "dtype"}
    return {a.arg for a in node.args.args} & reached & (typed | reached - numbers)


def _accesses(node: ast.AST) -> list[ast.Call]:
    return [call for call in tree.calls(node, "load", "store", *_ATOMICS) if call.args]


def _reach(node: ast.AST, split: Callable[[ast.expr], list[ast.expr]]) -> set[str]:
    """The names that addresses are split into, and that the values of such names are."""
    pairs = [pair for n in ast.walk(node) if isinstance(n, ast.stmt) and (pair := tree.assignment(n))]
    found, todo = set[str](), [call.args[0] for call in _accesses(node)]
    while todo:
        names = {part.id for part in split(todo.pop()) if isinstance(part, ast.Name)} - found
        found |= names
        todo += [value for name, value in pairs if name in names]
    return found


def _inline_addresses(node: ast.FunctionDef) -> None:
    """Puts an address that is computed for one access of the same block into it."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    times = Counter((n.id, type(n.ctx)) for n in names) + Counter((a.arg, ast.Store) for a in node.args.args)
    for block in tree.blocks(node.body):
        for stmt in [s for s in block if not hasattr(s, "body")]:
            for call in _accesses(stmt):
                name, before = tree.text_of(call.args[0]), block[: block.index(stmt)]
                maker = next((s for s in before if isinstance(s, ast.Assign) and tree.writes(s) == {name}), None)
                pair = tree.assignment(maker) if maker is not None else None
                if maker is None or not pair or times[name, ast.Store] != 1 or times[name, ast.Load] != 1:
                    continue
                if not tree.reads(maker) & tree.writes(before[before.index(maker) :]) and not find_effects(maker):
                    call.args[0] = pair[1]
                    block.remove(maker)


def _inline_ranges(node: ast.FunctionDef) -> None:
    """Puts a range that is only added to make other indices, `offs` in `cols = start + offs`, into those sums."""
    for maker in [s for s in node.body if isinstance(s, ast.Assign) and tree.is_tl(s.value, "arange")]:
        name = tree.text_of(maker.targets[0])
        assigned = [s for s in tree.all_statements(node.body) if isinstance(s, ast.Assign)]
        users = [s for s in assigned for _, term in terms(s.value) if tree.text_of(strip_axes(term)) == name]
        named = [n for n in ast.walk(node) if name in (getattr(n, "id", ""), getattr(n, "arg", ""))]
        if users and len(users) == len(named) - 1 and not tree.reads(maker) & tree.writes(node):
            node.body.remove(maker)
            for stmt in users:
                stmt.value = tree.substitute(stmt.value, {name: maker.value})


class _Speller:
    """Puts the expressions of a function in order, in place."""

    def __init__(self, node: ast.FunctionDef, shapes: Shapes, constexprs: tuple[str, ...]) -> None:
        self.node, self.shapes, self.constexprs = node, shapes, constexprs
        self.indices, self.pointers = _reach(node, _integers), find_pointer_params(node)
        self.wide: set[str] = set()  # names of 64 bits: sums begin with them, so that none is of 32 that was of 64
        pairs = [p for s in tree.all_statements(node.body) if (p := tree.assignment(s))]
        for name, value in pairs * len(pairs):
            self.pointers |= {name} if any(self._is_pointer(t) for _, t in terms(value)) else set()
            self.wide |= {name} if self._is_wide(value) else set()

    def respell(self) -> None:
        for call in _accesses(self.node):
            self._put(call.args[0])
        for call in tree.calls(self.node, "cast"):
            if len(call.args) == 2 and (self.shapes.of(call.args[0]) or tree.is_tl(call.args[0], *SCALARS)):
                call.func, call.args = ast.Attribute(call.args[0], "to", ast.Load()), call.args[1:]
        for stmt in tree.all_statements(self.node.body):
            if (pair := tree.assignment(stmt)) and pair[0] in self.indices:
                self._put(stmt.value)  # type: ignore[attr-defined]
        for node in ast.walk(self.node):
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in MIRRORED:
                left, right = node.left, node.comparators[0]
                if len(self.shapes.of(left) or ()) < len(self.shapes.of(right) or ()):
                    node.left, node.comparators, node.ops = right, [left], [MIRRORED[type(node.ops[0])]()]
        for block in tree.blocks(self.node.body):
            for at, stmt in enumerate(block):
                update = update_of(stmt) if isinstance(stmt, ast.Assign) else None
                if update and isinstance(stmt.value, ast.BinOp):  # type: ignore[attr-defined]
                    block[at] = ast.AugAssign(ast.Name(update.name, ast.Store()), ast.Add(), update.value)

    def _put(self, node: ast.expr) -> None:
        """Puts a sum or product of integers, and those inside it, in order."""
        match node:
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                signed = terms(node)
                for _, part in signed:
                    self._put(part)
                (sign, whole), *rest = sorted(signed, key=lambda p: (p[0] < 0, *self._rank(p[1])))
                whole = whole if sign > 0 else ast.UnaryOp(ast.USub(), whole)
                for sign, part in rest:
                    whole = ast.BinOp(whole, ast.Add() if sign > 0 else ast.Sub(), part)
                node.__dict__.update(whole.__dict__)
            case ast.BinOp() | ast.Subscript() | ast.UnaryOp():
                for part in (n for n in ast.iter_child_nodes(node) if isinstance(n, (ast.BinOp, ast.Subscript))):
                    self._put(part)
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and len(factors(node)) == 2:
                    node.left, node.right = sorted((node.left, node.right), key=self._rank_factor)

    def _rank(self, part: ast.expr) -> tuple[object, ...]:
        """Where a term of a sum stands: pointers, scalars, blocks by the axis along which they lie, numbers."""
        shape, number = self.shapes.of(part) or (), isinstance(part, ast.Constant)
        laid = tuple(size == "1" for size in shape)
        return (number, not self._is_pointer(part), not self._is_wide(part), len(shape), laid, tree.text_of(part))

    def _rank_factor(self, part: ast.expr) -> tuple[object, ...]:
        """Where a factor stands: blocks, what is computed, arguments, constexprs, numbers."""
        text = tree.text_of(part)
        argument = text in {a.arg for a in self.node.args.args}
        kind = 3 * isinstance(part, ast.Constant) + 2 * (text in self.constexprs) + argument
        return (-len(self.shapes.of(part) or ()), kind, text)

    def _is_pointer(self, part: ast.expr) -> bool:
        return isinstance(part, ast.Name) and part.id in self.pointers

    def _is_wide(self, part: ast.expr) -> bool:
        return "int64" in tree.text_of(part) or bool(tree.reads(part) & self.wide)


def _integers(node: ast.expr) -> list[ast.expr]:
    """The parts of an integer that are integers."""
    inner = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)] if isinstance(node, ast.BinOp) else []
    inner = [node.value] if isinstance(node, ast.Subscript) else inner
    return [part for n in inner for part in _integers(n)] or [node]
