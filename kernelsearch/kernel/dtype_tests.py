"""Finds out whether a kernel branches on dtypes, so that it may behave differently with float32 in another's place."""

from __future__ import annotations

import ast
from functools import lru_cache

from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.language import DTYPES

_DTYPE_ATTRIBUTES = frozenset("dtype element_ty type scalar".split())
_ANSWERS = frozenset("is_fp16 is_bf16 is_fp32 primitive_bitwidth fp_mantissa_width itemsize".split())
"""Methods and attributes of a dtype that differ between 16-bit floats and float32."""


@lru_cache(maxsize=256)
def tests_dtypes(code: str) -> bool:
    """True if a kernel's code compares dtypes, or asks one what it is."""
    nodes = list(ast.walk(parse_python(code)))
    names: set[str] = set()
    while more := {n for node in nodes if isinstance(node, ast.Assign) for n in _dtype_names(node, names)} - names:
        names |= more
    compared = (part for n in nodes if isinstance(n, ast.Compare) for part in (n.left, *n.comparators))
    asked = (n.attr in _ANSWERS for n in nodes if isinstance(n, ast.Attribute))
    return any(_is_dtype(part, names) for part in compared) or any(asked)


def _dtype_names(node: ast.Assign, names: set[str]) -> set[str]:
    """The names to which an assignment binds a dtype."""
    if not _is_dtype(node.value, names):
        return set()
    return {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _is_dtype(node: ast.expr, names: set[str]) -> bool:
    """True if an expression may be a dtype: `tl.float16`, `x.dtype`, a name for one, several, or a choice of them."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        return node.attr in _DTYPE_ATTRIBUTES or node.attr in DTYPES
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(_is_dtype(part, names) for part in node.elts)
    if isinstance(node, ast.IfExp):
        return _is_dtype(node.body, names) or _is_dtype(node.orelse, names)
    if isinstance(node, ast.Call):  # tl.constexpr(tl.float16)
        return ast.unparse(node.func).endswith("constexpr") and any(_is_dtype(a, names) for a in node.args)
    return False
