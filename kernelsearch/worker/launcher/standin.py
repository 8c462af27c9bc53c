"""Lets a user's launcher run without a GPU: tensors say that they are on one, and the machine says it has one.

Three layers, all taken away again at the end of `standing_in`:
- a Triton driver that knows a target's facts, for files that ask the active driver at import;
- the `torch.cuda` functions that launchers ask (properties, streams, guards);
- a function mode in which every tensor is a CUDA tensor while its data is on the meta device or the CPU.

`poisoned_empty` is apart: it fills what `torch.empty*` gives with NaN or sentinels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from kernelsearch.kernel.targets import Target
from kernelsearch.verify.judge import poison_value

CUDA = torch.device("cuda", 0)


@contextmanager
def standing_in(target: Target, device: str = "meta") -> Iterator[None]:
    """Inside, code that wants a CUDA device of this target runs on device (`meta` or `cpu`).

    Put it around the import of a task file, around `Task.build` and around the launcher.
    """
    with ExitStack() as stack:
        stack.enter_context(_driver(target))
        stack.enter_context(_patched(torch.cuda, _cuda_functions(target)))
        stack.enter_context(_patched(torch, {"set_default_device": _nothing()}))
        if hasattr(torch, "accelerator"):
            stack.enter_context(_patched(torch.accelerator, _accelerator_functions()))
        stack.enter_context(StandinMode(device))
        yield


def install_driver(target: Target) -> None:
    """Makes the stub Triton driver the active one for the rest of this process."""
    stub = StubDriver(target)
    driver.set_active(stub)
    if hasattr(driver, "_default"):
        driver._default = stub


class StubDriver:
    """What launchers and tutorials ask of `triton.runtime.driver.active`, answered from a target's facts."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.utils = SimpleNamespace(get_device_properties=self._properties)

    def _properties(self, device: Any = 0) -> dict[str, int]:
        """In the units of Triton's own driver: bytes, kHz, bits."""
        t = self._target
        return {
            "max_shared_mem": t.shared_per_program,
            "max_num_regs": t.registers_per_sm,
            "multiprocessor_count": t.num_sms,
            "warpSize": 32,
            "sm_clock_rate": int(t.clock_ghz * 1e6),
            "mem_clock_rate": int(t.clock_ghz * 1e6),
            "mem_bus_width": int(t.bandwidth_gbps * 8 / (2 * t.clock_ghz)),  # so that their product is the bandwidth
        }

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._target.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: Any) -> None:
        """There is one."""

    def get_current_stream(self, device: Any = 0) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_active_torch_device(self) -> torch.device:
        return CUDA

    def get_device_properties(self, device: Any = 0) -> dict[str, int]:
        return self._properties(device)

    @staticmethod
    def is_active() -> bool:
        return True


@contextmanager
def _driver(target: Target) -> Iterator[None]:
    before = (driver._active, getattr(driver, "_default", None))
    install_driver(target)
    try:
        yield
    finally:
        driver._active, driver._default = before


