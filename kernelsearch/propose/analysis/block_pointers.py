"""Rewrites block pointers as plain pointers with masks, which the edits know.

    p = tl.make_block_ptr(x, (M, K), (s, 1), (i * B, 0), (B, C), (1, 0))    at = i * B + tl.arange(0, B).to(tl.int64)
    for k in range(0, K, C):                                                for k in range(0, K, C):
        v = tl.load(p, boundary_check=(0, 1), padding_option="zero")  ->        at_2 = k + tl.arange(0, C).to(tl.int64)
        p = tl.advance(p, (0, C))                                               v = tl.load(x + at[:, None] * s + ...)

Offsets have 64 bits, as in Triton. What a loop advances once an iteration is computed from its variable, what else is
advanced in loops and branches is counted. Block pointers that are passed to functions, kept in tuples or chosen by
branches stay as they are.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import strip_hints, terms

Pointers = dict[str, "BlockPointer"]
_PURE = ("program_id", "num_programs", "cdiv", "multiple_of")
_PADDINGS = {"''": "", "'zero'": "0.0", "'nan'": "float('nan')"}


@dataclass(frozen=True)
class BlockPointer:
    """A block of a tensor; by axis its size, stride, extent and the terms of its offset. moved are counters by axis."""

    base: ast.expr
    sizes: list[ast.expr]
    strides: list[ast.expr]
    extents: list[ast.expr]
    offsets: tuple[tuple[ast.expr, ...], ...]
    moved: dict[int, str] = field(default_factory=dict)

    def with_offset(self, axis: int, *offset: ast.expr) -> BlockPointer:
        return replace(self, offsets=(*self.offsets[:axis], offset, *self.offsets[axis + 1 :]))


@dataclass
class _Unseen(Exception):
    """A block pointer is used where its place is not known, or in another way than by loads and stores."""

    name: str


def replace_block_pointers(text: str, fresh: Callable[[str], str]) -> str | None:
    """The function with plain pointers for block pointers, as far as they are seen through; None if none is.

    fresh gives unused names.
    """
    counted: set[str] = set()
    refused: set[str] = set()
    while "make_block_ptr" in text:
        node = tree.function_of(text)
        rewriter = _Unblocker(node, counted, refused, fresh)
        try:
            body = rewriter.rewrite_block(node.body, {})
        except _Unseen as unseen:
            (refused if unseen.name in counted else counted).add(unseen.name)
            continue
        return tree.rebuild(node, rewriter.drop_unused(body)).text() if rewriter.pointers else None
    return None


def _find_pointers(body: list[ast.stmt], refused: set[str]) -> set[str]:
    """Names to which block pointers are assigned."""
    found: set[str] = set()
    pairs = [p for s in tree.all_statements(body) if (p := tree.assignment(s)) is not None and p[0] not in refused]
    while new := {name for name, v in pairs if tree.is_tl(v, "make_block_ptr") or _source(v) in found} - found:
        found |= new
    return found


def _source(value: ast.expr) -> str:
    """The name of the block pointer in `name` or `tl.advance(name, offsets)`; empty for anything else."""
    source = tree.argument(value, 0, "base") if tree.is_tl(value, "advance") else value  # type: ignore[arg-type]
    return source.id if isinstance(source, ast.Name) else ""


def _steps(value: ast.expr) -> list[ast.expr]:
    """The offsets of a `tl.advance`; empty for anything else."""
    steps = tree.argument(value, 1, "offsets") if tree.is_tl(value, "advance") else None  # type: ignore[arg-type]
    return getattr(steps, "elts", [])


def _is_hint(stmt: ast.stmt, name: str) -> bool:
    """Whether a statement is `name = tl.multiple_of(name, number)`."""
    pair = tree.assignment(stmt)
    return pair is not None and pair[0] == name == tree.text_of(strip_hints(pair[1]))


class _Unblocker:
    """One pass over a function. counted are pointers that need counters in loops, refused those that stay."""

    def __init__(
        self, node: ast.FunctionDef, counted: set[str], refused: set[str], fresh: Callable[[str], str]
    ) -> None:
        self.counted, self.fresh = counted, fresh
        self.pointers = _find_pointers(node.body, refused)
        self.params = {a.arg for a in node.args.args}
        stored = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        self.stores = Counter(name for name in stored if name not in self.pointers)
        pairs = filter(None, map(tree.assignment, tree.all_statements(node.body)))
        self.values = {name: value for name, value in pairs if self._is_single(name) and name not in self.params}
        makes = tree.calls(node, "make_block_ptr")
        shapes = [tree.argument(m, at, key) for m in makes for at, key in ((1, "shape"), (4, "block_shape"))]
        self.counts = tree.reads(filter(None, shapes))
        self.new: set[str] = set()
        self.made: set[str] = set()
        self.loops: list[ast.For] = []  # those around the statement whose variables nothing else assigns
        self.out: list[list[ast.stmt]] = []
        self.ranges: list[dict[str, str]] = []  # names of ranges by their text, for each open block

    # ------------------------------------------------------------ statements

    def rewrite_block(self, block: list[ast.stmt], known: Pointers, moving: Pointers | None = None) -> list[ast.stmt]:
        """The statements without block pointers; known changes. The ranges of moving start the block."""
        self.out.append([])
        self.ranges.append({})
        for name, pointer in (moving or {}).items():
            self._name_ranges(name, pointer)
        for stmt in block:
            pair = tree.assignment(stmt)
            if pair is not None and pair[0] in self.pointers:
                known[pair[0]] = self._pointer(*pair, known)
                self.made.add(pair[0])
            elif isinstance(stmt, (ast.For, ast.While, ast.If)):
                self._compound(stmt, known)
            else:
                self._check(tree.writes(stmt) & self.pointers)
                self.out[-1].append(self._access(stmt, known))  # type: ignore[arg-type]
        self.ranges.pop()
        return self.out.pop()

    def drop_unused(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements without new names that nothing reads."""
        while unread := self.new - tree.reads(body):
            self.new -= unread
            for block in tree.blocks(body):
                block[:] = [s for s in block if (tree.assignment(s) or ("",))[0] not in unread] or [ast.Pass()]
        return body

    def _check(self, lost: set[str]) -> None:
        if lost:
            raise _Unseen(min(lost))

    def _compound(self, stmt: ast.For | ast.While | ast.If, known: Pointers) -> None:
        """A loop or a branch: what it advances is computed or counted, what it sets otherwise is not known behind."""
        own = False
        if isinstance(stmt, ast.For):
            stmt.iter = self._access(stmt.iter, known)  # type: ignore[assignment]
            name = tree.text_of(stmt.target)
            own = name not in tree.writes(s for s in stmt.body if not _is_hint(s, name))
        elif isinstance(stmt, ast.If):
            stmt.test = self._access(stmt.test, known)  # type: ignore[assignment]
        else:
            self._check(tree.reads(stmt.test) & self.pointers)
        self.loops += [stmt] if own else []  # type: ignore[list-item]
        inside, moving = dict(known), {}
        gone = tree.writes(stmt) & self.pointers
        for name in sorted(gone & set(known)):
            pairs = [(s, p[1]) for s in tree.all_statements([stmt]) if (p := tree.assignment(s)) and p[0] == name]
            steps = [(s, _steps(value)) for s, value in pairs if _source(value) == name]
            if len(steps) < len(pairs) or any(len(deltas) != len(known[name].sizes) for _, deltas in steps):
                if not isinstance(stmt, ast.If):
                    del inside[name]
            elif own and name not in self.counted and (computed := self._compute(stmt, steps, known[name])):  # type: ignore
                inside[name] = moving[name] = computed
            else:
                inside[name] = known[name] = self._count(name, known[name], [deltas for _, deltas in steps])
                gone.remove(name)
        for part in ("body", "orelse"):
            if block := getattr(stmt, part, []):
                setattr(stmt, part, self.rewrite_block(block, dict(inside), moving) or [ast.Pass()])
        self.loops = self.loops[:-1] if own else self.loops
        for name in gone & set(known):
            del known[name]
        self.out[-1].append(stmt)

    def _compute(
        self, loop: ast.For, steps: list[tuple[ast.stmt, list[ast.expr]]], pointer: BlockPointer
    ) -> BlockPointer | None:
        """The pointer in an iteration, from the loop's variable; None if it does not advance alike in each."""
        bounds, ((stmt, deltas), *more) = tree.range_of(loop), steps
        moving = {axis: d for axis, d in enumerate(deltas) if not tree.is_number(d, 0)}
        if bounds is None or more or stmt not in loop.body or set(moving) & set(pointer.moved):
            return None
        start, stop, step = bounds
        start = self.values.get(start.id, start) if isinstance(start, ast.Name) else start
        fixed = [start, step, *deltas]
        if tree.reads(fixed) & tree.writes(loop) or any(isinstance(n, ast.Call) for e in fixed for n in ast.walk(e)):
            return None
        index: ast.expr = ast.Name(loop.target.id, ast.Load())  # type: ignore[attr-defined]
        passed = index if tree.is_number(start, 0) else ast.BinOp(index, ast.Sub(), start)
        for axis, delta in moving.items():
            offset = pointer.offsets[axis]
            if tree.is_same(delta, step):
                same = [tree.text_of(start)] == [*map(tree.text_of, offset)]
                pointer = pointer.with_offset(axis, *([index] if same else [*offset, passed]))
            elif tree.is_number(step, 1):
                tiles = tree.is_tl(stop, "cdiv") and tree.text_of(stop).endswith(f", {tree.text_of(delta)})")
                wide = tree.expression(f"tl.cast({tree.text_of(passed)}, tl.int64)")
                number = index if tiles and passed is index else wide
                pointer = pointer.with_offset(axis, *offset, ast.BinOp(number, ast.Mult(), delta))
            else:
                return None
        return pointer

    def _count(self, name: str, pointer: BlockPointer, steps: list[list[ast.expr]]) -> BlockPointer:
        """The pointer with a counter for each axis along which it is advanced."""
        axes = {at for deltas in steps for at, d in enumerate(deltas) if not tree.is_number(d, 0)}
        for axis in sorted(axes - set(pointer.moved)):
            counter = self._emit(f"{name}_moved", tree.expression("tl.cast(0, tl.int64)"))
            pointer = pointer.with_offset(axis, *pointer.offsets[axis], counter)
            pointer = replace(pointer, moved={**pointer.moved, axis: counter.id})
        return pointer

    # ------------------------------------------------------------ block pointers

    def _pointer(self, name: str, value: ast.expr, known: Pointers) -> BlockPointer:
        if isinstance(value, ast.Call) and tree.is_tl(value, "make_block_ptr"):
            return self._make(name, value, known)
        source, steps = _source(value), _steps(value)
        pointer = known.get(source)
        if pointer is None or (source != name and pointer.moved):
            raise _Unseen(name)
        if isinstance(value, ast.Call) and len(steps) != len(pointer.sizes):
            raise _Unseen(name)
        for axis, step in enumerate(steps):
            if axis in pointer.moved and not tree.is_number(step, 0):
                self.out[-1] += tree.statements(f"{pointer.moved[axis]} += {tree.text_of(step)}")
            elif not tree.is_number(step, 0):
                pointer = pointer.with_offset(axis, *pointer.offsets[axis], self._settle(name, step))
        return pointer

    def _make(self, name: str, call: ast.Call, known: Pointers) -> BlockPointer:
        keys = ("base", "shape", "strides", "offsets", "block_shape")
        base, *lists = (tree.argument(call, at, key) for at, key in enumerate(keys))
        parts = [getattr(part, "elts", []) for part in lists]
        unknown = tree.reads(call) & set(known) or not all(map(self._is_steady, parts[3]))
        if base is None or unknown or {len(p) for p in parts} != {len(parts[0]) or 1}:
            raise _Unseen(name)
        head = terms(base)[0][1]
        if not (isinstance(head, ast.Name) and head.id in self.params and self._is_steady(base)):
            base = self._emit(f"{name}_base", base)
        sizes, strides, offsets = ([self._settle(name, e) for e in part] for part in parts[:3])
        terms_of = tuple(() if tree.is_number(o, 0) else (o,) for o in offsets)
        pointer = BlockPointer(base, sizes, strides, parts[3], terms_of)
        self._name_ranges(name, pointer)
        return pointer

    def _is_single(self, name: str) -> bool:
        """Whether a name has one value only, apart from iterations."""
        return self.stores[name] <= (name not in self.params)

    def _is_steady(self, node: ast.expr) -> bool:
        """Whether an expression has the same value wherever the pointer made of it is known."""
        own = tree.writes([loop.target for loop in self.loops])
        pure = all(tree.is_tl(n, *_PURE) for n in ast.walk(node) if isinstance(n, ast.Call))
        return pure and all(name in own or self._is_single(name) for name in tree.reads(node))

    def _settle(self, name: str, node: ast.expr) -> ast.expr:
        return node if self._is_steady(node) else self._emit(f"{name}_at", node)

    def _emit(self, base: str, value: ast.expr) -> ast.Name:
        """A new name for a value, assigned here."""
        name = self.fresh(base)
        self.new.add(name)
        self.out[-1] += tree.statements(f"{name} = {tree.text_of(value)}")
        return ast.Name(name, ast.Load())

    def _name_ranges(self, name: str, pointer: BlockPointer) -> list[str]:
        """The names of the block's elements along each axis."""
        found = []
        for axis, (extent, offset) in enumerate(zip(pointer.extents, pointer.offsets, strict=True)):
            sums = [*offset[:1], tree.expression(f"tl.arange(0, {tree.text_of(extent)}).to(tl.int64)"), *offset[1:]]
            text = " + ".join(tree.parenthesise(tree.text_of(e)) if e in offset[1:] else tree.text_of(e) for e in sums)
            here = next((r[text] for r in self.ranges if text in r), None) if axis not in pointer.moved else None
            if here is None:
                here = self.ranges[-1][text] = self._emit(f"{name}_at", tree.expression(text)).id
            found.append(here)
        return found

    # ------------------------------------------------------------ accesses

    def _access(self, node: ast.AST, known: Pointers) -> ast.AST:
        """A statement or an expression with its loads and stores through plain pointers."""
        left = Counter(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in self.pointers)

        def rule(n: ast.AST) -> ast.AST | None:
            match n:
                case ast.Attribute(ast.Attribute(ast.Name(id=name), "dtype" | "type"), "element_ty") if name in known:
                    left[name] -= 1
                    return tree.expression(f"{tree.text_of(terms(known[name].base)[0][1])}.dtype.element_ty")
                case ast.Call() if tree.is_tl(n, "load", "store"):
                    pointer = tree.argument(n, 0, "pointer")
                    if isinstance(pointer, ast.Name) and pointer.id in known:
                        left[pointer.id] -= 1
                        return self._plain(n, pointer.id, known[pointer.id])
            return None

        new = tree.transform(node, rule)
        self._check({name for name, n in left.items() if n and (name in self.made or name not in self.params)})
        return new

    def _plain(self, call: ast.Call, name: str, pointer: BlockPointer) -> ast.Call:
        """A load or store through a plain pointer, with a mask for the axes that are checked."""
        rank, given = len(pointer.sizes), {k.arg: k.value for k in call.keywords if k.arg != "pointer"}
        check, padding = given.pop("boundary_check", ast.Tuple([])), given.pop("padding_option", ast.Constant(""))
        axes = [getattr(axis, "value", None) if rank > 1 else 0 for axis in getattr(check, "elts", [None])]
        first, other = 2 if tree.is_tl(call, "store") else 1, _PADDINGS.get(tree.text_of(padding))
        if other is None or len(call.args) > first or not set(axes) <= set(range(rank)) or "mask" in given:
            raise _Unseen(name)
        address, masks = tree.text_of(pointer.base), []
        for axis, at in enumerate(self._name_ranges(name, pointer)):
            at += f"[{', '.join(':' if a == axis else 'None' for a in range(rank))}]" if rank > 1 else ""
            stride, offset = tree.parenthesise(tree.text_of(pointer.strides[axis])), pointer.offsets[axis]
            address += f" + {at}" if stride == "1" else f" + {at} * {stride}"
            if axis in axes and (offset or not tree.is_same(pointer.sizes[axis], pointer.extents[axis])):
                masks += [] if all(map(self._is_counted, offset)) else [f"({at} >= 0)"]
                masks.append(f"({at} < {tree.text_of(pointer.sizes[axis])})")
        more = {"mask": " & ".join(masks), "other": other if masks else ""}
        keywords = [ast.keyword(key, tree.expression(value)) for key, value in more.items() if value]
        keywords += [ast.keyword(key, value) for key, value in given.items()]
        return ast.Call(call.func, [tree.expression(address), *call.args[1:]], keywords)

    def _is_counted(self, node: ast.expr, depth: int = 12) -> bool:
        """Whether an expression is never negative: a size, a place in the grid or in a loop."""
        counted: Callable[[ast.expr], bool] = lambda n: depth > 0 and self._is_counted(n, depth - 1)  # noqa: E731
        match strip_hints(node):
            case ast.Constant(value=int(value)):
                return value >= 0
            case ast.BinOp(left=left, op=ast.Add() | ast.Mult() | ast.FloorDiv(), right=right):
                return counted(left) and counted(right)
            case ast.BinOp(left=left, op=ast.Mod()):
                return counted(left)
            case ast.BinOp(left=ast.Name(id=name), op=ast.Sub(), right=right) if bounds := self._bounds(name):
                return tree.is_same(bounds[0], right) and counted(bounds[2])
            case ast.Name(id=name):
                if bounds := self._bounds(name):
                    return counted(bounds[0]) and counted(bounds[2])
                known = self.values.get(name)
                return (name in self.counts and self._is_single(name)) or (known is not None and counted(known))
            case ast.Call(args=args) as call:
                each = tree.is_tl(call, "cdiv", "minimum", "maximum") and all(map(counted, args))
                return each or tree.is_tl(call, "program_id", "num_programs")
        return False

    def _bounds(self, name: str) -> tuple[ast.expr, ast.expr, ast.expr] | None:
        """The range of the loop around the statement whose variable is name."""
        loops = (tree.range_of(loop) for loop in reversed(self.loops) if tree.writes(loop.target) == {name})
        return next(loops, None)
