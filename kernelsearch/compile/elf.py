"""Reads registers, stack and identity of a kernel from its cubin, without a GPU and without a disassembler.

A cubin is a little-endian ELF64 file. Its `.nv.info` sections have attribute records (form, attribute, size, then for
sized values a symbol index and a number), among them the register count and the frame size. `cuobjdump -res-usage`
reports from the same records; a test compares this reader with it.
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


def read_resources(cubin: bytes, kernel: str) -> Resources:
    """The registers and stack of the kernel of a cubin. Raises ValueError when the cubin lacks this kernel."""
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


def compute_identity(cubin: bytes, kernel: str) -> str:
    """A 16-hex-digit hash of the machine code: of all sections but the tables of names, without the kernel's name.

    Equal identities are the same code under any name. The architecture is among the header's flags.
    """
    digest, sections = hashlib.sha256(cubin[0x30:0x34]), _sections(cubin)
    if cubin[0x12] == 224:  # AMD's machine; bytes 16 to 24 of its kernel descriptor say how far the code is
        text, descriptor = (cubin[at : at + size] for at, size in (sections[".text"], sections[".rodata"]))
        return hashlib.sha256(digest.digest() + text + descriptor[:16] + descriptor[24:]).hexdigest()[:16]
    for name, (offset, size) in sections.items():
        if name not in (".shstrtab", ".strtab", ".symtab"):
            digest.update(name.replace(kernel, "k").encode() + b"\0" + cubin[offset : offset + size])
    return digest.hexdigest()[:16]


def _sections(cubin: bytes) -> dict[str, tuple[int, int]]:
    if cubin[:4] != b"\x7fELF":
        raise ValueError("not an ELF file")
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * entry_size) for i in range(count)]
    names_at = headers[names_index][4]
    sections = {}
    for header in headers:
        start = names_at + header[0]
        name = cubin[start : cubin.index(b"\0", start)].decode()
        sections[name] = (header[4], header[5])
    return sections


def _attributes(info: bytes) -> list[tuple[int, int]]:
    """(attribute, number) of the records of one section that have a symbol and a number."""
    pairs, at = [], 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _FORMAT_SIZED_VALUE:
            if size == 8:
                pairs.append((attribute, struct.unpack_from("<I", info, at + 4)[0]))
            at += size
    return pairs
