"""Reads the text of a TTIR module into functions, blocks and operations. Triton 3.6 to 3.9 write the same forms.

No MLIR library is needed. What an operation means is not known here; its attributes stay text until they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

_OPERATION = re.compile(r'(?:(%[\w#$., %:-]+?) = )?"?([a-z]\w*\.[\w.]+)"?(.*)$')
NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_TYPE = re.compile(
    r"tensor<((?:\d+x)*)(!tt\.ptr<\w+(?:, \d+)?>|\w+)>|(!tt\.ptr<\w+(?:, \d+)?>)|\b(i\d+|bf16|f\d+\w*|index)\b"
)
_QUOTED = re.compile(r'"[^"]*"')
_LOCATION = re.compile(r" loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_NUMBERED = re.compile(r"(#loc\d*) = loc\((.*)\)$")
_PLACE = re.compile(r'"([^"]*)":(\d+):\d+|#loc\d*')


class UnknownForm(ValueError):
    """A text that is not in the form of any known version of Triton."""


@dataclass(frozen=True)
class Type:
    """The type of a value: shape is () for a scalar; element is as TTIR writes it, `*f32` for a pointer to one."""

    shape: tuple[int, ...]
    element: str


@dataclass(eq=False)
class Operation:
    """One operation: its results and operands by name, its types, the text behind its name, its regions.

    types are those behind the last colon in order, the result's last. line is that of the kernel's file, 0 if unknown.
    read tells whether any result has a reader.
    """

    name: str
    results: list[str]
    operands: list[str]
    text: str
    regions: list[list[BasicBlock]] = field(default_factory=list)
    line: int = 0
    read: bool = True

    @cached_property
    def types(self) -> tuple[Type, ...]:
        return tuple(read_types(self.text.rpartition(" : ")[2]))

    @cached_property
    def _integers(self) -> dict[str, int]:
        named = re.findall(r"\b(\w+) = (-?\d+|true|false)\b", self.text)
        return {name: int({"true": "1", "false": "0"}.get(value, value)) for name, value in named}

    def integer(self, name: str, default: int = 0) -> int:
        """The value of an integer or boolean attribute."""
        return self._integers.get(name, default)

    @cached_property
    def body(self) -> list[Operation]:
        """The operations of its regions, without those in theirs."""
        return [op for blocks in self.regions for block in blocks for op in block.ops]

    def walk(self) -> Iterator[Operation]:
        """The operation and all within its regions."""
        yield self
        for inner in self.body:
            yield from inner.walk()


@dataclass(eq=False)
class BasicBlock:
    """A block of operations with its arguments by name."""

    label: str
    args: list[str]
    ops: list[Operation] = field(default_factory=list)


@dataclass
class Module:
    """The functions of a module by name; the kernel is the public one. Its operands are its parameters."""

    functions: dict[str, Operation]
    kernel: Operation


def read_types(text: str) -> Iterator[Type]:
    """The types in a text, in order."""
    for shape, element, pointer, scalar in _TYPE.findall(text):
        sizes = tuple(int(n) for n in shape.split("x")[:-1])
        kind = re.sub(r"!tt\.ptr<(\w+).*", r"*\1", element or pointer or scalar)
        yield Type(sizes, re.sub(r"^[su]i(?=\d)", "i", kind))  # a descriptor's integers have signs, its tiles' none


def read_module(text: str, file: str = "") -> Module:
    """The module that a text holds. Raises UnknownForm.

    With locations, lines of operations are those of the innermost frame in files whose names begin with `file`.
    """
    functions, kernel = {}, None
    reader = _TextReader(text, file)
    for line, _ in reader.lines:
        if line.startswith("tt.func"):
            parameters, _, rest = line.partition("(")[2].rpartition(" attributes")[0].partition(") -> ")
            func = Operation("tt.func", [], re.findall(r"(%[\w$.-]+): ", parameters), rest or line)
            reader.read_region(func)
            _mark_read(func)
            name = re.search(r"@([\w$.\"<>, \[\]-]+?)\(", line)
            functions[name[1] if name else ""] = func
            kernel = func if " public " in line or kernel is None else kernel
    if kernel is None:
        raise UnknownForm("no function")
    return Module(functions, kernel)


class _TextReader:
    """A pass over the lines of a text, with the source line of each."""

    def __init__(self, text: str, file: str) -> None:
        self.places: dict[str, str] = {}
        for line in text.splitlines():
            if numbered := _NUMBERED.match(line):
                self.places[numbered[1]] = numbered[2]
        self.file = file
        self.lines = iter(list(self._split(text)))

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        for line in text.splitlines():
            if line.startswith("#loc"):
                continue
            plain = line.partition("  // ")[0]
            where = [*_LOCATION.finditer(plain)]
            bare = _LOCATION.sub("", plain).strip()
            if bare:
                yield bare, where[-1].group()[5:-1] if where else ""

    def find_line(self, place: str) -> int:
        """The line of the innermost frame of a location in the kernel's file, 0 if there is none."""
        for found in _PLACE.finditer(place):
            if found[1] is not None:
                if found[1].startswith(self.file):
                    return int(found[2])
            elif line := self.find_line(self.places.get(found.group(), "")):
                return line
        return 0

    def read_region(self, op: Operation) -> tuple[str, str]:
        """Reads a region into op; gives the line that closes it, with its location."""
        blocks = [BasicBlock("", [])]
        op.regions.append(blocks)
        for line, place in self.lines:
            if line.startswith("}"):
                return line, place
            if line.startswith("^"):
                label, args = line.partition("(")[0].rstrip(":"), re.findall(r"(%[\w$.-]+): ", line)
                if blocks[0].ops or blocks[0].args:
                    blocks.append(BasicBlock(label, args))
                else:
                    blocks[0].label, blocks[0].args = label, args
                continue
            if line.endswith("{") and not _OPERATION.match(line):  # one more region of the last: `partition0(...) {`
                self.read_region(blocks[-1].ops[-1])
                continue
            blocks[-1].ops.append(self._read_operation(line, place))
        raise UnknownForm("a region without an end")

    def _read_operation(self, line: str, place: str) -> Operation:
        found = _OPERATION.match(line)
        if found is None:
            raise UnknownForm(line)
        results: list[str] = []
        for name in (found[1] or "").replace(" ", "").split(",") if found[1] else ():
            base, _, count = name.partition(":")
            results += [f"{base}#{i}" for i in range(int(count))] if count else [base]
        rest = found[3]
        op = Operation(found[2], results, NAME.findall(_QUOTED.sub("", rest)), rest)
        if rest.endswith("{"):
            closing, place = self.read_region(op)
            while closing.endswith("{"):  # `} else {`, `} do {`
                closing, place = self.read_region(op)
            op.text = rest + closing if "({" in rest else rest
        op.line = self.find_line(place)
        return op


def _mark_read(func: Operation) -> None:
    """Finds which results have readers; atomic operations without one need no order."""
    every = [*func.walk()]
    read = {name for op in every for name in op.operands}
    for op in every:
        op.read = not read.isdisjoint(op.results)