@contextmanager
def _patched(owner: Any, replacements: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in replacements if hasattr(owner, name)}
    for name in before:
        setattr(owner, name, replacements[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def _ignore(*args: Any, **kwargs: Any) -> None:
    """Takes anything, does nothing."""


def _nothing() -> Callable[..., None]:
    """A new `_ignore`: torch's compiler, if something imports it meanwhile, wants all of torch.cuda to differ."""
    return lambda *args, **kwargs: None


class _Guard:
    """A device or stream guard that guards nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.idx = 0

    def __enter__(self) -> _Guard:
        return self

    def __exit__(self, *details: Any) -> None:
        """Nothing to undo."""


class _Stream(_Guard):
    """A CUDA stream or event on which nothing happens; elapsed times are zero."""

    device = CUDA
    cuda_stream = 0
    stream_id = 0
    device_index = 0

    record = wait = wait_event = wait_stream = synchronize = _ignore

    def record_event(self, event: Any = None) -> Any:
        return event or _Stream()

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0


def _cuda_functions(target: Target) -> dict[str, Any]:
    major, minor = divmod(target.capability, 10)
    properties = SimpleNamespace(
        name=f"NVIDIA {target.name.upper()}",
        major=major,
        minor=minor,
        multi_processor_count=target.num_sms,
        L2_cache_size=target.l2_bytes,
        warp_size=32,
        max_threads_per_multi_processor=target.warps_per_sm * 32,
        regs_per_multiprocessor=target.registers_per_sm,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=target.shared_per_program,
        shared_memory_per_multiprocessor=target.shared_per_sm,
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *a, **k: target.capability >= 80,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_name": lambda device=None: properties.name,
        "current_stream": lambda device=None: _Stream(),
        "default_stream": lambda device=None: _Stream(),
        "device": _Guard,
        "device_of": type("device_of", (_Guard,), {}),
        "stream": type("stream", (_Guard,), {}),
        "Stream": _Stream,
        "Event": type("Event", (_Stream,), {}),
        "set_device": _nothing(),
        "synchronize": _nothing(),
        "empty_cache": _nothing(),
        "init": _nothing(),
        "manual_seed": _nothing(),
        "manual_seed_all": _nothing(),
        "reset_peak_memory_stats": _nothing(),
    }


def _accelerator_functions() -> dict[str, Any]:
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "synchronize": _nothing(),
    }


class StandinMode(TorchFunctionMode):
    """Every tensor says that it is on cuda:0; every request for a CUDA device goes to the stand-in device."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _ANSWERS:
            return _ANSWERS[func]
        if func in _STAYS:
            return args[0]
        if func is torch.Tensor.cuda:
            return args[0].to(self.device)
        if func is torch.Tensor.to:
            args = tuple(self._place(a, strings=True) for a in args)
        else:
            args = tuple(self._place(a) for a in args)
        if "device" in kwargs:
            kwargs["device"] = self._place(kwargs["device"], strings=True)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*args, **kwargs)

    def _place(self, value: Any, strings: bool = False) -> Any:
        if isinstance(value, torch.device):
            return self.device if value.type == "cuda" else value
        if strings and isinstance(value, str) and value.partition(":")[0] == "cuda":
            return self.device
        if strings and type(value) is int:
            return self.device  # `.to(0)` and `device=0` mean the first GPU
        return value


_ANSWERS: dict[Any, Any] = {
    torch.Tensor.is_cuda.__get__: True,
    torch.Tensor.is_cpu.__get__: False,
    torch.Tensor.is_meta.__get__: False,
    torch.Tensor.device.__get__: CUDA,
    torch.Tensor.get_device: 0,
    torch.Tensor.is_pinned: False,
    torch.Tensor.record_stream: None,
}
_STAYS = frozenset({torch.Tensor.cpu, torch.Tensor.pin_memory})


# ---------------------------------------------------------------- poison


@contextmanager
def poisoned_empty(value: float | None = None) -> Iterator[set[int]]:
    """Inside, what `torch.empty`, `empty_like`, `new_empty` and `empty_strided` give holds `judge.poison_value(dtype)`.

    Or value, as memory may that was used before. `zeros`, `full` and the like are left alone. Booleans hold True: they
    have no value that is no answer. Gives the addresses of the storages that were filled.
    """
    poisoning = _Poisoning(value)
    with poisoning:
        yield poisoning.filled


def fill_with_poison(tensor: torch.Tensor) -> None:
    """Overwrites every element with `judge.poison_value(dtype)`."""
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        tensor.view(torch.uint8).fill_(0x7F)  # NaN in the 8-bit formats that Triton has
    else:
        tensor.fill_(poison_value(tensor.dtype))


_EMPTY = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)


class _Poisoning(TorchDispatchMode):
    def __init__(self, value: float | None) -> None:
        super().__init__()
        self.value, self.filled = value, set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.name().partition(".")[0] in _EMPTY and result.device.type != "meta":
            fill_with_poison(result) if self.value is None else result.fill_(self.value)
            self.filled.add(result.untyped_storage().data_ptr())
        return result
