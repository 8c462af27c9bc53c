"""The statements of a kernel that an answer may change, each with the kinds of the names that it sees."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.source import Function, Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.kinds import ValueKind
from kernelsearch.propose.analysis.reader import KindReader, Scope
from kernelsearch.propose.grammar.parameters import parameter_kinds


@dataclass(frozen=True, eq=False)
class StatementPlace:
    """A statement of a function: its lines in the function's text (from 1), its indentation, and what it sees.

    end is the last line of the statement, or of its header when it has a body. scope has the names that are bound
    before it and whose kinds are known, after those behind it. block identifies the list of statements that it stands
    in, as the path of headers' lines. kinds has the kinds of all expressions of the function, by the nodes' ids.
    """

    function: str
    line: int
    end: int
    indent: int
    node: ast.stmt
    scope: Scope
    after: Scope
    block: tuple[int, ...]
    kinds: Mapping[int, ValueKind]


def find_places(kernel: Kernel, function: Function, node: ast.FunctionDef, task: TaskFacts) -> list[StatementPlace]:
    """Every statement of one function of a kernel, in source order."""
    reader = _Places(function.name, parameter_kinds(kernel, function, task))
    reader.read(tree.strip_docstrings(node.body), (node.lineno,))
    return sorted(reader.places.values(), key=lambda p: p.line)


class _Places(KindReader):
    """Records a place for each statement; of a loop's two passes the second one counts."""

    def __init__(self, function: str, scope: Scope) -> None:
        super().__init__(scope)
        self.function = function
        self.places: dict[int, StatementPlace] = {}

    def read_statement(self, statement: ast.stmt, path: tuple[int, ...]) -> None:
        before, line = self._known(), statement.lineno
        super().read_statement(statement, path)
        end, indent, after = _end(statement), statement.col_offset, self._known()
        self.places[line] = StatementPlace(
            self.function, line, end, indent, statement, before, after, path, self.by_node
        )

    def _known(self) -> Scope:
        return {name: kind for name, kind in self.scope.items() if name in self.bound and kind.is_known}


def _end(statement: ast.stmt) -> int:
    """The last line of a statement, or of its header when it has a body."""
    match statement:
        case ast.For(body=body, iter=head) | ast.While(body=body, test=head) | ast.If(body=body, test=head):
            return max(body[0].lineno - 1, head.end_lineno or statement.lineno)
    return statement.end_lineno or statement.lineno
