"""Which names of a jit function are read before anything binds them, following its statements in order."""

from __future__ import annotations

import ast

from kernelsearch.core.parsing import parsed
from kernelsearch.kernel.language import BUILTINS
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree


def unresolved(kernel: Kernel) -> list[str]:
    """Names, in order, that are read where no way to that place has bound them; none for a sound kernel."""
    known = {*tree.MODULES, *BUILTINS, *(f.name for f in kernel.functions)}
    for text in kernel.constants:
        known |= tree.writes(parsed(text))
    found: list[str] = []
    for function in kernel.functions:
        _Walk(found).block(tree.docless(tree.function_of(function.text).body), known | set(function.params))
    return list(dict.fromkeys(found))


class _Walk:
    def __init__(self, found: list[str]) -> None:
        self.found = found

    def block(self, body: list[ast.stmt], bound: set[str]) -> set[str]:
        """The names that are bound behind the statements."""
        for statement in body:
            bound = self.statement(statement, bound)
        return bound

    def statement(self, statement: ast.stmt, bound: set[str]) -> set[str]:
        match statement:
            case ast.For(target=ast.Name(id=name), iter=iterator, body=body):
                self.reads(iterator, bound)
                self.block(body, bound | {name})
                return bound
            case ast.While(test=test, body=body):
                self.reads(test, bound)
                self.block(body, bound)
                return bound
            case ast.If(test=test, body=body, orelse=orelse):
                self.reads(test, bound)
                return self.block(body, bound) & self.block(orelse, bound)
        self.reads(statement, bound)
        return bound | tree.writes(statement)

    def reads(self, node: ast.AST, bound: set[str]) -> None:
        self.found.extend(sorted(tree.reads(node) - bound))
