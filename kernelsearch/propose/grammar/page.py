"""The parent's source as the prompt shows it: one statement a line at most, its places, and the way back to a kernel."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from kernelsearch.errors import KernelSyntaxError
from kernelsearch.propose import tree
from kernelsearch.propose.grammar.infer import Place, places
from kernelsearch.propose.grammar.names import unresolved
from kernelsearch.source import Kernel, parse_function
from kernelsearch.types import TaskFacts


@dataclass(frozen=True)
class Page:
    """lines are numbered from 1; places are the statements, by those numbers; unresolved is the parent's own fault."""

    parent: Kernel
    lines: tuple[str, ...]
    places: tuple[Place, ...]
    unresolved: frozenset[str]

    @classmethod
    def of(cls, kernel: Kernel, task: TaskFacts) -> Page:
        functions = tuple(parse_function(tree.normal(f.text)) for f in kernel.functions)
        local = {f.name for f in functions}
        functions = tuple(_with_calls(f, local) for f in functions)
        normal = kernel.changed(functions=functions)
        text = normal.code
        found: list[Place] = []
        by_name = {f.name: f for f in functions}
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                found.extend(places(normal, by_name[node.name], node, task))
        return cls(kernel, tuple(text.splitlines()), tuple(found), frozenset(unresolved(kernel)))

    @property
    def spans(self) -> Mapping[int, int]:
        """The last line of each statement (of its header, when it has a body) by its first."""
        return {p.line: p.end for p in self.places}

    def kernel(self, source: str) -> Kernel:
        """The parent with its functions as this source has them. Raises KernelSyntaxError."""
        new = Kernel.parse(_without_needless_passes(source))
        if set(new.names) != set(self.parent.names):
            raise KernelSyntaxError("the answer loses or adds a function")
        return self.parent.changed(functions=new.functions, constants=new.constants)


def _with_calls(function, local: set[str]):  # noqa: ANN001, ANN202 (a source.Function, as `Kernel.parse` makes it)
    from dataclasses import replace

    return replace(function, calls=function.calls & local)


def _without_needless_passes(source: str) -> str:
    """DELETE leaves `pass` where a statement was; it is needed only where a block would be empty."""
    try:
        node = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise KernelSyntaxError(f"not Python: {getattr(error, 'msg', None) or error}") from None
    needless = set()
    for block in tree.blocks(node.body):
        passes = [s for s in block if isinstance(s, ast.Pass)]
        needless |= {s.lineno for s in (passes if len(passes) < len(block) else passes[1:])}
    return "".join(line for n, line in enumerate(source.splitlines(keepends=True), 1) if n not in needless)
