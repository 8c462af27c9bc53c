"""Walks a kernel's TTIR or TTGIR text: integer values as expressions, tiles as affine functions of their indices.

This is an abstract interpretation of the few operations that make addresses. Everything else gives an unknown value,
never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kernelsearch.compile.code import Loop, Scalar, fold
from kernelsearch.ir.text import BasicBlock, Operation, read_module

_ARGUMENT = re.compile(r"(%[\w$.-]+): (!tt\.(?:ptr|tensordesc)<|[\w!.<>]+)")
_TENSOR = re.compile(r"tensor(?:desc<(?:tensor<)?|<)((?:\d+x)*)(!tt\.ptr<)?(\w+)")  # 3.9: `tensordesc<64x64xbf16>`
_NUMBER = re.compile(r"constant (?:dense<)?(-?\d+|true|false)\b(?!\.)")
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
_LESS = {"slt": 0, "ult": 0, "sle": 1, "ule": 1}
"""Comparisons of a counter with its end, and what to add to that end."""
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


@dataclass(frozen=True)
class LoopBody:
    """What a loop carries, by the names of its values: (name, start) of each, and the next values (yields).

    results are places in carried, in the order of inside, the names in the body; made has what the body computes.
    """

    carried: list[tuple[str, str]]
    inside: list[str]
    results: list[int]
    yields: list[str]
    made: dict[str, Operation]

    @classmethod
    def of(cls, loop: Operation) -> LoopBody:
        names = loop.operands[4:] if loop.name == "scf.for" else loop.operands
        carried, own = list(zip(names[::2], names[1::2], strict=True)), names[::2]
        ops = {op.name: op for op in loop.body}  # the last of each name
        yields = ops["scf.yield"].operands if "scf.yield" in ops else []
        made = {op.results[0]: op for op in loop.body if op.results}
        if loop.name == "scf.for":
            return cls(carried, own, list(range(len(own))), yields, made)
        places = [own.index(n) if n in own else -1 for n in ops["scf.condition"].operands[1:]]
        return cls(carried, loop.regions[-1][0].args, places, yields, made)

    def find_ends(self, loop: Operation) -> tuple[str, Sequence[str], int] | None:
        """The loop's variable (empty for a `while`), its first value, end and step, and what to add to that end."""
        if loop.name == "scf.for":
            return loop.operands[0], loop.operands[1:4], 0
        own = [name for name, _ in self.carried]
        before = loop.regions[0][0].ops  # its names are not seen in the body, which may use them again
        test = next((op for op in before if op.results == before[-1].operands[:1]), None)
        word = test.text.split(",")[0].strip() if test is not None and test.name == "arith.cmpi" else ""
        if test is None or word not in _LESS or test.operands[0] not in own or test.operands[1] in (*own, *self.made):
            return None
        place = own.index(test.operands[0])
        sign, step = self.change_of(place) or (0, "")
        return ("", (self.carried[place][1], test.operands[1], step), _LESS[word]) if sign == 1 else None

    def change_of(self, place: int) -> tuple[int, str] | None:
        """(Sign, name) of what each iteration adds to a carried value; (0, "") for nothing, None for any other change.

        Only what was made outside the loop is the same in every iteration.
        """
        if place not in self.results or len(self.yields) != len(self.carried) or len(self.inside) != len(self.results):
            return None
        own, new = self.inside[self.results.index(place)], self.yields[place]
        if own == new:
            return 0, ""
        made = self.made.get(new)
        if made is None or made.name not in ("arith.addi", "arith.subi") or own not in made.operands:
            return None
        other = made.operands[made.operands[0] == own]
        if other == own or other in self.made or (made.name == "arith.subi" and made.operands[0] != own):
            return None
        return (1 if made.name == "arith.addi" else -1), other


@dataclass
class TextWalk:
    """The state of one pass over a text; iterate over `ops` to get every operation in order.

    names are the kernel's parameters in order; not every version of Triton writes them into its texts.
    """

    names: tuple[str, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    _keys: dict[tuple, int] = field(default_factory=dict)

    def walk_ops(self, text: str) -> Iterator[Op]:
        """Every operation of the text in order, except loops themselves. Raises UnknownForm."""
        for function in read_module(text).functions.values() if "tt.func" in text else ():
            self._bind_arguments(function.text)
            yield from self._walk(function.regions, ())

    def _walk(self, regions: list[list[BasicBlock]], loops: tuple[Loop, ...]) -> Iterator[Op]:
        for op in (op for blocks in regions for block in blocks for op in block.ops):
            if op.name in ("scf.for", "scf.while"):
                yield from self._walk(op.regions, (*loops, self._enter_loop(op, len(loops))))
            else:
                yield self._evaluate(op, loops)
                yield from self._walk(op.regions, loops)

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

    def _enter_loop(self, op: Operation, depth: int) -> Loop:
        body = LoopBody.of(op)
        variable, names, beyond = body.find_ends(op) or ("", (), 0)
        ends = [self.value_of(n) for n in names] if names else [Value()] * 3
        unique = (*op.results, len(self.values))
        key = self._key("index", *((v.key for v in ends) if names else unique))
        first, last, step = (v.offset for v in ends)
        loop = Loop(first, combine("+", last, beyond), step)
        turns = combine("max", combine("cdiv", combine("-", loop.last, first), step), 0)
        if variable:
            counter = combine("+", first, combine("*", ("turn", depth), step))
            self.values[variable] = Value((), counter, (), "", key)
        for place, (name, start) in enumerate(body.carried):
            before, change = self.value_of(start), body.change_of(place)
            is_number = not before.shape and not before.base  # what moves with an address moves a whole tile
            each = self._change_of(change) if is_number else 0
            inside, after = (combine("+", before.offset, combine("*", n, each)) for n in (("turn", depth), turns))
            for own in {name, *(n for n, p in zip(body.inside, body.results, strict=False) if p == place)}:
                self.values[own] = replace(before, offset=inside, key=self._key("carried", before.key, key))
            for result, p in zip(op.results, body.results, strict=False):
                if p == place:
                    self.values[result] = replace(before, offset=after, key=self._key("after", before.key, key))
        return loop

    def _change_of(self, change: tuple[int, str] | None) -> Scalar:
        """What each iteration adds to a number, None if unknown."""
        if change is None:
            return None
        sign, name = change
        return combine("*", self.value_of(name).offset, sign) if sign else 0

    # ------------------------------------------------------------ operations

    def _evaluate(self, op: Operation, loops: tuple[Loop, ...]) -> Op:
        name, rest, operands = op.name, op.text, tuple(self.value_of(n) for n in op.operands)
        result = op.results[0].partition("#")[0] if op.results else None
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
            axis = int(re.findall(r"axis = (\d+)", rest)[0])
            return replace(first, shape=shape, strides=(*first.strides[:axis], 0, *first.strides[axis:]))
        if plain in ("broadcast", "convert_layout"):
            return replace(first, shape=shape)
        if plain == "trans":
            order = [int(n) for n in re.findall(r"i32: ([\d, ]+)", rest)[0].split(",")]
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
