"""Computes things in forked processes, side by side: for a process without threads, whose results others wait for.

A process that has used a GPU may fork too: what it forks must not touch the GPU.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from kernelsearch.worker.isolation.sandbox import end_with_parent


def compute_forked(function: Callable[[Any], Any], items: Sequence[Any]) -> dict[Any, Any]:
    """The function's value of each item, without those for which it raised: who needs one computes it again.

    Each core has a share. Values travel as torch saves them: plain pickle cannot read tensors of uint32. Nothing for
    fewer items than two, or on one core.
    """
    count = min(len(items), len(os.sched_getaffinity(0)))
    if count < 2:
        return {}
    pipes = [_fork(function, items[number::count]) for number in range(count)]
    values: dict[Any, Any] = {}
    for child, pipe in pipes:
        with os.fdopen(pipe, "rb") as file, suppress(EOFError, RuntimeError, pickle.UnpicklingError):
            values |= torch.load(io.BytesIO(file.read()), weights_only=False)
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
        torch.set_num_threads(1)  # the other threads of the parent are not here
        values = {}
        for item in items:
            with suppress(Exception):
                values[item] = function(item)
        with os.fdopen(into, "wb") as file:
            torch.save(values, file)
    finally:
        os._exit(0)
