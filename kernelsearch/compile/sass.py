"""Disassembles a cubin with the `nvdisasm` of Triton's wheel and counts its instructions for the hints.

This takes 0.6 to 1 s a cubin, more than most compiles: only `hints` does it. Triton is not imported.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

LIMIT_S = 30.0
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
_WIDTH = re.compile(r"\.(64|128|U8|S8|U16|S16)\b")
_BYTES = {"64": 8, "128": 16, "U8": 1, "S8": 1, "U16": 2, "S16": 2}
_KINDS = {
    "LDG": "global_loads",
    "LDGSTS": "async_copies",
    "STG": "global_stores",
    "LDL": "local_loads",
    "STL": "local_stores",
    "LDS": "shared_loads",
    "STS": "shared_stores",
    "LDSM": "shared_matrix_loads",
    "HMMA": "mma",
    "HGMMA": "wgmma",
    "IMMA": "mma",
    "QGMMA": "wgmma",
    "UTMALDG": "tma_loads",
    "MUFU": "special",
    "BAR": "barriers",
    "SHFL": "shuffles",
}


def find_disassembler() -> Path | None:
    """The wheel's nvdisasm, None where this Triton has none."""
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None:
        return None
    path = Path(triton.origin).parent / "backends/nvidia/bin/nvdisasm"
    return path if path.exists() else None


def count_cubin(cubin: bytes) -> dict[str, int]:
    """Instructions of a cubin by kind, `instructions` for all, `widest_load_bytes`; empty when it cannot be read."""
    tool = find_disassembler()
    if tool is None:
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            run = subprocess.run([str(tool), "-c", file.name], capture_output=True, text=True, timeout=LIMIT_S)
        except (OSError, subprocess.TimeoutExpired):
            return {}
    return count_listing(run.stdout) if run.returncode == 0 else {}


def count_listing(sass: str) -> dict[str, int]:
    """The counts of a disassembly without its padding (NOP, the closing branch)."""
    numbers: Counter[str] = Counter()
    widest = 0
    for instruction in _INSTRUCTION.findall(sass):
        name = instruction.partition(".")[0]
        if name == "NOP":
            continue
        numbers["instructions"] += 1
        if name in _KINDS:
            numbers[_KINDS[name]] += 1
        if name in ("LDG", "LDGSTS"):
            width = _WIDTH.search(instruction)
            widest = max(widest, _BYTES[width.group(1)] if width else 4)
    if widest:
        numbers["widest_load_bytes"] = widest
    return dict(numbers)
