"""The parent's source as the prompt shows it, its places, and the way from changed lines back to a kernel."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.source import Function, Kernel, parse_function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.grammar.names import find_unresolved
from kernelsearch.propose.grammar.places import StatementPlace, find_places


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
