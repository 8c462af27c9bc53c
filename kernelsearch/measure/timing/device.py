"""Which GPU is there: asked of the CUDA driver directly, so that a process need not import torch to know."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_MULTIPROCESSOR_COUNT = 16
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76


@dataclass(frozen=True)
class LiveDevice:
    """A visible GPU: its name, compute capability as 10 × major + minor, and its number of SMs."""

    name: str
    capability: int
    num_sms: int


def live_device() -> LiveDevice | None:
    """The first visible GPU, None when there is no driver or no device. Makes no context."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return None
    device = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None
    name = ctypes.create_string_buffer(128)
    cuda.cuDeviceGetName(name, 128, device)

    def attribute(which: int) -> int:
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), which, device)
        return value.value

    capability = 10 * attribute(_CAPABILITY_MAJOR) + attribute(_CAPABILITY_MINOR)
    return LiveDevice(name.value.decode(), capability, attribute(_MULTIPROCESSOR_COUNT))
