"""Reads a kernel's AMD assembly: its resources, its instructions by kind, its loops with their longest chains.

LLVM writes the metadata of the code object, and the loop of each basic block, into the text that Triton assembles
("User Guide for AMDGPU Backend", code object V5 metadata). Registers are vector registers of a lane, accumulators
included, of which a lane has 512; scalar instructions run beside vector ones and are not counted, nor is a wait for
memory, because what was loaded counts as ready when its load is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from kernelsearch.compile.blocks import MEMORY, Paths, Region, split_bodies
from kernelsearch.compile.code import InstructionCounts
from kernelsearch.compile.elf import Resources

_NUMBER = r"^\s+(?:- )?\.{}:\s+(\d+)"
_LABEL = re.compile(r"^(?:\.L(BB\d+_\d+):|; %bb\.)")
_INSTRUCTION = re.compile(r"^\s+([a-z]+_\w+)\s*(.*)$")
_REGISTER = re.compile(r"\b([vsa])(?:(\d+)|\[(\d+):(\d+)\])|\b(vcc|exec|scc)\b")
_ACCESS = re.compile(r"^(global|buffer|flat|ds)_(load|store|read|write|atomic)_?(.*)$")
_MATRIX = re.compile(r"^v_s?mfma\w*?_(\d+)x(\d+)x(\d+)(?:_?(\d+)b_)?")
_SPECIAL = re.compile(r"^v_(?:exp|log|rcp|rsq|sqrt|sin|cos)_")
_WORDS = {"byte": 1, "ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2, "dword": 4}


def read_resources(text: str) -> Resources:
    """Vector registers, and bytes of scratch memory, of a lane. Raises ValueError for a text without metadata."""
    found = [re.search(_NUMBER.format(n), text, re.MULTILINE) for n in ("vgpr_count", "private_segment_fixed_size")]
    if None in found:
        raise ValueError("this assembly has no metadata of a kernel")
    registers, stack = (int(match.group(1)) for match in found)
    return Resources(registers, stack)


def count_instructions(text: str) -> InstructionCounts:
    """The mix of the text's instructions; one in a loop counts once."""
    tables: dict[str, Counter[int]] = {"load": Counter(), "store": Counter(), "shared": Counter()}
    counts: Counter[str] = Counter()
    for _, body in _split(text):
        for name, operands in body:
            kind = _kind_of(name, operands)
            counts[{"copy": "cp_async"}.get(kind, kind)] += 1
            if width := _width_of(name):
                tables["shared" if kind.startswith("shared") else "load" if kind == "copy" else kind][width] += 1
    total = sum(n for kind, n in counts.items() if kind != "scalar")
    named = {k: counts[k] for k in ("mma", "cp_async", "barrier", "shuffle", "atomic", "special") if counts[k]}
    return InstructionCounts(dict(tables["load"]), dict(tables["store"]), dict(tables["shared"]), named, total)


def split_regions(text: str) -> list[Region]:
    """The code outside all loops, then each loop in the order of the text."""
    return [_read_region(depth, body) for depth, body in _split(text)]


def _split(text: str) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    code = text.partition(".section")[0]
    for depth, lines in split_bodies(code, _LABEL, ";", lambda line: bool(_INSTRUCTION.match(line))):
        yield depth, [m.groups() for m in map(_INSTRUCTION.match, lines) if m]


def _read_region(depth: int, body: list[tuple[str, str]]) -> Region:
    region, paths = Region(depth), Paths()
    for name, operands in body:
        kind = _kind_of(name, operands)
        first, _, rest = operands.partition(",")
        writes = kind not in ("store", "shared_store", "barrier", "copy")
        results, sources = (
            (_list_registers(first), _list_registers(rest)) if writes else ([], _list_registers(operands))
        )
        if kind == "scalar":
            paths.ready |= dict.fromkeys(results, paths.ready_time(sources))
            continue
        region.counts["instructions"] += 1
        region.counts[kind] += 1
        if width := _width_of(name):
            region.counts[
                {"store": "store_bytes", "load": "load_bytes", "copy": "load_bytes"}.get(kind, "shared_bytes")
            ] += width
        if shape := _MATRIX.match(name):
            m, n, k, blocks = (int(size or 1) for size in shape.groups())
            region.counts["mma_macs"] += m * n * k * blocks
        paths.add(kind, sources, results, kind in MEMORY, kind.startswith("shared"))
    region.chain = paths.longest()
    return region


def _kind_of(name: str, operands: str) -> str:
    access = _ACCESS.match(name)
    if name == "s_barrier":
        return "barrier"
    if name.startswith("s_"):
        return "scalar"
    if access and access[2] == "atomic":
        return "atomic"
    if access:
        kind = "load" if access[2] in ("load", "read") else "store"
        copies = kind == "load" and ("lds" in name or operands.endswith(" lds"))
        return f"shared_{kind}" if access[1] == "ds" else "copy" if copies else kind
    if name.startswith("ds_"):
        return "atomic" if "_add" in name or "cmpst" in name else "shuffle"
    if _MATRIX.match(name):
        return "mma"
    if _SPECIAL.match(name):
        return "special"
    return "wide" if re.search(r"_[fiub]64\b|_[fiub]64_", name) else "arith"


def _width_of(name: str) -> int:
    """Bytes of a lane that an access moves, 0 for other instructions."""
    access = _ACCESS.match(name)
    if not access or access[2] == "atomic":
        return 0
    twice = 2 if re.match(r"2(st64)?_", access[3]) or access[2].endswith("2") else 1
    if bits := re.search(r"[bui](8|16|32|64|96|128)(?=_|$)", access[3]):
        return int(bits.group(1)) // 8 * twice
    word = re.search(r"(dword|u?byte|sbyte|[us]?short)(?:x(\d))?", access[3])
    return _WORDS[word.group(1)] * int(word.group(2) or 1) if word else 4


def _list_registers(operands: str) -> list[str]:
    names: list[str] = []
    for kind, one, first, last, special in _REGISTER.findall(operands):
        ends = (int(one), int(one)) if one else (int(first), int(last)) if first else None
        names += [f"{kind}{n}" for n in range(ends[0], ends[1] + 1)] if ends else [special]
    return names
