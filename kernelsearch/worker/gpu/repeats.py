"""Many runs of one kernel on the same inputs with other work beside it: a race between its own warps shows only so.

What loads, multiplies or hands over asynchronously (the copy engine, wgmma, specialised warps) can be right ninety
times and wrong once. So such a kernel runs `COUNT` times, after random delays and beside copies and products on a
second stream, on poisoned memory, and every bit must be that of the first run. Another process computes meanwhile: the
driver then gives each a slice of time and stops kernels at any instruction, which no stream does. An attention kernel
whose warps Triton 3.6 specialises was equal in 100 runs alone, and NaN where nine processes shared the GPU.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import torch

from kernelsearch.verify.bits import same_bits
from kernelsearch.worker.messages.jobs import REPEATS_S

COUNT = 100
DELAY_CYCLES = 100_000
"""The longest delay, about 50 microseconds."""
NOISE_BYTES = 64 << 20
NOISE_ROWS = 2048
PRODUCTS = 200
"""Products that are queued at once: 5 ms of an H200, more than a slice of time."""

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
    deadline = time.monotonic() + REPEATS_S
    for number in range(1, count + 1):
        disturb()
        outputs = run()
        if len(outputs) != len(first) or not all(map(_same_nan if atomics else same_bits, first, outputs)):
            return number, outputs
        if time.monotonic() > deadline:
            return number, None
    return count, None


def keep_busy(seconds: float) -> None:
    """Computes on this process's GPU without a pause for so long."""
    square = torch.zeros(NOISE_ROWS, NOISE_ROWS, dtype=torch.float16, device="cuda")
    product, deadline = torch.empty_like(square), time.monotonic() + seconds
    while time.monotonic() < deadline:
        for _ in range(PRODUCTS):
            torch.mm(square, square, out=product)
        torch.cuda.synchronize()


def _same_nan(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(torch.isnan(one), torch.isnan(other))


class Disturbance:
    """Work of random size on a second stream of the GPU, and a random delay on the kernel's own."""

    def __init__(self, seed: int) -> None:
        self.random, self.stream = random.Random(seed), torch.cuda.Stream()
        self.buffer = torch.zeros(NOISE_BYTES, dtype=torch.uint8, device="cuda")
        self.square = torch.zeros(NOISE_ROWS, NOISE_ROWS, dtype=torch.float16, device="cuda")
        self.product = torch.empty_like(self.square)
        # their memory may be that of tensors which this stream frees and has yet to read
        self.stream.wait_stream(torch.cuda.current_stream())

    def __call__(self) -> None:
        with torch.cuda.stream(self.stream):
            for _ in range(self.random.randrange(4)):
                torch.cuda._sleep(self.random.randrange(DELAY_CYCLES))
                if self.random.random() < 0.5:
                    self.buffer.add_(1)
                else:
                    torch.mm(self.square, self.square, out=self.product)
        torch.cuda._sleep(self.random.randrange(DELAY_CYCLES))
