"""Which names of a jit function are read before anything binds them, following its statements in order."""

from __future__ import annotations

from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.language import BUILTINS
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import find_unbound


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
