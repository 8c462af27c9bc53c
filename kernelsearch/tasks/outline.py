"""What is known of a task without a kernel: plain data, so that the process that loaded it can say it to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelsearch.core.types import TensorFact

Argument = TensorFact | float | int | bool | str | None


@dataclass(frozen=True)
class Outline:
    """What is known of a task without a kernel.

    inputs and outputs are by shape key, inputs by the reference's parameter in their order; what is no tensor and no
    number is its type's name. source is the reference's text, constants are the numbers in it and in the globals that
    it reads; stateful says that it has weights of its own (a KernelBench Model with parameters).
    """

    name: str
    form: str
    inputs: Mapping[str, Mapping[str, Argument]]
    outputs: Mapping[str, tuple[TensorFact, ...]]
    source: str
    constants: tuple[float, ...] = ()
    stateful: bool = False
    precision: str = "ieee"
