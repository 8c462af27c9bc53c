"""Walks a kernel's TTIR or TTGIR text: integer values as expressions, tiles as affine functions of their indices.

This is an abstract interpretation of the few operations that make addresses. Everything else gives an unknown value,
never an error. It reads only the text's lines: no MLIR library is needed, and Triton's versions may differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kernelsearch.compile.code import Loop, Scalar, fold
from kernelsearch.compile.loop_text import LINE, NAME, LoopText, find_loops

_ARGUMENT = re.compile(r"(%[\w$.-]+): (!tt\.(?:ptr|tensordesc)<|[\w!.<>]+)")
_TENSOR = re.compile(r"tensor(?:desc<(?:tensor<)?|<)((?:\d+x)*)(!tt\.ptr<)?(\w+)")  # 3.9: `tensordesc<64x64xbf16>`
_NUMBER = re.compile(r"constant (?:dense<)?(-?\d+|true|false)\b(?!\.)")
_LOCATION = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)")
MAX_NODES = 300
WIDTHS = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
_BINARY = {
    "addi": "+",
    "subi": "-",
    "muli": "*",
    "div": "//",
    "rem": "%",
    "min": "min",
    "max": "max",
    "ceildiv": "cdiv",
}
"""Operations by their name without the suffix `si` or `ui`."""
_SAME = ("extsi", "extui", "trunci", "index_cast", "index_castui", "bitcast", "int_to_ptr", "ptr_to_int")


@dataclass(frozen=True)
class Value:
    """A scalar (shape is empty) or a tile: offset + the sum over its axes of stride × index, in elements.

    base is the pointer argument that it points into. Equal computations have equal keys. widened is True for the
    float32 values of 16-bit operands.
    """

    shape: tuple[int, ...] = ()
    offset: Scalar = None
    strides: tuple[Scalar, ...] = ()
    base: str = ""
    key: int = -1
    widened: bool = False


@dataclass(frozen=True)
class Op:
    """One operation: its name, its operands, the text behind the name, the loops around it."""

    name: str
    operands: tuple[Value, ...]
    rest: str
    loops: tuple[Loop, ...]
    result: str | None


@dataclass
class TextWalk:
    """The state of one pass over a text; iterate over `ops` to get every operation in order.

    names are the kernel's parameters in order; not every version of Triton writes them into its texts.
    """

    names: tuple[str, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    _keys: dict[tuple, int] = field(default_factory=dict)

    def walk_ops(self, text: str) -> Iterator[Op]:
        """Every operation of the text in order, except `tt.func` and `scf.for` themselves."""
        lines = [_LOCATION.sub("", line) for line in text.splitlines()]
        texts = find_loops(lines)
        regions: list[tuple[tuple[Loop, ...], tuple[Loop, ...]]] = []  # the loops around each region, and in its own
        loops: tuple[Loop, ...] = ()
        for number, line in enumerate(lines):
            bare = line.strip()
            if bare.startswith("}"):
                around, own = regions.pop() if regions else ((), ())
                loops = own if bare.startswith("} do") else around
                if bare.endswith("{"):
                    regions.append((around, own))
                continue
            operation = LINE.match(line)
            if operation is None:
                continue
            result, name, rest = operation.groups()
            around = loops
            if name == "tt.func":
                self._bind_arguments(rest)
            elif number in texts:
                loops = (*loops, self._enter_loop(result, texts[number], len(loops)))
            else:
                yield self._evaluate(result, name, rest, loops)
            if bare.endswith("{"):
                regions.append((around, loops))

    def value_of(self, name: str) -> Value:
        known = self.values.get(name) or self.values.get(name.partition("#")[0])
        if known is None:
            known = self.values[name] = Value(key=self._key("unknown", name))
        return known

    # ------------------------------------------------------------ regions

    def _bind_arguments(self, rest: str) -> None:
        arguments = _ARGUMENT.findall(rest.partition("attributes")[0])
        names = self.names if len(self.names) == len(arguments) else [name[1:] for name, _ in arguments]
        for (name, kind), plain in zip(arguments, names, strict=True):
            is_tensor = kind.startswith("!tt.")
            key = self._key("arg", plain)
            self.values[name] = Value((), 0 if is_tensor else ("arg", plain), (), plain if is_tensor else "", key)

    def _enter_loop(self, result: str | None, text: LoopText, depth: int) -> Loop:
        ends = [self.value_of(n) for n in text.ends[1:]] if text.ends else [Value()] * 3
        key = self._key("index", *((v.key for v in ends) if text.ends else (result, len(self.values))))
        first, last, step = (v.offset for v in ends)
        loop = Loop(first, combine("+", last, text.beyond), step)
        turns = combine("max", combine("cdiv", combine("-", loop.last, first), step), 0)
        if text.ends and text.ends[0]:
            counter = combine("+", first, combine("*", ("turn", depth), step))
            self.values[text.ends[0]] = Value((), counter, (), "", key)
        for place, (name, start) in enumerate(text.carried):
            before, change = self.value_of(start), text.change_of(place)
            is_number = not before.shape and not before.base  # what moves with an address moves a whole tile
            each = self._change_of(change) if is_number else 0
            inside, after = (combine("+", before.offset, combine("*", n, each)) for n in (("turn", depth), turns))
            for own in {name, *(n for n, p in zip(text.inside, text.results, strict=False) if p == place)}:
                self.values[own] = replace(before, offset=inside, key=self._key("carried", before.key, key))
            for number, p in enumerate(text.results):
                if result is not None and p == place:
                    self.values[f"{result}#{number}"] = value = replace(
                        before, offset=after, key=self._key("after", before.key, key)
                    )
                    if len(text.results) == 1:
                        self.values[result] = value
        return loop

    def _change_of(self, change: tuple[int, str] | None) -> Scalar:
        """What each iteration adds to a number, None if unknown."""
        if change is None:
            return None
        sign, name = change
        return combine("*", self.value_of(name).offset, sign) if sign else 0

    # ------------------------------------------------------------ operations

    def _evaluate(self, result: str | None, name: str, rest: str, loops: tuple[Loop, ...]) -> Op:
        names = NAME.findall(rest.partition(" : ")[0])
        operands = tuple(self.value_of(n) for n in names)
        if result is not None:
            shape = shape_of(rest.rpartition("-> ")[2] if "-> " in rest else rest.rpartition(" : ")[2])
            # A load may give another value each time; everything else is the same for the same operands.
            unique = (result,) if "load" in name or "atomic" in name else ()
            literal = "" if operands else rest.partition(" : ")[0]
            key = self._key(name, shape, literal, *unique, *(v.key for v in operands))
            value = self._result(name, operands, rest, shape)
            if len(value.strides) != len(value.shape):  # of an operand whose own shape is not known
                value = replace(value, strides=(None,) * len(value.shape))
            self.values[result] = replace(value, key=key)
        return Op(name, operands, rest, loops, result)

    def _result(self, name: str, operands: tuple[Value, ...], rest: str, shape: tuple[int, ...]) -> Value:
        dialect, _, plain = name.partition(".")
        unknown = Value(shape, None, (None,) * len(shape))
        first = operands[0] if operands else unknown
        if name == "arith.constant":
            number = _NUMBER.search("constant" + rest)
            text = {"true": "1", "false": "0"}.get(number.group(1), number.group(1)) if number else ""
            return Value(shape, int(text) if text else None, (0,) * len(shape))
        if plain in ("get_program_id", "get_num_programs"):
            axis = next((i for i, a in enumerate("xyz") if f" {a} " in f"{rest} "), 0)
            return Value((), ("pid" if plain == "get_program_id" else "grid", axis))
        if plain == "make_range":
            start = re.search(r"start = (-?\d+)", rest)
            return Value(shape, int(start.group(1)) if start else 0, (1,))
        if plain == "splat":
            return Value(shape, first.offset, (0,) * len(shape), first.base)
        if plain == "expand_dims":
            axis = int(re.search(r"axis = (\d+)", rest).group(1))
            return replace(first, shape=shape, strides=(*first.strides[:axis], 0, *first.strides[axis:]))
        if plain in ("broadcast", "convert_layout"):
            return replace(first, shape=shape)
        if plain == "trans":
            order = [int(n) for n in re.search(r"i32: ([\d, ]+)", rest).group(1).split(",")]
            strides = tuple(first.strides[i] for i in order) if len(order) == len(first.strides) else unknown.strides
            return replace(first, shape=shape, strides=strides)
        if plain == "addptr":
            return replace(_add_values("+", first, operands[1], shape), base=first.base)
        if dialect == "arith" and plain in _SAME:
            return replace(first, shape=shape)
        if dialect == "arith" and plain == "extf":
            return replace(unknown, widened="f16" in rest.partition(" to ")[0])  # f16 or bf16
        operation = _BINARY.get(plain.removesuffix("si").removesuffix("ui"))
        if dialect == "arith" and operation and len(operands) == 2:
            return _combine_values(operation, *operands, shape)
        if dialect == "arith" and plain == "cmpi" and not shape:
            return Value((), _compare(rest.split(",")[0].strip(), *(v.offset for v in operands)))
        if plain == "select" and len(operands) == 3:
            if shape or operands[1].base:
                return replace(operands[1], shape=shape)
            either, no = first.offset, combine("-", 1, first.offset)
            parts = (combine("*", part, v.offset) for part, v in zip((either, no), operands[1:], strict=True))
            return Value((), combine("+", *parts))
        return replace(unknown, widened=first.widened and plain in ("local_alloc", "local_load"))

    def _key(self, *parts: object) -> int:
        return self._keys.setdefault(parts, len(self._keys))


def shape_of(kind: str) -> tuple[int, ...]:
    """The shape that a type names, () for a scalar's."""
    tensor = _TENSOR.search(kind)
    return tuple(int(n) for n in tensor.group(1).split("x")[:-1]) if tensor else ()


