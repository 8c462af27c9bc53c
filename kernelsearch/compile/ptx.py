"""Counts the instructions of a kernel's PTX: loads and stores by width, matrix and special instructions.

The counts are static: an instruction in a loop counts once. The widths show if memory traffic is vectorised
(`ld.global.v4.b32` moves 16 bytes a thread).
"""

from __future__ import annotations

import re
from collections import Counter

from kernelsearch.compile.code import InstructionCounts

_ACCESS = re.compile(r"\b(ld|st)\.(global|shared)[\w.:]*?(?:\.(v[248]))?\.[bfsu](8|16|32|64|128)\b")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global[\w.:]*\s+\[[^\]]*\],\s*\[[^\]]*\],\s*(?:0x)?([0-9a-f]+)")
_KINDS = {
    "wgmma": re.compile(r"\bwgmma\.mma_async\b"),
    "mma": re.compile(r"\bmma\.sync\b"),
    "cp_async": re.compile(r"\bcp\.async\.c[ag]\b"),
    "tma": re.compile(r"\bcp\.async\.bulk\b"),
    "barrier": re.compile(r"\bbar(?:rier)?\.(?:sync|cta)"),
    "shuffle": re.compile(r"\bshfl\.sync\b"),
    "atomic": re.compile(r"\b(?:atom|red)\.(?:global|shared)"),
    "special": re.compile(r"\b(?:ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh)\.approx"),
    "divide": re.compile(r"\bdiv\.(?:full|rn|approx)"),
    "fma": re.compile(r"\bfma\.rn"),
    "convert": re.compile(r"\bcvt\."),
    "branch": re.compile(r"\bbra\b"),
}
_ENTRY = re.compile(r"\.entry\s+\w+\s*\(([^)]*)\)")


def count_instructions(ptx: str) -> InstructionCounts:
    """The mix of a PTX text that holds one entry."""
    entry = _ENTRY.search(ptx)
    body = ptx[entry.end() :] if entry else ptx
    tables: dict[str, Counter[int]] = {"ld": Counter(), "st": Counter(), "shared": Counter()}
    for kind, space, vector, bits in _ACCESS.findall(body):
        width = int(bits) // 8 * int(vector[1:] if vector else 1)
        tables["shared" if space == "shared" else kind][width] += 1
    for size in _COPY.findall(body):
        tables["ld"][int(size, 16)] += 1
    counts = {name: len(pattern.findall(body)) for name, pattern in _KINDS.items()}
    total = sum(1 for line in body.splitlines() if line.rstrip().endswith(";") and not line.lstrip().startswith("."))
    parameters = entry.group(1).count(".param") if entry else 0
    loads, stores, shared = map(dict, tables.values())
    return InstructionCounts(loads, stores, shared, {k: n for k, n in counts.items() if n}, total, parameters)
