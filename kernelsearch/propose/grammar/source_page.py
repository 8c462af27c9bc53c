"""The parent's source as the prompt shows it, its statements, and the way back to a kernel."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.language import BUILTINS
from kernelsearch.kernel.source import Kernel, parse_function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import find_unbound


@dataclass(frozen=True)
class StatementPlace:
    """A statement: its lines from 1, its indentation, and the word of its header if it has a body (`for`, `if`).

    end is the last line of the statement, or of its header; target is the one name that it binds.
    """

    line: int
    end: int
    indent: int
    header: str = ""
    target: str = ""


@dataclass(frozen=True)
class SourcePage:
    """The parent's lines, numbered from 1 by position, and its statements by those numbers.

    unresolved are the parent's own unbound names, names those that its functions bind, helpers the functions that
    others call, numbers its literals.
    """

    parent: Kernel
    lines: tuple[str, ...]
    places: tuple[StatementPlace, ...]
    unresolved: frozenset[str]
    names: tuple[str, ...]
    helpers: tuple[str, ...]
    numbers: tuple[str, ...]

    @classmethod
    def of(cls, kernel: Kernel) -> SourcePage:
        functions = tuple(parse_function(tree.normalise(f.text)) for f in kernel.functions)
        local = {f.name for f in functions}
        functions = tuple(replace(f, calls=f.calls & local) for f in functions)
        text = kernel.with_changes(functions=functions).code
        nodes = [n for n in parse_python(text).body if isinstance(n, ast.FunctionDef)]
        statements = [s for n in nodes for s in tree.all_statements(tree.strip_docstrings(n.body))]
        found = sorted((_place_of(s) for s in statements), key=lambda p: p.line)
        lines = tuple(text.splitlines())
        every = [n for node in nodes for n in ast.walk(node)]
        bound = {n.id for n in every if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        constants = {n for c in kernel.constants for n in tree.writes(parse_python(c))}
        numbers = {repr(n.value) for n in every if isinstance(n, ast.Constant) and type(n.value) in (int, float)}
        helpers = {name for f in functions for name in f.calls}
        return cls(
            kernel,
            lines,
            tuple(p for p in found if not lines[p.line - 1].lstrip().startswith("elif ")),
            frozenset(find_unresolved(kernel)),
            tuple(sorted(bound | constants | {p for f in functions for p in f.params})),
            tuple(sorted(helpers)),
            tuple(sorted(numbers - {"inf", "nan"})),
        )

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


def _place_of(statement: ast.stmt) -> StatementPlace:
    header, end, target = "", statement.end_lineno or statement.lineno, ""
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)]) | ast.AnnAssign(target=ast.Name(id=target)):
            pass
        case ast.For(body=body, iter=head) | ast.While(body=body, test=head) | ast.If(body=body, test=head):
            header, end = type(statement).__name__.lower(), max(body[0].lineno - 1, head.end_lineno or statement.lineno)
            target = tree.text_of(statement.target) if isinstance(statement, ast.For) else ""
    return StatementPlace(statement.lineno, end, statement.col_offset, header, target)


def find_unresolved(kernel: Kernel) -> list[str]:
    """Names, in order, that are read where not every way to that place has bound them; none for a sound kernel."""
    known = {*tree.MODULES, *BUILTINS, *(f.name for f in kernel.functions)}
    for text in kernel.constants:
        known |= tree.writes(parse_python(text))
    names: dict[str, None] = {}
    for function in kernel.functions:
        body = tree.strip_docstrings(tree.function_of(function.text).body)
        names |= find_unbound(body, known.union(function.params))
    return list(names)
