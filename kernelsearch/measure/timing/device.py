"""The first visible GPU by the CUDA driver: no torch is needed, and no context is made."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

AMD_CARD = "an AMD card is here ({gfx}), on which we never tried to run anything"
_MULTIPROCESSOR_COUNT = 16
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76


@dataclass(frozen=True)
class LiveDevice:
    """A visible GPU: its name, compute capability as 10 × major + minor, and its number of SMs."""

    name: str
    capability: int
    num_sms: int


def open_first_device() -> tuple[ctypes.CDLL, ctypes.c_int] | None:
    """The CUDA driver and its handle of the first visible GPU; None without a driver or a device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device = ctypes.c_int()
    return None if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) else (cuda, device)


def list_gpus() -> list[str]:
    """The visible GPUs by what CUDA_VISIBLE_DEVICES calls them, for processes that get one each."""
    first, count = open_first_device(), ctypes.c_int()
    if first is None or first[0].cuDeviceGetCount(ctypes.byref(count)):
        return []
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named or list(map(str, range(count.value)))


def find_live_device() -> LiveDevice | None:
    """The first visible GPU; None without a driver or a device."""
    first = open_first_device()
    if first is None:
        return None
    cuda, device = first
    name = ctypes.create_string_buffer(128)
    cuda.cuDeviceGetName(name, 128, device)

    def attribute(which: int) -> int:
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), which, device)
        return value.value

    capability = 10 * attribute(_CAPABILITY_MAJOR) + attribute(_CAPABILITY_MINOR)
    return LiveDevice(name.value.decode(), capability, attribute(_MULTIPROCESSOR_COUNT))


def find_amd_card(nodes: Path = Path("/sys/class/kfd/kfd/topology/nodes")) -> str:
    """The architecture (`gfx942`) of the first AMD card that the system knows of, empty without one."""
    texts = []
    for file in sorted(nodes.glob("*/properties")):
        with suppress(OSError):  # a container may not read it
            texts.append(file.read_text(errors="replace"))
    found = (re.search(r"^gfx_target_version ([1-9]\d*)(\d\d)(\d\d)$", text, re.MULTILINE) for text in texts)
    numbers = next((match.groups() for match in found if match), None)
    return f"gfx{numbers[0]}{int(numbers[1]):x}{int(numbers[2]):x}" if numbers else ""
