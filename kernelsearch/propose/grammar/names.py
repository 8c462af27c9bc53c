"""Which names of a jit function are read before anything binds them, following its statements in order."""

from __future__ import annotations

import ast

from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.language import BUILTINS
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.kinds import UNKNOWN
from kernelsearch.propose.analysis.reader import KindReader


def find_unresolved(kernel: Kernel) -> list[str]:
    """Names, in order, that are read where no way to that place has bound them; none for a sound kernel."""
    known = {*tree.MODULES, *BUILTINS, *(f.name for f in kernel.functions)}
    for text in kernel.constants:
        known |= tree.writes(parse_python(text))
    names: dict[str, None] = {}
    for function in kernel.functions:
        reader = _Unbound(dict.fromkeys([*known, *function.params], UNKNOWN))
        reader.read(tree.strip_docstrings(tree.function_of(function.text).body))
        names |= dict.fromkeys(reader.unbound)
    return list(names)


class _Unbound(KindReader):
    """Collects the names that a statement, or its header when it has a body, reads before they are bound."""

    def __init__(self, scope: dict) -> None:
        super().__init__(scope)
        self.unbound: list[str] = []

    def read_statement(self, statement: ast.stmt, path: tuple[int, ...]) -> None:
        match statement:
            case ast.For(target=ast.Name(), iter=read) | ast.While(test=read) | ast.If(test=read):
                self.unbound += sorted(tree.reads(read) - self.bound)
            case _:
                self.unbound += sorted(tree.reads(statement) - self.bound)
        super().read_statement(statement, path)
