"""Reads registers, stack and identity of a kernel from its cubin, without a GPU and without a disassembler.

A cubin is a little-endian ELF64 file. Its `.nv.info` sections hold attribute records (form, attribute,
size, then for sized values a symbol index and a number), among them the register count and the frame
size: the same records that `cuobjdump -res-usage` reports from; a test holds this reader against it.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

_EIATTR_FRAME_SIZE = 0x11
_EIATTR_MIN_STACK_SIZE = 0x12
_EIATTR_REGCOUNT = 0x2F
_FORMAT_SIZED_VALUE = 0x04


@dataclass(frozen=True)
class Resources:
    """Registers per thread, and bytes of local memory per thread (spills and indexed arrays)."""

    registers: int
    stack_bytes: int


def resources(cubin: bytes, kernel: str) -> Resources:
    """What one kernel of a single-kernel cubin uses. Raises ValueError when the cubin does not hold it."""
    sections = _sections(cubin)
    if f".text.{kernel}" not in sections:
        raise ValueError(f"no kernel {kernel!r} in this cubin")
    registers = stack = 0
    for name, (offset, size) in sections.items():
        if name.startswith(".nv.info"):
            for attribute, number in _attributes(cubin[offset : offset + size]):
                if attribute == _EIATTR_REGCOUNT:
                    registers = max(registers, number)
                elif attribute in (_EIATTR_FRAME_SIZE, _EIATTR_MIN_STACK_SIZE):
                    stack = max(stack, number)
    return Resources(registers, stack)


def identity(cubin: bytes, kernel: str) -> str:
    """A 16-hex-digit hash of the machine code: of all sections, the kernel's name and the tables of names left out.

    Equal identities are the same code under whatever name. The architecture is among the header's flags.
    """
    found = hashlib.sha256(cubin[0x30:0x34])
    for name, (offset, size) in _sections(cubin).items():
        if name not in (".shstrtab", ".strtab", ".symtab"):
            found.update(name.replace(kernel, "k").encode() + b"\0" + cubin[offset : offset + size])
    return found.hexdigest()[:16]


def _sections(cubin: bytes) -> dict[str, tuple[int, int]]:
    if cubin[:4] != b"\x7fELF":
        raise ValueError("not an ELF file")
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * entry_size) for i in range(count)]
    names_at = headers[names_index][4]
    found = {}
    for header in headers:
        start = names_at + header[0]
        name = cubin[start : cubin.index(b"\0", start)].decode()
        found[name] = (header[4], header[5])
    return found


def _attributes(info: bytes) -> list[tuple[int, int]]:
    """(attribute, number) of the records of one section that hold a symbol and a number."""
    found, at = [], 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _FORMAT_SIZED_VALUE:
            if size == 8:
                found.append((attribute, struct.unpack_from("<I", info, at + 4)[0]))
            at += size
    return found
