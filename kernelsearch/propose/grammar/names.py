"""Which names of a jit function are read before anything binds them, following its statements in order."""

from __future__ import annotations

import ast

from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.language import BUILTINS
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree


def find_unresolved(kernel: Kernel) -> list[str]:
    """Names, in order, that are read where not every way to that place has bound them; none for a sound kernel."""
    known = {*tree.MODULES, *BUILTINS, *(f.name for f in kernel.functions)}
    for text in kernel.constants:
        known |= tree.writes(parse_python(text))
    names: dict[str, None] = {}
    for function in kernel.functions:
        body = tree.strip_docstrings(tree.function_of(function.text).body)
        _follow(body, known.union(function.params), names)
    return list(names)


def _follow(body: list[ast.stmt], bound: set[str], unbound: dict[str, None]) -> set[str]:
    """The names that are bound behind the statements; adds to unbound what they read before."""
    for statement in body:
        match statement:
            case ast.For(target=target, iter=head, body=inner):
                unbound |= dict.fromkeys(sorted(tree.reads(head) - bound))
                _follow(inner, bound | tree.writes(target), unbound)
            case ast.While(test=head, body=inner):
                unbound |= dict.fromkeys(sorted(tree.reads(head) - bound))
                _follow(inner, bound, unbound)
            case ast.If(test=head, body=inner, orelse=other):
                unbound |= dict.fromkeys(sorted(tree.reads(head) - bound))
                bound = _follow(inner, bound, unbound) & _follow(other, bound, unbound)
            case _:
                unbound |= dict.fromkeys(sorted(tree.reads(statement) - bound))
                bound = bound | tree.writes(statement)
    return bound
