"""The gate's rules for the launch spec: literals, whose strings are expressions of the small evaluator."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelsearch.core.errors import ExpressionError
from kernelsearch.kernel import expressions
from kernelsearch.kernel.language import SCRATCH_DTYPES
from kernelsearch.verify.body import GateRefusal


def check_spec(name: str, node: ast.expr) -> None:
    """Raises Refused when a literal is not one, or an expression in it is not the evaluator's arithmetic."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise GateRefusal(node.lineno, f"{name} must be a literal (numbers, strings, lists, dicts)") from None
    if name == "SCRATCH":
        texts = _scratch_texts(value, node.lineno)
    else:
        texts = () if name in ("LAUNCHES", "INIT") else _strings_in(value)
    for text in texts:
        try:
            expressions.validate(text)
        except ExpressionError as error:
            raise GateRefusal(node.lineno, f"{name}: {error}") from None


def _scratch_texts(value: object, line: int) -> Iterator[str]:
    for item in value.values() if isinstance(value, dict) else ():
        if not (isinstance(item, (tuple, list)) and len(item) in (2, 3) and isinstance(item[1], str)):
            raise GateRefusal(line, 'SCRATCH must be {"name": ("float32", "(shape, expression)")}')
        if item[0] not in SCRATCH_DTYPES:
            raise GateRefusal(line, f"SCRATCH: the dtype is one of {', '.join(SCRATCH_DTYPES)}, not {item[0]!r}")
        if len(item) == 3 and (isinstance(item[2], bool) or item[2] != 0):
            raise GateRefusal(line, "SCRATCH: a third item can only be 0, which asks for zero-fill")
        yield item[1]


def _strings_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple, set)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings_in(inner)
