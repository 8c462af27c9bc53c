"""Recognises `while` loops that never end, such as the spin on a lock that another program holds.

Here programs run one after another, so what a loop waits for does not come while it runs. A program is deterministic:
if one turn of a loop leaves every name of its function and all memory as they were, so does every later turn.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from kernelsearch.evaluate.faults import EndlessLoop

TURNS = "_Turns"
"""The name under which rewritten kernels make the class below."""


class _Memory:
    """The number of changes that stores and atomics made to memory, counted while a loop watches them."""

    def __init__(self) -> None:
        self.watchers, self.changes = 0, 0

    def write(self, handle: Any, lanes: np.ndarray, width: int, operation: Callable[[], Any]) -> Any:
        """Does an operation that may write these lanes' elements of so many bytes; gives its result."""
        if not self.watchers:
            return operation()
        before = self._read(handle, lanes, width)
        result = operation()
        self.changes += not np.array_equal(before, self._read(handle, lanes, width))
        return result

    @staticmethod
    def _read(handle: Any, lanes: np.ndarray, width: int) -> np.ndarray:
        bits = np.dtype(f"u{width}")
        lanes = np.broadcast_to(lanes, handle.data.shape)
        return interpreter._interpreter.load(handle.data, lanes, np.zeros(handle.data.shape, bits), bits)


MEMORY = _Memory()


class Turns:
    """The turns of one `while` loop; `go_on` gives the truth of its test, or raises EndlessLoop.

    A state is kept after 1, 2, 4, ... turns and compared with the next one, so that long loops cost little more.
    """

    def __init__(self, text: str) -> None:
        self.text, self.number, self.kept = text, 0, None

    def go_on(self, test: Any) -> bool:
        before, self.kept = self.kept, None
        if before is not None:
            MEMORY.watchers -= 1
        if not test:
            return False
        self.number += 1
        names = sys._getframe(1).f_locals
        if before is not None and before == (MEMORY.changes, _freeze(dict(names))):
            program = tuple(interpreter.interpreter_builder.grid_idx)
            raise EndlessLoop(
                f"`while {self.text}` never ends in program {program}: a turn of it changes nothing; if it waits for "
                "another program, it cannot be judged without a GPU, because Triton's interpreter runs programs one "
                "after another"
            )
        if self.number & (self.number - 1) == 0:
            MEMORY.watchers += 1
            self.kept = MEMORY.changes, _freeze(dict(names))
        return True


def install() -> None:
    """Lets rewritten kernels of this process find the class; `logic` rewrites them."""
    setattr(interpreter, TURNS, Turns)


def count_turns(node: ast.While) -> list[ast.stmt]:
    """The loop with its turns counted, behind the statement that begins the count."""
    name = f"{TURNS}_{node.lineno}_{node.col_offset}"
    begin = ast.Call(ast.Name(TURNS, ast.Load()), [ast.Constant(ast.unparse(getattr(node, "plain", node.test)))], [])
    go_on = ast.Attribute(ast.Name(name, ast.Load()), "go_on", ast.Load())
    node.test = ast.Call(go_on, [node.test], [])
    return [ast.Assign([ast.Name(name, ast.Store())], begin), node]


def _freeze(value: Any) -> Any:
    """The value as something that equals another only if no operation could tell them apart."""
    if isinstance(value, dict):
        return {name: _freeze(v) for name, v in value.items() if not isinstance(v, Turns)}
    if isinstance(value, (tuple, list)):
        return type(value), [_freeze(v) for v in value]
    if isinstance(value, tl.tensor):
        handle = value.handle
        return str(value.type), _freeze(handle if isinstance(handle, TensorHandle) else vars(handle))  # a block pointer
    if isinstance(value, TensorHandle):
        data = np.asarray(value.data)
        return data.shape, data.tobytes()
    if isinstance(value, (bool, int, float, str)):
        return type(value), repr(value)
    return _Same(value)


class _Same:
    """An object that equals itself only; while it is kept, no other one gets its id."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value
