"""Computes things in forked processes, side by side: for a process without threads, whose results others wait for."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kernelsearch.worker.isolation.sandbox import end_with_parent


def compute_forked(function: Callable[[Any], Any], items: Sequence[Any]) -> dict[Any, Any]:
    """The function's value of each item, without those for which it raised: who needs one computes it again.

    Each core has a share. Values travel by pickle. Nothing for fewer items than two, or on one core.
    """
    count = min(len(items), len(os.sched_getaffinity(0)))
    if count < 2:
        return {}
    pipes = [_fork(function, items[number::count]) for number in range(count)]
    values: dict[Any, Any] = {}
    for child, pipe in pipes:
        with os.fdopen(pipe, "rb") as file, suppress(EOFError, pickle.UnpicklingError):
            values |= pickle.load(file)
        os.waitpid(child, 0)
    return values


def _fork(function: Callable[[Any], Any], items: Sequence[Any]) -> tuple[int, int]:
    """(The child's number, the end of a pipe that its values come out of)."""
    out, into = os.pipe()
    child = os.fork()
    if child:
        os.close(into)
        return child, out
    try:
        end_with_parent()
        values = {}
        for item in items:
            with suppress(Exception):
                values[item] = function(item)
        with os.fdopen(into, "wb") as file:
            pickle.dump(values, file, protocol=5)
    finally:
        os._exit(0)
