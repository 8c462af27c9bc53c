"""The kind of a value: its dtype and its shape, each as far as it is known, by Triton's own rules.

A dtype is Triton's name (`fp32`, `i32`, `u1`). Where a task's shapes come in several dtypes, all of them are kept, in
one order and joined by `/` (`bf16/fp32`), so that one kind is right for each. Shapes are symbolic: the text of the
constexprs that a kernel gives (`("BLOCK_M", "1")`), `()` for a scalar.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

Shape = tuple[str, ...]

INT, FLOAT, BOOL = "i32", "fp32", "u1"
WIDTHS = {"u1": 1, "i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64}
FLOATS = ("fp8e5", "fp8e4nv", "fp16", "bf16", "fp32", "fp64")


@dataclass(frozen=True)
class ValueKind:
    """dtype and shape of a value, or of what a pointer points to; None is unknown.

    const marks a number that the compiler knows. A dtype `?name` is that of an unknown tensor, taken for a float.
    """

    dtype: str | None
    shape: Shape | None = ()
    pointer: bool = False
    const: bool = False

    @property
    def is_known(self) -> bool:
        return self.dtype is not None and self.shape is not None

    @property
    def is_scalar(self) -> bool:
        return not self.shape

    @property
    def is_float(self) -> bool:
        """True if the value is a float in each of the task's dtypes."""
        return not self.pointer and all(d in FLOATS or d[:1] == "?" for d in self.dtypes)

    @property
    def is_int(self) -> bool:
        return not self.pointer and all(d in WIDTHS and d != BOOL for d in self.dtypes)

    @property
    def is_bool(self) -> bool:
        return not self.pointer and self.dtype == BOOL

    @property
    def dtypes(self) -> list[str]:
        """One dtype for each dtype of the task; an unknown one is the empty text."""
        return (self.dtype or "").split("/")

    def with_shape(self, shape: Shape | None) -> ValueKind:
        return replace(self, shape=shape)

    def text(self) -> str:
        """For people: `float32 [BLOCK]`, `pointer to bf16`, `mask [BLOCK_M, 1]`."""
        words = {FLOAT: "float32", INT: "int32", BOOL: "mask", None: "unknown"}
        name = words.get(self.dtype) or self.dtype.lstrip("?")
        where = f" [{', '.join(self.shape)}]" if self.shape else ""
        return f"{'pointer to ' if self.pointer else ''}{name}{where}"


UNKNOWN, SCALAR = ValueKind(None, None), ValueKind(None, ())


def join_dtypes(dtypes: Iterable[str | None]) -> str | None:
    """One dtype for each of the task's dtypes, as one text; None if one of them is unknown."""
    each = list(dtypes)
    if None in each:
        return None
    return each[0] if len(set(each)) == 1 else "/".join(each)  # type: ignore[arg-type]


def broadcast_shapes(*shapes: Shape | None) -> Shape | None:
    """Triton's broadcast: a scalar fits everything, missing axes are added in front. None: an error, or unknown."""
    if None in shapes:
        return None
    rank = max((len(s) for s in shapes), default=0)  # type: ignore[arg-type]
    padded = [("1",) * (rank - len(s)) + s for s in shapes if s]  # type: ignore[arg-type]
    axes = [set(dims) - {"1"} or {"1"} for dims in zip(*padded, strict=True)]
    return tuple(axis.pop() for axis in axes) if all(len(axis) == 1 for axis in axes) else None


def promote_kinds(a: ValueKind, b: ValueKind, divided: bool = False) -> ValueKind:
    """The kind of an arithmetic result, by `TritonSemantic.computation_type_impl`; divided is for `/`."""
    shape = broadcast_shapes(a.shape, b.shape)
    if a.pointer or b.pointer:
        pointer, other = (a, b) if a.pointer else (b, a)
        return replace(pointer, shape=shape) if other.is_int and not divided else ValueKind(None, shape)
    if a.dtype is None or b.dtype is None:
        return ValueKind(None, shape)
    left, right = a.dtypes, b.dtypes
    n = max(len(left), len(right))
    pairs = zip(left * (n // len(left)), right * (n // len(right)), strict=True)
    dtype = join_dtypes(_promote(x, y, a.const, b.const, divided) for x, y in pairs)
    return ValueKind(dtype, shape, const=a.const and b.const)


def _promote(x: str, y: str, x_const: bool, y_const: bool, divided: bool) -> str | None:
    if "?" in (x[0], y[0]):
        return _promote_unknown(x, y, x_const, y_const)
    if divided and x in WIDTHS and y in WIDTHS:
        return FLOAT
    if x_const != y_const:
        weak, strong = (x, y) if x_const else (y, x)
        if _rank(weak) <= _rank(strong):
            return FLOAT if divided and strong in ("fp16", "bf16") else strong
    for wide in ("fp64", "fp32"):
        if wide in (x, y):
            return wide
    if x in FLOATS or y in FLOATS:
        same = x == y or "fp16" in (x, y)  # half takes integers and bfloat16 with it, bfloat16 nothing
        return FLOAT if divided or not same else "fp16" if "fp16" in (x, y) else x
    return x if WIDTHS[x] >= WIDTHS[y] else y


def _promote_unknown(x: str, y: str, x_const: bool, y_const: bool) -> str | None:
    if x == y or y_const or y in WIDTHS:
        return x
    if x_const or x in WIDTHS:
        return y
    return FLOAT if FLOAT in (x, y) else None


def _rank(dtype: str) -> int:
    return 0 if dtype == BOOL else 1 if dtype in WIDTHS else 2


def join_kinds(a: ValueKind, b: ValueKind) -> ValueKind:
    """The kind of a name to which two ways lead; what differs is unknown.

    A scalar that becomes a block by broadcasting is not one value in Triton, so that its shape is unknown too.
    """
    shape = a.shape if a.shape == b.shape else None
    same = (a.dtype, a.pointer) == (b.dtype, b.pointer)
    return ValueKind(a.dtype if same else None, shape, a.pointer and same, a.const and b.const)
