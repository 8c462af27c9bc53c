"""A task without a kernel as plain data, which the process that loaded it sends to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelsearch.core.types import TensorFact

Argument = TensorFact | float | int | bool | str | None


@dataclass(frozen=True)
class Outline:
    """The facts about a task without a kernel.

    inputs are by shape key, then by the reference's parameter in their order; a value that is no tensor and no number
    is its type's name. outputs are by shape key. source is the reference's text; constants are the numbers in it and in
    the globals that it reads; stateful says that it has weights of its own (a KernelBench Model with parameters).
    """

    name: str
    form: str
    inputs: Mapping[str, Mapping[str, Argument]]
    outputs: Mapping[str, tuple[TensorFact, ...]]
    source: str
    constants: tuple[float, ...] = ()
    stateful: bool = False
    precision: str = "ieee"
