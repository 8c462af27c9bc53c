"""Measured ceilings of this GPU: copy bandwidth, matmul rate per dtype, the cost of a launch.

They are yardsticks for "percent of roofline", not limits: a kernel that only reads can be faster than a copy.
"""

from __future__ import annotations

import ctypes
import itertools
import statistics
import time
from collections.abc import Callable

import torch

COPY_BYTES = 1 << 30
"""Large enough that no L2 cache matters: read once, written once."""
REPEATS = 15
LAUNCHES = 200

_EMPTY = b""".version 7.0
.target sm_52
.address_size 64
.visible .entry empty() { ret; }
\0"""


def measure_ceilings() -> dict[str, float]:
    """All ceilings of the current device, by name with their unit at the end. Takes about a second."""
    size = min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 4)
    rates = {"copy_gbps": 2 * size / (_time_copy(size) * 1e3)}
    for name, dtype, side, precision in (
        ("bf16", torch.bfloat16, 8192, "highest"),
        ("fp16", torch.float16, 8192, "highest"),
        ("tf32", torch.float32, 8192, "high"),
        ("fp32", torch.float32, 4096, "highest"),
    ):
        rates[f"matmul_{name}_tflops"] = 2 * side**3 / (_time_matmul(side, dtype, precision) * 1e6)
    rates["launch_us"], rates["empty_kernel_us"] = _time_launch()
    return {name: round(value, 3) for name, value in rates.items()}


def _time_copy(size: int) -> float:
    source = torch.empty(size // 4, dtype=torch.int32, device="cuda").fill_(1)
    target = torch.empty_like(source)
    return _time_best(lambda: target.copy_(source))


def _time_matmul(side: int, dtype: torch.dtype, precision: str) -> float:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        a, b = (torch.randn(side, side, dtype=dtype, device="cuda") for _ in range(2))
        out = torch.empty_like(a)
        return _time_best(lambda: torch.matmul(a, b, out=out))
    finally:
        torch.set_float32_matmul_precision(before)


def _time_best(call: Callable[[], object]) -> float:
    """The event time of one call in an uninterrupted series of calls: the median of the best third.

    The ceilings are stored, and another process that had the GPU for a moment must not spoil them.
    """
    for _ in range(3):
        call()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    spans = [a.elapsed_time(b) * 1e3 for a, b in itertools.pairwise(events)]
    third = REPEATS // 3
    return min(statistics.median(spans[at : at + third]) for at in range(0, REPEATS, third))


def _time_launch() -> tuple[float, float]:
    """(Host time of one launch, event time around one launch) of an empty kernel, in microseconds."""
    launch = load_empty_kernel()
    for _ in range(10):
        launch()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(LAUNCHES):
        launch()
    host_us = (time.perf_counter() - begun) / LAUNCHES * 1e6
    torch.cuda.synchronize()
    spans = []
    for _ in range(REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(100_000)
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        spans.append(start.elapsed_time(end) * 1e3)
    return host_us, statistics.median(spans)


def load_empty_kernel() -> Callable[[], None]:
    """A function that launches a kernel which does nothing, through the driver API. Raises RuntimeError."""
    torch.zeros(1, device="cuda")  # makes the context current
    cuda = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    if cuda.cuModuleLoadData(ctypes.byref(module), _EMPTY):
        raise RuntimeError("the driver does not load an empty kernel")
    if cuda.cuModuleGetFunction(ctypes.byref(function), module, b"empty"):
        raise RuntimeError("the driver does not find the empty kernel")

    def launch() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, None, None):
            raise RuntimeError("the driver does not launch the empty kernel")

    return launch