def element_of(kind: str) -> str:
    """The element type (`bf16`) that a tensor's, a memory descriptor's or a pointer's type names, empty if none."""
    named = _TENSOR.search(kind) or re.search(r"()(!tt\.ptr<)(\w+)", kind)
    return named.group(3).lstrip("su") if named else ""  # a descriptor says `si32`


def width_of(element: str) -> int:
    """Bytes of an element type; names that WIDTHS lacks are those of 8-bit floats."""
    return WIDTHS.get(element, 1)


def combine(operation: str, a: Scalar, b: Scalar) -> Scalar:
    """`a operation b`, folded where it is simple."""
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return fold(operation, a, b)
    if operation == "*" and 0 in (a, b):
        return 0
    if (operation == "+" and a == 0) or (operation == "*" and a == 1):
        return b
    if (operation in "+-" and b == 0) or (operation in ("*", "//") and b == 1):
        return a
    return (operation, a, b) if _nodes(a) + _nodes(b) < MAX_NODES else None


def _compare(test: str, a: Scalar, b: Scalar) -> Scalar:
    """A comparison of integers (`slt`) as 1 or 0."""
    test = test.replace("ne", "_eq_").strip("su")
    if test == "_eq_":
        return combine("-", 1, combine("==", a, b))
    known = {"lt": ("<", a, b), "le": ("<=", a, b), "gt": ("<", b, a), "ge": ("<=", b, a), "eq": ("==", a, b)}.get(test)
    return combine(*known) if known else None


def _nodes(value: Scalar) -> int:
    return 1 + sum(_nodes(v) for v in value[1:]) if isinstance(value, tuple) else 1


def _add_values(operation: str, a: Value, b: Value, shape: tuple[int, ...]) -> Value:
    strides = tuple(combine(operation, x, y) for x, y in zip(a.strides, b.strides, strict=False))
    return Value(shape, combine(operation, a.offset, b.offset), strides)


def _combine_values(operation: str, a: Value, b: Value, shape: tuple[int, ...]) -> Value:
    if operation in "+-":
        return _add_values(operation, a, b, shape)
    flat_a, flat_b = (all(s == 0 for s in v.strides) for v in (a, b))
    offset = combine(operation, a.offset, b.offset)
    if flat_a and flat_b:
        return Value(shape, offset, (0,) * len(shape))
    if operation == "*" and (flat_a or flat_b):
        moving, factor = (b, a.offset) if flat_a else (a, b.offset)
        return Value(shape, offset, tuple(combine("*", s, factor) for s in moving.strides))
    if operation in ("%", "min", "max"):  # wrapped round or clamped at an edge: neighbours stay neighbours
        return replace(a if not flat_a else b, shape=shape, offset=offset)
    return Value(shape, None, (None,) * len(shape))
