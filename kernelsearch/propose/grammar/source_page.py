"""The parent's source as the prompt shows it, its statements with what they see, and the way back to a kernel."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.source import Function, Kernel, parse_function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.kinds import ValueKind
from kernelsearch.propose.analysis.reader import KindReader, Scope
from kernelsearch.propose.grammar.names import find_unresolved
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


@dataclass(frozen=True)
class SourcePage:
    """The parent's lines, numbered from 1 by position, and its statements by those numbers.

    unresolved are the parent's own unbound names.
    """

    parent: Kernel
    lines: tuple[str, ...]
    places: tuple[StatementPlace, ...]
    unresolved: frozenset[str]
    functions: Mapping[str, tuple[Function, ast.FunctionDef]]
    """Each function with its node, of which the places' nodes are part."""

    @classmethod
    def of(cls, kernel: Kernel, task: TaskFacts) -> SourcePage:
        functions = tuple(parse_function(tree.normalise(f.text)) for f in kernel.functions)
        local = {f.name for f in functions}
        functions = tuple(replace(f, calls=f.calls & local) for f in functions)
        normal = kernel.with_changes(functions=functions)
        text = normal.code
        nodes = {n.name: n for n in parse_python(text).body if isinstance(n, ast.FunctionDef)}
        both = {f.name: (f, nodes[f.name]) for f in functions}
        every = tuple(place for function, node in both.values() for place in find_places(normal, function, node, task))
        return cls(kernel, tuple(text.splitlines()), every, frozenset(find_unresolved(kernel)), both)

    @property
    def spans(self) -> Mapping[int, int]:
        """The last line of each statement (of its header, when it has a body) by its first."""
        return {p.line: p.end for p in self.places}

    def kernel(self, source: str) -> Kernel:
        """The parent with its functions as this source has them. Raises KernelSyntaxError."""
        new = Kernel.parse(_without_needless_passes(source))
        if set(new.names) != set(self.parent.names):
            raise KernelSyntaxError("the answer loses or adds a function")
        return self.parent.with_changes(functions=new.functions, constants=new.constants)


def _without_needless_passes(source: str) -> str:
    """The source without the `pass` that DELETE leaves, except where a block would be empty."""
    try:
        node = parse_python(source)
    except (SyntaxError, ValueError) as error:
        raise KernelSyntaxError(f"not Python: {getattr(error, 'msg', None) or error}") from None
    needless = set()
    for block in tree.blocks(node.body):
        passes = [s for s in block if isinstance(s, ast.Pass)]
        needless |= {s.lineno for s in (passes if len(passes) < len(block) else passes[1:])}
    return "".join(line for n, line in enumerate(source.splitlines(keepends=True), 1) if n not in needless)


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
