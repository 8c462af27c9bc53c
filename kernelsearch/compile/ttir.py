"""Reads a kernel's loads, stores, products and element-wise work from its TTIR, and the loops around them."""

from __future__ import annotations

import math
import re
from collections import Counter

from kernelsearch.compile.code import Access, Code, Dot, Loop, Work
from kernelsearch.compile.ir import Op, TextWalk, Value, element_of, shape_of, width_of

_SPECIAL = frozenset({"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "tanh", "log1p", "expm1"})
_FLOAT = frozenset("addf subf mulf maxnumf maximumf minnumf minimumf negf absf fma cmpf".split())
_KINDS = {
    **{name: name.removeprefix("descriptor_") for name in "load store descriptor_load descriptor_store".split()},
    **dict.fromkeys(("atomic_rmw", "atomic_cas"), "atomic"),
}
_SIZES = re.compile(r"tensor<(\d+)x(\d+)x(\w+)")


def read(ttir: str, names: tuple[str, ...] = ()) -> Code:
    """The accesses, matrix products and element-wise work of a TTIR text with one kernel of these parameters."""
    walk = TextWalk(names)
    accesses: list[Access] = []
    dots: list[Dot] = []
    work: Counter[tuple[str, tuple[Loop, ...]]] = Counter()
    reduced: list[tuple[Loop, ...]] = []
    for op in walk.walk_ops(ttir):
        dialect, _, plain = op.name.partition(".")
        if plain in ("reduce", "scan"):
            reduced.append(op.loops)
        if dialect == "tt" and plain in _KINDS:
            accesses.append(_access(op, plain))
        elif plain == "dot":
            dots.append(_dot(op))
        elif plain in ("make_tensor_descriptor", "experimental_make_tensor_descriptor") and op.result:
            walk.values[op.result] = Value(base=op.operands[0].base, key=walk.values[op.result].key)
        else:
            kind = _work_kind(dialect, plain)
            size = math.prod(shape_of(op.rest.rpartition(" : ")[2]))
            if kind and size > 1:
                work[kind, op.loops] += size
            elif plain == "reduce" and op.operands:
                work["float", op.loops] += math.prod(op.operands[0].shape)
    works = tuple(Work(kind, n, loops) for (kind, loops), n in work.items())
    return Code(tuple(accesses), tuple(dots), works, reduced=tuple(reduced))


def _work_kind(dialect: str, plain: str) -> str | None:
    if (dialect == "math" and plain in _SPECIAL) or plain == "extern_elementwise":
        return "special"
    if plain in ("divf", "precise_divf"):
        return "divide"
    return "float" if plain in _FLOAT else None


def _access(op: Op, plain: str) -> Access:
    pointer = op.operands[0] if op.operands else Value()
    kinds = op.rest.partition(" : ")[2]
    shape, strides, descriptor = pointer.shape, pointer.strides, plain.startswith("descriptor")
    if descriptor:
        shape = shape_of(kinds)  # of the descriptor, whose type comes first
        strides = (*(None,) * (len(shape) - 1), 1)
    width = width_of(element_of(kinds))
    offset = None if descriptor else pointer.offset
    return Access(_KINDS[plain], pointer.base, width, shape, strides, op.loops, pointer.key, descriptor, offset)


def _dot(op: Op) -> Dot:
    sizes = _SIZES.findall(op.rest.partition(" : ")[2])
    if len(sizes) < 2:
        return Dot(1, 1, 1, "", False, op.loops)
    (m, k, dtype), (_, n, _) = sizes[0], sizes[1]
    widened = dtype == "f32" and all(v.widened for v in op.operands[:2])
    return Dot(int(m), int(n), int(k), dtype, widened, op.loops)
