"""Parses Python text, one thread at a time, and finds the known names that are closest to a misspelt one."""

from __future__ import annotations

import ast
import difflib
import threading
from collections.abc import Iterable
from typing import Literal, overload

MOST_SUGGESTED = 3
_LOCK = threading.Lock()


@overload
def parse_python(text: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse_python(text: str, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """`ast.parse` of the text. Raises SyntaxError, ValueError (NUL bytes), RecursionError, MemoryError.

    Up to Python 3.11.7 and 3.12.1, trees that two threads build at once share a depth counter, and either may end in
    "SystemError: AST constructor recursion depth mismatch" (python/cpython#106905). A search parses in many threads.
    """
    with _LOCK:
        return ast.parse(text, mode=mode)


def read_dotted(node: ast.AST) -> tuple[str, ...]:
    """The names in `a.b.c`; none for what is no name with attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to this one, ignoring case; None if none is similar."""
    by_lower = {k.lower(): k for k in sorted(known)}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else None


def suggest_names(name: str, known: Iterable[str]) -> str:
    """`did you mean bag_seeded?`: the known names that hold this one, else similar ones; `it has a, b` without any."""
    names = sorted(set(known))
    near = [k for k in names if name.lower() in k.lower()] or difflib.get_close_matches(name, names, MOST_SUGGESTED)
    if near:
        return f"did you mean {' or '.join(near[:MOST_SUGGESTED])}?"
    return f"it has {', '.join(names) or 'none'}"
