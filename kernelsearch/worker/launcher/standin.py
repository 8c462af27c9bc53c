"""Lets a user's launcher run without a GPU: it looks as if the machine had one, with all tensors on it.

`pretend_gpu` adds three layers and removes them at its end:
- a Triton driver that knows a target's facts, for files that ask the active driver at import;
- the `torch.cuda` functions that launchers call (properties, streams, guards);
- a function mode in which every tensor is a CUDA tensor while its data is on the meta device or the CPU.

`poison_empty` is separate: it fills the results of `torch.empty*` with NaN or sentinels.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from triton.runtime import driver

from kernelsearch.compile.build import make_gpu_target
from kernelsearch.kernel.targets import Target
from kernelsearch.verify.dispatch import DispatchMode
from kernelsearch.verify.judge import poison_value

CUDA = torch.device("cuda", 0)
ON_META = torch.device("cuda", 0)
"""What a tensor on meta gives as its device: equal to CUDA, but what is made there is on meta too."""


@contextmanager
def pretend_gpu(target: Target, device: str = "meta") -> Iterator[None]:
    """Within the context, code that wants a CUDA device of this target runs on device (`meta` or `cpu`).

    Put it around the import of a task file, around `Task.build` and around the launcher.
    """
    with ExitStack() as stack:
        stack.enter_context(replace_attributes(driver, _active=driver._active, _default=driver._default))
        install_driver(target)
        stack.enter_context(replace_attributes(torch, set_default_device=_new_ignore()))
        for owner, functions in ((torch.cuda, _cuda_functions(target)), (torch.accelerator, _accelerator_functions())):
            known = {name: function for name, function in functions.items() if hasattr(owner, name)}
            stack.enter_context(replace_attributes(owner, **known))
        stack.enter_context(StandinMode(device))
        yield


def install_driver(target: Target) -> None:
    """Makes the stub Triton driver the active one for the rest of this process."""
    driver._active = driver._default = StubDriver(target)


class StubDriver:
    """The part of `triton.runtime.driver.active` that launchers and tutorials use, with a target's facts."""

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
            "warpSize": t.warp_size,
            "sm_clock_rate": int(t.clock_ghz * 1e6),
            "mem_clock_rate": int(t.clock_ghz * 1e6),
            "mem_bus_width": int(t.bandwidth_gbps * 8 / (2 * t.clock_ghz)),  # so that their product is the bandwidth
        }

    def get_current_target(self) -> Any:
        return make_gpu_target(self._target.arch)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: Any) -> None:
        """Does nothing: there is one device."""

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
def replace_attributes(owner: Any, **values: Any) -> Iterator[None]:
    """Within the context, an object has these attributes in place of its own or of its class's."""
    own = {name: vars(owner)[name] for name in values if name in vars(owner)}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            setattr(owner, name, own[name]) if name in own else delattr(owner, name)


def _ignore(*args: Any, **kwargs: Any) -> None:
    """Takes any arguments, does nothing."""


def _new_ignore() -> Callable[..., None]:
    """A new function like `_ignore`: torch's compiler needs a different object for each function of torch.cuda."""
    return lambda *args, **kwargs: None


class _Guard(nullcontext):
    """A device or stream guard without effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(self)
        self.idx = 0


class _Stream(_Guard):
    """A CUDA stream or event without effect; elapsed times are zero."""

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


@lru_cache(maxsize=4)
def _cuda_functions(target: Target) -> dict[str, Any]:
    major, minor = divmod(target.capability, 10)
    properties = SimpleNamespace(
        name=f"{'AMD' if target.gfx else 'NVIDIA'} {target.name.upper()}",
        major=major,
        minor=minor,
        gcnArchName=target.gfx,
        multi_processor_count=target.num_sms,
        L2_cache_size=target.l2_bytes,
        warp_size=target.warp_size,
        max_threads_per_multi_processor=target.warps_per_sm * target.warp_size,
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
        "_DeviceGuard": type("_DeviceGuard", (_Guard,), {}),  # what TorchInductor's own launchers enter
        "stream": type("stream", (_Guard,), {}),
        "Stream": _Stream,
        "Event": type("Event", (_Stream,), {}),
        **{name: _new_ignore() for name in _IGNORED},
    }


_IGNORED = "set_device synchronize empty_cache init manual_seed manual_seed_all reset_peak_memory_stats".split()


def _accelerator_functions() -> dict[str, Any]:
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "synchronize": _new_ignore(),
    }


class StandinMode(TorchFunctionMode):
    """Every tensor reports that it is on cuda:0; every request for a CUDA device goes to the stand-in device.

    A request for the device of a tensor on meta goes to meta.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == torch.Tensor.device.__get__ and args[0].is_meta:
            return ON_META
        if func in _ANSWERS:
            return _ANSWERS[func]
        if func in _STAYS:
            return args[0]
        if func is torch.Tensor.cuda:
            return args[0].to(self.device)
        args = tuple(self._place(a, strings=func is torch.Tensor.to) for a in args)
        if "device" in kwargs:
            kwargs["device"] = self._place(kwargs["device"], strings=True)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*args, **kwargs)

    def _place(self, value: Any, strings: bool = False) -> Any:
        if value is ON_META:
            return torch.device("meta")
        if isinstance(value, torch.device):
            return self.device if value.type == "cuda" else value
        is_cuda = isinstance(value, str) and value.partition(":")[0] == "cuda"
        if strings and (is_cuda or type(value) is int):  # `.to(0)` and `device=0` mean the first GPU
            return self.device
        return value


