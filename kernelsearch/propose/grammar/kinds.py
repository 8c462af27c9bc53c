"""The kind of a value: what it holds and how it is shaped, as far as Triton's own rules need it.

A dtype is Triton's name (`fp32`, `i32`, `u1`). Where a task's shapes come in several dtypes, all of them are kept, in
one order and joined by `/` (`bf16/fp32`), so that one grammar is right for each. Shapes are symbolic: the text of the
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
class Kind:
    """dtype and shape of a value, or of what a pointer points to; const is a number that the compiler knows."""

    dtype: str
    shape: Shape = ()
    pointer: bool = False
    const: bool = False

    @property
    def scalar(self) -> bool:
        return not self.shape

    @property
    def is_float(self) -> bool:
        """A float in each of the task's dtypes; a dtype that is not known (`?name`) counts as one."""
        return not self.pointer and all(d in FLOATS or d[0] == "?" for d in self.dtype.split("/"))

    @property
    def is_int(self) -> bool:
        return not self.pointer and all(d in WIDTHS and d != BOOL for d in self.dtype.split("/"))

    @property
    def is_bool(self) -> bool:
        return not self.pointer and self.dtype == BOOL

    def shaped(self, shape: Shape) -> Kind:
        return replace(self, shape=shape)

    def text(self) -> str:
        """For people: `float32 [BLOCK]`, `pointer to bf16`, `mask [BLOCK_M, 1]`."""
        words = {FLOAT: "float32", INT: "int32", BOOL: "mask"}
        name = words.get(self.dtype, self.dtype.lstrip("?"))
        where = f" [{', '.join(self.shape)}]" if self.shape else ""
        return f"{'pointer to ' if self.pointer else ''}{name}{where}"


def world_dtype(dtypes: Iterable[str]) -> str:
    """One dtype for each of the task's dtypes, as one text."""
    each = list(dtypes)
    return each[0] if len(set(each)) == 1 else "/".join(each)


def broadcast(a: Shape | None, b: Shape | None) -> Shape | None:
    """Triton's broadcast of two shapes; None where it is an error or not known."""
    if a is None or b is None:
        return None
    if not a or not b:
        return a or b
    if len(a) != len(b):
        return None
    out = tuple(y if x == "1" else x for x, y in zip(a, b, strict=True))
    return out if all(y in ("1", o) for y, o in zip(b, out, strict=True)) else None


def promoted(a: Kind, b: Kind, divided: bool = False) -> Kind | None:
    """The kind of an arithmetic result, by `TritonSemantic.computation_type_impl`; divided is for `/`."""
    shape = broadcast(a.shape, b.shape)
    if shape is None or (a.pointer and b.pointer):
        return None
    if a.pointer or b.pointer:
        pointer, other = (a, b) if a.pointer else (b, a)
        return replace(pointer, shape=shape) if other.is_int and not divided else None
    left, right = a.dtype.split("/"), b.dtype.split("/")
    n = max(len(left), len(right))
    left, right = left * (n // len(left)), right * (n // len(right))
    pairs = zip(left, right, strict=True)
    dtypes = [_promoted(x, y, a.const, b.const, divided) for x, y in pairs]
    if None in dtypes:
        return None
    return Kind(world_dtype(dtypes), shape, const=a.const and b.const)  # type: ignore[arg-type]


def _promoted(x: str, y: str, x_const: bool, y_const: bool, divided: bool) -> str | None:
    if "?" in (x[0], y[0]):
        return _unknown(x, y, x_const, y_const)
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


def _unknown(x: str, y: str, x_const: bool, y_const: bool) -> str | None:
    if x == y or y_const or y in WIDTHS:
        return x
    if x_const or x in WIDTHS:
        return y
    return FLOAT if FLOAT in (x, y) else None


def _rank(dtype: str) -> int:
    return 0 if dtype == BOOL else 1 if dtype in WIDTHS else 2


def joined(a: Kind | None, b: Kind | None) -> Kind | None:
    """The kind of a name that two ways into a statement give; None when they differ."""
    if a is None or b is None:
        return None
    if a == b:
        return a
    if replace(a, const=False) == replace(b, const=False):
        return replace(a, const=False)
    return None
