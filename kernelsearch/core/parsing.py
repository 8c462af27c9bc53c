"""Python text to its syntax tree, one thread at a time."""

from __future__ import annotations

import ast
import threading
from typing import Literal, overload

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