_TENSOR: Any = torch.Tensor  # to mypy its descriptors are values
_ANSWERS: dict[Any, Any] = {
    _TENSOR.is_cuda.__get__: True,
    _TENSOR.is_cpu.__get__: False,
    _TENSOR.is_meta.__get__: False,
    torch.Tensor.device.__get__: CUDA,
    torch.Tensor.get_device: 0,
    torch.Tensor.is_pinned: False,
    torch.Tensor.record_stream: None,
}
_STAYS = frozenset({torch.Tensor.cpu, torch.Tensor.pin_memory})


# ---------------------------------------------------------------- poison


@contextmanager
def poison_empty(
    value: float | None = None, most: int | None = None, fill: int = 0, places: list[str] | None = None
) -> Iterator[set[int]]:
    """Fills the results of `torch.empty`, `empty_like`, `new_empty`, `empty_strided` with `judge.poison_value(dtype)`.

    Or with value, as memory may hold that was used before. `zeros`, `full` and the like are left alone. Booleans are
    True: every value of theirs may be an answer. Tensors of more than `most` elements are left untouched. The result of
    the one `zeros`, `full`, `zero_` or the like with number `fill` is poisoned too, and its place in the source joins
    places. Yields the addresses of the storages that were filled.
    """
    poisoning = _Poisoning(value, most, fill, places if places is not None else [])
    with poisoning:
        yield poisoning.filled


def fill_with_poison(tensor: torch.Tensor) -> None:
    """Overwrites every element with `judge.poison_value(dtype)`; NaN with bits that no arithmetic makes of numbers."""
    if tensor.dtype in _NAN_BITS:
        as_integers, bits = _NAN_BITS[tensor.dtype]
        tensor.view(as_integers).fill_(bits)
    elif tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        tensor.view(torch.uint8).fill_(0x80 if "fnuz" in str(tensor.dtype) else 0x7F)  # NaN in each format
    else:
        tensor.fill_(poison_value(tensor.dtype))


_NAN_BITS = {
    torch.float16: (torch.int16, 0x7E5A), torch.float32: (torch.int32, 0x7FDA5A5A),
    torch.bfloat16: (torch.int16, 0x7FDA), torch.float64: (torch.int64, 0x7FFA5A5A5A5A5A5A),
}  # fmt: skip


_EMPTY = frozenset(
    f"aten::{name}" for name in "empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split()
)


FILLS = frozenset(
    f"aten::{name}" for name in "zeros zeros_like new_zeros full full_like new_full ones ones_like zero_ fill_".split()
)


class _Poisoning(DispatchMode):
    def __init__(self, value: float | None, most: int | None, fill: int, places: list[str]) -> None:
        super().__init__()
        self.value, self.most, self.filled = value, most, set[int]()
        self.fill, self.places = fill, places

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        empty = func.name().partition(".")[0] in _EMPTY and result.device.type != "meta"
        if empty and (self.most is None or result.numel() <= self.most):
            fill_with_poison(result) if self.value is None else result.fill_(self.value)
            self.filled.add(result.untyped_storage().data_ptr())
        if self.fill and func.name().partition(".")[0] in FILLS and result.numel() > 1:
            self.fill -= 1
            if not self.fill:
                fill_with_poison(result)
                self.places.append(_describe_caller())
        return result


def _describe_caller() -> str:
    """Its line as it is written, with its number and file."""
    if (frame := find_caller()) is None:
        return "its launcher"
    file, line = frame.f_code.co_filename, frame.f_lineno
    return f"`{linecache.getline(file, line).strip()}` (line {line} of {Path(file).name})"


def find_caller() -> FrameType | None:
    """The nearest frame of neither torch nor this project."""
    others = str(Path(torch.__file__).parent), str(Path(__file__).parents[2])
    frames = (frame for frame, _ in traceback.walk_stack(None))
    return next((f for f in frames if not f.f_code.co_filename.startswith(others)), None)
