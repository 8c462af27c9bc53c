"""Reads a kernel's traffic through shared memory from its TTGIR, with the bank conflicts of each access.

Shared memory has 32 banks of four bytes; a warp's access takes as many turns as the fullest bank has different words
(CUDA C++ Programming Guide, "Shared Memory"). The lanes' addresses follow from the register layout (`blocked`,
`linear`, operands of `blocked` products) and the shared layout (`swizzled_shared`). The hardware swizzles the layouts
of matrix instructions itself, so these count as free of conflicts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from kernelsearch.compile.code import Code, Exchange
from kernelsearch.compile.ir import TextWalk, shape_of, width_of

_ALIAS = re.compile(r"^(#\w+) = (#ttg\.\w+<.*>)\s*$", re.MULTILINE)
_SHARED = re.compile(r"memdesc<((?:\d+x)+)(\w+), (#\w+)")
_LIST = re.compile(r"(\w+) = (\[[\d, \[\]]*\]|\w+)")
BANKS = 32
WORD = 4


@dataclass(frozen=True)
class Registers:
    """Where a lane's vector starts (one index a dimension) and how many elements it spans in each."""

    lanes: tuple[tuple[int, ...], ...]
    span: tuple[int, ...]


def read(code: Code, ttgir: str, names: tuple[str, ...] = ()) -> Code:
    """The code with the exchanges and layout conversions of this TTGIR text."""
    layouts = dict(_ALIAS.findall(ttgir))
    exchanges, conversions = [], 0
    for op in TextWalk(names).walk_ops(ttgir):
        plain = op.name.rpartition(".")[2]
        kinds = op.rest.partition(" : ")[2]
        if plain == "convert_layout":
            element = re.search(r"tensor<(?:\d+x)*(\w+)", kinds)
            conversions += math.prod(shape_of(kinds)) * width_of(element.group(1) if element else "")
        if plain not in ("local_load", "local_store", "local_alloc"):
            continue
        shared = _SHARED.search(kinds)
        if shared is None or "tensor<" not in kinds:
            continue
        shape = tuple(int(n) for n in shared.group(1).split("x")[:-1])
        width = width_of(shared.group(2))
        tensor = re.search(r"tensor<(?:\d+x)+\w+, (.*?)>(?: ->|$|\) ->)", kinds)
        encoding = layouts.get(shared.group(3), "")
        ways = _ways(encoding, tensor.group(1) if tensor else "", layouts, shape, width)
        kind = "load" if plain == "local_load" else "store"
        exchanges.append(Exchange(kind, ways, math.prod(shape) * width, op.loops))
    return replace(code, exchanges=tuple(exchanges), conversions=conversions)


def _ways(encoding: str, layout: str, layouts: dict[str, str], shape: tuple[int, ...], width: int) -> float:
    """A warp's turns for an access divided by the turns that its bytes need; 1.0 for an unknown layout."""
    if "swizzled_shared" not in encoding or len(shape) < 2:
        return 1.0
    registers = _registers(layout, layouts, shape)
    if registers is None or any(len(lane) != len(shape) for lane in registers.lanes):
        return 1.0
    numbers = _numbers(encoding)
    order = numbers["order"]
    fast, slow = order[0], order[1]
    vector = registers.span[fast]
    swizzled = numbers.get("maxPhase", 1) > 1
    if swizzled:
        vector = min(vector, numbers["vec"])
    vector = max(1, min(vector, 16 // width))
    words = []
    for lane in registers.lanes:
        index = [i % n for i, n in zip(lane, shape, strict=True)]
        row, column = index[slow], index[fast]
        if swizzled:
            vec = numbers["vec"]
            phase = (row // numbers["perPhase"]) % numbers["maxPhase"]
            column = ((column // vec) ^ phase) * vec + column % vec
        rest = 0
        for axis in reversed(order[2:]):
            rest = rest * shape[axis] + index[axis]
        start = ((rest * shape[slow] + row) * shape[fast] + column) * width
        words.append(range(start // WORD, max(start // WORD + 1, (start + vector * width) // WORD)))
    half_used = max(1.0, WORD / (vector * width))  # lanes of one or two bytes leave part of each bank's word unused
    return _turns(words, max(WORD, vector * width)) * half_used


def _turns(words: list[range], lane_bytes: int) -> float:
    """The mean turns of a group: lanes with wide vectors go in groups that fill all banks once (eight of 16 bytes)."""
    size = max(1, BANKS * WORD // lane_bytes)
    turns = []
    for start in range(0, len(words), size):
        group = {word for lane in words[start : start + size] for word in lane}
        turns.append(max(Counter(word % BANKS for word in group).values()))
    return sum(turns) / len(turns)


def _registers(layout: str, layouts: dict[str, str], shape: tuple[int, ...]) -> Registers | None:
    operand = re.match(r"#ttg\.dot_op<\{opIdx = (\d), parent = (#\w+)", layout)
    name = operand.group(2) if operand else layout.partition(">")[0].strip()
    text = layouts.get(name, "")
    if "ttg.linear<" in text and operand is None:
        return _linear(text, shape)
    if "ttg.blocked<" not in text:
        return None
    numbers = _numbers(text)
    span, threads, order = numbers["sizePerThread"], numbers["threadsPerWarp"], numbers["order"]
    lanes = []
    for lane in range(math.prod(threads)):
        index = [0] * len(threads)
        for axis in order:
            lane, place = divmod(lane, threads[axis])
            index[axis] = place * span[axis]
        lanes.append(index)
    if operand is not None:  # every lane holds the whole of k: lanes differ along m or n alone
        k = 1 - int(operand.group(1))
        lanes = [[0 if axis == k else i for axis, i in enumerate(index)] for index in lanes]
        span = [shape[axis] if axis == k else n for axis, n in enumerate(span)]
    return Registers(tuple(tuple(i) for i in lanes), tuple(span))


def _linear(text: str, shape: tuple[int, ...]) -> Registers | None:
    bases = {
        name: [[int(n) for n in b.split(",")] for b in re.findall(r"\[([\d, ]+)\]", inner)]
        for name, inner in re.findall(r"(register|lane) = \[((?:\[[\d, ]+\](?:, )?)*)\]", text)
    }
    if not bases.get("lane"):
        return None
    lanes = []
    for lane in range(1 << len(bases["lane"])):
        index = [0] * len(shape)
        for bit, basis in enumerate(bases["lane"]):
            if lane >> bit & 1:
                index = [i ^ b for i, b in zip(index, basis, strict=True)]
        lanes.append(tuple(index))
    span = [1] * len(shape)
    for basis in bases.get("register", ()):
        for axis in range(len(shape)):
            if basis[axis] == span[axis] and sum(basis) == basis[axis]:
                span[axis] *= 2
    return Registers(tuple(lanes), tuple(span))


def _numbers(text: str) -> dict[str, Any]:
    """The integers and lists of integers of a layout's text, by name."""
    numbers: dict[str, Any] = {}
    for name, value in _LIST.findall(text):
        if value.startswith("["):
            numbers[name] = [int(n) for n in re.findall(r"\d+", value)]
        elif value.isdigit():
            numbers[name] = int(value)
    return numbers
