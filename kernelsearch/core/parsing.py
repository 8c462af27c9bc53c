"""Python text to its syntax tree, one thread at a time."""

from __future__ import annotations

import ast
import threading
from typing import Literal

_TURN = threading.Lock()


def parsed(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """`ast.parse` of the text. Raises what it raises: SyntaxError, ValueError (NUL bytes), RecursionError, MemoryError.

    Up to Python 3.11.7 and 3.12.1 trees that are built in two threads at once share a depth counter, and either may end in
    "SystemError: AST constructor recursion depth mismatch" (python/cpython#106905). A search parses in many threads.
    """
    with _TURN:
        return ast.parse(text, mode=mode)
