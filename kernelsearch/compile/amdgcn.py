"""Reads a kernel's AMD assembly: its resources, its instructions by kind, its loops with their longest chains.

LLVM writes the code object's metadata, and the loop of each basic block, into the text that Triton assembles ("User
Guide for AMDGPU Backend"). Registers are the vector registers of a lane, accumulators included, of which there are 512.
Scalar instructions run beside vector ones and are not counted; nor are waits: what is loaded is ready after its load.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from kernelsearch.compile.blocks import MEMORY, Paths, Region, split_bodies
from kernelsearch.compile.code import InstructionCounts
from kernelsearch.compile.elf import Resources

_LABEL = re.compile(r"^(?:\.L(BB\d+_\d+):|; %bb\.)")
_INSTRUCTION = re.compile(r"^\s+([a-z]+_\w+)\s*(.*)$")
_KINDS = re.compile(
    r"(?P<barrier>s_barrier)|(?P<scalar>s_)|(?P<atomic>\w+_atomic|ds_(?:add|cmpst))|(?P<shared_load>ds_(?:read|load))"
    r"|(?P<shared_store>ds_(?:write|store))|(?P<shuffle>ds_)|(?P<copy>(?:global|buffer)_load(?:_lds|.* lds$))"
    r"|(?P<load>(?:global|buffer|flat)_load)|(?P<store>(?:global|buffer|flat)_store)|(?P<mma>v_s?mfma)"
    r"|(?P<special>v_(?:exp|log|rcp|rsq|sqrt|sin|cos)_)|(?P<wide>v_\w+_[fiub]64)|(?P<arith>\w)"
)
_WIDTH = re.compile(r"_(?:[bui](\d+)|[us]?(byte|short|dword)(?:x(\d))?)")
_MATRIX = re.compile(r"_(\d+)x(\d+)x(\d+)(?:_?(\d+)b_)?")
_REGISTER = re.compile(r"\b([vsa])(?:(\d+)|\[(\d+):(\d+)\])|\b(vcc|exec|scc)\b")
_SHARED = dict.fromkeys(("shared_load", "shared_store"), "shared_bytes")
_BYTES = {"load": "load_bytes", "copy": "load_bytes", "store": "store_bytes", **_SHARED}


def read_resources(text: str) -> Resources:
    """Vector registers, and bytes of scratch memory, of a lane. Raises KeyError for a text without metadata."""
    numbers = dict(re.findall(r"\.(vgpr_count|private_segment_fixed_size):\s+(\d+)", text))
    return Resources(int(numbers["vgpr_count"]), int(numbers["private_segment_fixed_size"]))


def count_instructions(text: str) -> InstructionCounts:
    """The mix of the text's instructions; one in a loop counts once."""
    tables: dict[str, Counter[int]] = {name: Counter() for name in _BYTES.values()}
    kinds: Counter[str] = Counter()
    for kind, name, _ in (one for _, body in _split(text) for one in body if one[0] != "scalar"):
        kinds["cp_async" if kind == "copy" else kind] += 1
        if kind in _BYTES:
            tables[_BYTES[kind]][_width_of(name)] += 1
    loads, stores, shared = map(dict, tables.values())
    return InstructionCounts(loads, stores, shared, dict(kinds), kinds.total())


def split_regions(text: str) -> list[Region]:
    """The code outside all loops, then each loop in the order of the text."""
    regions = []
    for depth, body in _split(text):
        region, paths = Region(depth), Paths()
        for kind, name, operands in body:
            first, _, rest = operands.partition(",")
            reads_all = kind in ("store", "shared_store", "barrier", "copy")
            results, sources = map(_list_registers, ("", operands) if reads_all else (first, rest))
            if kind == "scalar":
                paths.ready |= dict.fromkeys(results, paths.ready_time(sources))
                continue
            region.counts.update(("instructions", kind))
            if kind in _BYTES:
                region.counts[_BYTES[kind]] += _width_of(name)
            if kind == "mma" and (shape := _MATRIX.search(name)):
                region.counts["mma_macs"] += math.prod(int(size or 1) for size in shape.groups())
            paths.add(kind, sources, results, kind in MEMORY, kind in _SHARED)
        region.chain = paths.longest()
        regions.append(region)
    return regions


def _split(text: str) -> list[tuple[int, list[tuple[str, str, str]]]]:
    """The depth of each region, with the kind, the name and the operands of its instructions."""
    bodies = split_bodies(text.partition(".section")[0], _LABEL, ";", _INSTRUCTION)
    parts = [(depth, [(m[1], m[2]) for line in lines if (m := _INSTRUCTION.match(line))]) for depth, lines in bodies]
    return [(depth, [(m.lastgroup or "", *p) for p in own if (m := _KINDS.match(" ".join(p)))]) for depth, own in parts]


def _width_of(name: str) -> int:
    """Bytes of a lane that an access moves."""
    bits, word, many = found.groups() if (found := _WIDTH.search(name)) else ("32", "", "")
    each = int(bits) // 8 if bits else {"byte": 1, "short": 2, "dword": 4}[word] * int(many or 1)
    return each * (2 if re.match(r"ds_[a-z]+_?2", name) else 1)


def _list_registers(operands: str) -> list[str]:
    names: list[str] = []
    for kind, one, first, last, special in _REGISTER.findall(operands):
        names += [special] if special else [f"{kind}{n}" for n in range(int(one or first), int(one or last) + 1)]
    return names
