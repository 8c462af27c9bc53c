"""Clocks, temperature, power and throttle reasons of the GPU in use, read through NVIDIA's management library.

Nothing is set. The library comes with the driver (`libnvidia-ml.so.1`); where it is missing or refuses, readings are
None and `Monitor.reason` says why. Names and numbers are those of NVML's header `nvml.h`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

from kernelsearch.measure.timing.device import open_first_device

_GRAPHICS_CLOCK, _MEMORY_CLOCK = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM
_TEMPERATURE_GPU = 0

REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""`nvmlClocksThrottleReason*` of a GPU that is slowed down; idle (1) and application clocks (2) are not among them."""

SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""Reasons that spoil a block by themselves. The power cap does not: it is steady under heavy load, and where it moves
the clock, the clock shows it."""


@dataclass(frozen=True)
class Reading:
    """One reading: SM and memory clock in MHz, temperature in °C, power in W, throttle reasons as NVML's bits."""

    sm_mhz: int
    memory_mhz: int
    temperature: int
    power_w: float
    reasons: int

    def format_reasons(self) -> list[str]:
        """The throttle reasons in words."""
        return [word for bit, word in REASONS.items() if self.reasons & bit]


BUSY_PERCENT = 10
IN_TURNS = (
    "contestants are timed in turns, so that ratios hold, and blocks at other clocks are dropped, "
    "but times may be too long"
)
ALONE = "a kernel is timed alone, so that hints may blame it for the effects of the other"
"""The consequences of a busy GPU, by the way that a command times."""


def format_busy_note(percent: int | None, follows: str = IN_TURNS) -> str:
    """The warning about a GPU that others use, before we run anything there; empty when nobody does."""
    if percent is None or percent <= BUSY_PERCENT:
        return ""
    return (
        f"something else uses this GPU ({percent} % of the time): {follows}; stop it, or choose another GPU with "
        "CUDA_VISIBLE_DEVICES"
    )


def check_busy(follows: str = IN_TURNS) -> str:
    """`busy_note` of the GPU that CUDA would use; empty without one. Call it before running anything there."""
    return format_busy_note(Monitor.open(find_bus_id()).busy_percent(), follows)


class Monitor:
    """Readings of one GPU. Make it with `open`; `reason` says why readings are None, empty when they are not."""

    def __init__(self, library: ctypes.CDLL | None, device: ctypes.c_void_p, reason: str) -> None:
        self._library, self._device, self.reason = library, device, reason

    @classmethod
    def open(cls, bus_id: str) -> Monitor:
        """The GPU with this PCI bus id (`0000:18:00.0`), as the CUDA driver names it."""
        nothing = ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return cls(None, nothing, "NVML (libnvidia-ml.so.1) is not there: clocks are not known")
        device = ctypes.c_void_p()
        code = library.nvmlInit_v2()
        if code == 0:
            code = library.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), ctypes.byref(device))
        if code != 0:
            return cls(None, nothing, f"NVML refuses (error {code}): clocks are not known")
        return cls(library, device, "")

    def read(self, before: Reading | None = None) -> Reading | None:
        """A reading of the GPU, -1 for unknown numbers; None when NVML is missing.

        With an earlier reading only the SM clock and the throttle reasons are read again: each query costs some tenths
        of a millisecond or more, in which the GPU idles.
        """
        if self._library is None:
            return None
        clock = self._query("nvmlDeviceGetClockInfo", _GRAPHICS_CLOCK)
        reasons = max(0, self._query("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong))
        if before is not None:
            return replace(before, sm_mhz=clock, reasons=reasons)
        power = self._query("nvmlDeviceGetPowerUsage")
        return Reading(
            clock,
            self._query("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
            self._query("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
            power / 1000.0 if power >= 0 else -1.0,
            reasons,
        )

    def busy_percent(self) -> int | None:
        """The percentage of the last second or less in which any kernel ran on this GPU; None if unknown."""
        if self._library is None:
            return None
        rates = (ctypes.c_uint * 2)()
        code = self._library.nvmlDeviceGetUtilizationRates(self._device, ctypes.byref(rates))
        return int(rates[0]) if code == 0 else None

    def _query(self, function: str, *which: int, kind: type = ctypes.c_uint) -> int:
        value = kind()
        code = getattr(self._library, function)(self._device, *which, ctypes.byref(value))
        return int(value.value) if code == 0 else -1


def find_bus_id() -> str:
    """The PCI bus id of the first visible GPU; empty when there is none."""
    first = open_first_device()
    if first is None:
        return ""
    cuda, device = first
    name = ctypes.create_string_buffer(32)
    return "" if cuda.cuDeviceGetPCIBusId(name, 32, device) else name.value.decode()
