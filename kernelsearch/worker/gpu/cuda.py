"""Loads a cubin and launches it through the CUDA driver API, in torch's current context."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

import torch

from kernelsearch.compile.build import Binary
from kernelsearch.compile.tensor_maps import MAP, TF32, TensorMap, expand_kinds, is_descriptor_kind, list_flags

_DYNAMIC_SHARED_LIMIT = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEFAULT_SHARED = 48 << 10
_SCALARS: dict[str, Any] = {
    "i1": ctypes.c_int8,
    "u1": ctypes.c_uint8,
    **{f"i{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
    "fp32": ctypes.c_float,
    "fp64": ctypes.c_double,
}
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_L2_PROMOTION = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B, as Triton asks for


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id, padding to 8 bytes, a 64-byte value."""

    _fields_ = [("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16)]


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


class CudaError(Exception):
    """The driver refused a call; code is the CUresult, sticky says that this process's context is lost."""

    STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 999})

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: CUDA error {code} ({_error_name(code)})")
        self.code = code
        self.sticky = code in self.STICKY


class LoadedFunction:
    """A loaded binary, ready to launch.

    Arguments go in the order of the signature without constexprs. Scratch pointers follow if the binary's parameter
    list is longer: global scratch first, null if it needs none.
    """

    def __init__(self, binary: Binary) -> None:
        self.binary = binary
        module = ctypes.c_void_p()
        if threading.current_thread() is not threading.main_thread():
            torch.cuda.set_device(torch.cuda.current_device())  # that of a backward pass has no context yet
        _check(_driver().cuModuleLoadData(ctypes.byref(module), binary.cubin), "load")
        self.handle = ctypes.c_void_p()
        _check(_driver().cuModuleGetFunction(ctypes.byref(self.handle), module, binary.name.encode()), "find")
        if binary.shared > _DEFAULT_SHARED:
            _check(_driver().cuFuncSetAttribute(self.handle, _DYNAMIC_SHARED_LIMIT, binary.shared), "shared memory")
        self.types = [_cell_of(kind) for _, kind in expand_kinds([k for _, k in binary.params], bool(binary.maps))]
        self.spare = max(0, binary.mix.parameters - len(self.types))
        self.types += [ctypes.c_uint64] * self.spare

    def launch(self, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        """Queues one launch on torch's current stream; args are tensors, descriptors, scalars in signature order.

        grid counts programs; a program of several CTAs is a cluster along the first axis.
        """
        values = self._expand(args)
        scratch = self._scratch(grid)
        spare = [0 if scratch is None else scratch.data_ptr(), 0][: self.spare]
        cells = [kind(v) for kind, v in zip(self.types, (*values, *spare), strict=True)]
        pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(c) for c in cells))
        config = self._config(grid)
        _check(_driver().cuLaunchKernelEx(ctypes.byref(config), self.handle, pointers, None), "launch")

    def _expand(self, args: Sequence[Any]) -> Iterator[Any]:
        """The values of the machine's parameters, see `compile/tensor_maps.py`."""
        maps = iter(self.binary.maps)
        for (_, kind), arg in zip(self.binary.params, args, strict=True):
            if not is_descriptor_kind(kind):
                yield arg.data_ptr() if isinstance(arg, torch.Tensor) else arg
                continue
            shape, strides = tuple(arg.shape), tuple(arg.strides)
            flags = [getattr(arg, name) not in (False, "zero") for name in list_flags()]
            how = next(maps, None)
            if how is None:
                yield from (arg.base.data_ptr(), *shape, *strides, *flags)
            else:
                yield encode_tensor_map(how, arg.base.data_ptr(), shape, strides, tuple(flags))
            yield from (*shape, *strides)

    def _config(self, grid: tuple[int, int, int]) -> _Config:
        ctas = self.binary.num_ctas
        config = _Config(
            (ctypes.c_uint * 3)(grid[0] * ctas, grid[1], grid[2]),
            (ctypes.c_uint * 3)(32 * self.binary.num_warps, 1, 1),
            self.binary.shared,
            _stream(),
        )
        if ctas > 1:
            config.attributes = ctypes.pointer(_Attribute(_CLUSTER_DIMENSION, 0, (ctypes.c_uint * 16)(ctas, 1, 1)))
            config.count = 1
        return config

    def _scratch(self, grid: tuple[int, int, int]) -> torch.Tensor | None:
        if not self.binary.scratch_bytes:
            return None
        size = self.binary.scratch_bytes * grid[0] * grid[1] * grid[2] * self.binary.num_ctas
        return torch.empty(size, dtype=torch.uint8, device="cuda")


def _cell_of(kind: str) -> Any:
    """What makes a parameter's cell of a value; a tensor map is one already."""
    if kind == MAP:
        return lambda tensor_map: tensor_map
    return ctypes.c_uint64 if kind[0] == "*" else _SCALARS[kind]


@lru_cache(maxsize=4096)
def encode_tensor_map(
    how: TensorMap, address: int, shape: tuple[int, ...], strides: tuple[int, ...], flags: tuple[bool, ...]
) -> Any:
    """The tensor map of a tensor at an address, with its axes in CUDA's order: the last one first."""
    raw = (ctypes.c_uint8 * (_MAP_BYTES + _MAP_ALIGNMENT))()
    made = (ctypes.c_uint8 * _MAP_BYTES).from_buffer(raw, -ctypes.addressof(raw) % _MAP_ALIGNMENT)
    fills_nan, rounds = (*flags, False)[:2]
    rank, sizes = len(shape), ctypes.c_uint64 * len(shape)
    code = _driver().cuTensorMapEncodeTiled(
        made,
        TF32 if rounds else how.element_type,
        rank,
        ctypes.c_void_p(address),
        sizes(*reversed(shape)),
        sizes(*(s * how.element_bytes for s in reversed(strides[:-1]))),
        (ctypes.c_uint32 * rank)(*reversed(how.box)),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,  # no interleaving
        how.swizzle,
        _L2_PROMOTION,
        int(fills_nan),  # CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
    )
    _check(code, f"tensor map of {shape}")
    return made


def copy_bytes(target: int, source: int, size: int) -> None:
    """Queues a copy from one address on the GPU to another on torch's current stream. Raises CudaError."""
    to, of, count, stream = ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size), _stream()
    _check(_driver().cuMemcpyDtoDAsync_v2(to, of, count, ctypes.c_void_p(stream)), "copy")


def fill_bytes(address: int, byte: int, size: int) -> None:
    """Queues that each byte from an address on is this one, on torch's current stream. Raises CudaError."""
    at, count, stream = ctypes.c_uint64(address), ctypes.c_size_t(size), ctypes.c_void_p(_stream())
    _check(_driver().cuMemsetD8Async(at, ctypes.c_ubyte(byte), count, stream), "fill")


def _stream() -> int:
    return torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(code: int, what: str) -> None:
    if code != 0:
        raise CudaError(code, what)


def _error_name(code: int) -> str:
    name = ctypes.c_char_p()
    _driver().cuGetErrorName(code, ctypes.byref(name))
    return (name.value or b"unknown").decode()
