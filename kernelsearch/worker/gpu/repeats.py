"""Many runs of one kernel on the same inputs with other work beside it: a race between its own warps shows only so.

What loads, multiplies or hands over asynchronously (the copy engine, wgmma, specialised warps) can be right ninety
times and wrong once. So such a kernel runs `COUNT` times, after random delays and beside copies and products on a
second stream, on poisoned memory, and every bit must be that of the first run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import torch

from kernelsearch.verify.judge import same_bits

COUNT = 100
LIMIT_S = 15.0
"""Seconds after which a slow kernel is not run again."""
DELAY_CYCLES = 100_000
"""The longest delay, about 50 microseconds."""
NOISE_BYTES = 64 << 20
NOISE_ROWS = 2048

Outputs = Sequence[torch.Tensor]


def find_unequal_run(
    run: Callable[[], Outputs],
    first: Outputs,
    count: int = COUNT,
    disturb: Callable[[], object] = lambda: None,
    atomics: bool = False,
) -> tuple[int, Outputs | None]:
    """(How many runs were made, the outputs of the last one if they are not the first's, else None).

    With atomics, additions come in any order, and only where values are NaN must be equal.
    """
    deadline = time.monotonic() + LIMIT_S
    for number in range(1, count + 1):
        disturb()
        outputs = run()
        if len(outputs) != len(first) or not all(map(_same_nan if atomics else same_bits, first, outputs)):
            return number, outputs
        if time.monotonic() > deadline:
            return number, None
    return count, None


def _same_nan(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(torch.isnan(one), torch.isnan(other))


class Disturbance:
    """Work of random size on a second stream of the GPU, and a random delay on the kernel's own."""

    def __init__(self, seed: int) -> None:
        self.random, self.stream = random.Random(seed), torch.cuda.Stream()
        self.buffer = torch.zeros(NOISE_BYTES, dtype=torch.uint8, device="cuda")
        self.square = torch.zeros(NOISE_ROWS, NOISE_ROWS, dtype=torch.float16, device="cuda")
        self.product = torch.empty_like(self.square)

    def __call__(self) -> None:
        with torch.cuda.stream(self.stream):
            for _ in range(self.random.randrange(4)):
                torch.cuda._sleep(self.random.randrange(DELAY_CYCLES))
                if self.random.random() < 0.5:
                    self.buffer.add_(1)
                else:
                    torch.mm(self.square, self.square, out=self.product)
        torch.cuda._sleep(self.random.randrange(DELAY_CYCLES))
