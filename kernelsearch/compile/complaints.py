"""Catches what the compiler and ptxas print, and finds the sentences that say what is wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

MAX_BYTES = 4 << 20
"""A failed pass prints the whole kernel; its own sentence stands before that, or at the end."""

_SENTENCES = (
    re.compile(r"\berror: (?!Failures have been detected)(.+)"),
    re.compile(r"LLVM ERROR: (.+)"),
    re.compile(r"Assertion `.*?\"(.+)\"' failed"),
    re.compile(r"Assertion `(.+)' failed"),
)
_SERIALISED = re.compile(r"\((C\d+)\).*wgmma\.mma_async instructions are serialized due to (.+?) in the function")
_PASS = re.compile(r"Pipeline failed while executing \[`(\w+)`")


@contextmanager
def catch_stderr() -> Iterator[bytearray]:
    """Yields a buffer that holds, after the block, what this process wrote to descriptor 2 during it.

    The descriptor belongs to the whole process, so only one thread may compile, as in a compile worker.
    """
    caught = bytearray()
    before, memory = os.dup(2), os.memfd_create("stderr")
    try:
        os.dup2(memory, 2)
        yield caught
    finally:
        os.dup2(before, 2)
        size = os.fstat(memory).st_size
        caught += os.pread(memory, MAX_BYTES, 0)
        if size > MAX_BYTES:
            caught += os.pread(memory, MAX_BYTES, max(MAX_BYTES, size - MAX_BYTES))
        os.close(memory)
        os.close(before)


def read_complaint(text: str) -> str:
    """The first sentence of what the compiler printed, with the pass that failed; empty where none is found."""
    sentence = next((found.group(1).strip() for p in _SENTENCES if (found := p.search(text))), "")
    where = _PASS.search(text)
    return f"{sentence} (in {where.group(1)})" if sentence and where else sentence


def read_serialised(log: str) -> tuple[str, ...]:
    """Why ptxas lets matrix products wait for each other, each as its code and its words: `C7514 non wgmma ...`."""
    found = (f"{code} {' '.join(why.split())}" for code, why in _SERIALISED.findall(log))
    return tuple(dict.fromkeys(found))
