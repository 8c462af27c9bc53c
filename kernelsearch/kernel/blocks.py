"""The blocks of a kernel that may never run: the sides of branches and the bodies of loops, by their lines.

A block is known by its function, its first and last line, counted from the function's `def`, and its first column.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.source import Kernel

Block = tuple[str, int, int, int]
_BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp)


@dataclass(frozen=True)
class Side:
    """A block in the syntax tree: what has its condition, and the list that holds its nodes, from `start` on."""

    name: str
    owner: Any
    nodes: list[Any]
    start: int
    block: Block

    @property
    def syntax(self) -> str:
        """The block with its condition, as a text without comments and layout."""
        head = [getattr(self.owner, n) for n in ("test", "target", "iter") if hasattr(self.owner, n)]
        return "\n".join([self.name, *map(ast.unparse, [*head, *self.nodes[self.start :]])])


def list_sides(function: ast.FunctionDef) -> list[Side]:
    """The blocks of a function that may never run; `rest` is what follows a branch that returns."""
    sides = []

    def add(name: str, owner: ast.AST, nodes: list[Any], start: int = 0) -> None:
        first, last = (n - function.lineno + 1 for n in (nodes[start].lineno, nodes[-1].end_lineno))
        sides.append(Side(name, owner, nodes, start, (function.name, first, last, nodes[start].col_offset)))

    for node in ast.walk(function):
        for name in ("body", "orelse") if isinstance(node, (*_BRANCHES, ast.FunctionDef)) else ():
            side = getattr(node, name, None)
            nodes = side if isinstance(side, list) else [side]
            if isinstance(node, _BRANCHES) and side:
                add(name, node, nodes)
            for i, inner in enumerate(nodes[:-1], 1):
                if isinstance(inner, ast.If) and any(isinstance(n, ast.Return) for n in ast.walk(inner)):
                    add("rest", inner, nodes, i)
    return sides


def find_sides(text: str) -> list[tuple[ast.FunctionDef, Side]]:
    """All blocks of the functions in a file, with the function of each."""
    functions = [n for n in ast.walk(parse_python(text)) if isinstance(n, ast.FunctionDef)]
    return [(function, side) for function in functions for side in list_sides(function)]


def name_lines(text: str, blocks: Iterable[Block]) -> str:
    """These blocks of a file in words: `lines 14 to 17, 20`; empty without any."""
    wanted = {tuple(block) for block in blocks}
    lines = [[n + f.lineno - 1 for n in side.block[1:3]] for f, side in find_sides(text) if side.block in wanted]
    said = ", ".join(f"{first} to {last}" if last > first else f"{first}" for first, last in sorted(lines))
    return f"line{'s' * (len(lines) > 1 or ' to ' in said)} {said}" if lines else ""


def find_change(kernel: Kernel, unrun: Iterable[Block], seed: Kernel, unrun_of_seed: Iterable[Block]) -> str:
    """The last line of an unrun block of the kernel that the seed has not, or the other way round; empty without one.

    Loops in steps of a constexpr do not count, nor do loops that wait.
    """
    ours, theirs = find_sides(kernel.code), find_sides(seed.code)
    for mine, blocks, others in ((ours, unrun, theirs), (theirs, unrun_of_seed, ours)):
        wanted, known = {tuple(block) for block in blocks}, {side.syntax for _, side in others}
        for function, side in mine:
            if side.block in wanted and side.syntax not in known and not _follows_from_rest(function, side.owner):
                return side.syntax.splitlines()[-1].strip()[:80]
    return ""


def _follows_from_rest(function: ast.FunctionDef, owner: Any) -> bool:
    return _goes_in_tiles(function, owner) or _waits(function, owner)


def _waits(function: ast.FunctionDef, owner: Any) -> bool:
    """Whether a loop only makes again what was made right before it, or its condition, in ways that change nothing
    more: after it holds what holds where it had no turn.
    """
    if not (isinstance(owner, ast.While) and len(owner.body) == 1 and not owner.orelse):
        return False
    (again,), called = owner.body, [n for n in ast.walk(owner.test) if isinstance(n, ast.Call)]
    if isinstance(again, ast.Assign):
        lists = [n for node in ast.walk(function) for _, n in ast.iter_fields(node) if isinstance(n, list)]
        before = next(n[: n.index(owner)] for n in lists if owner in n)[-1:]
        made = {target.id for target in again.targets if isinstance(target, ast.Name)}
        read = {n.id for n in ast.walk(again.value) if isinstance(n, ast.Name)}
        if [ast.dump(n) for n in before] != [ast.dump(again)] or len(made) < len(again.targets) or made & read:
            return False
        called += [n for n in ast.walk(again.value) if isinstance(n, ast.Call)]
    elif not isinstance(again, ast.Pass):
        return False
    return all(map(_is_idempotent, called))


def _is_idempotent(call: ast.Call) -> bool:
    name, values = ast.unparse(call.func).rpartition(".")[2], [ast.unparse(a) for a in call.args[1:2]]
    adds_nothing = name in ("atomic_add", "atomic_or", "atomic_xor") and values == ["0"]
    return adds_nothing or name in ("load", "atomic_cas", "atomic_xchg")


def _goes_in_tiles(function: ast.FunctionDef, owner: Any) -> bool:
    if not isinstance(owner, ast.For) or any(isinstance(n, ast.Compare) for n in ast.walk(owner.iter)):
        return False
    constexprs = {a.arg for a in function.args.args if a.annotation and "constexpr" in ast.unparse(a.annotation)}
    return any(isinstance(n, ast.Name) and n.id in constexprs for n in ast.walk(owner.iter))
