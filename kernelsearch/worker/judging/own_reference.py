"""A kernel that is its own reference: its launcher evaluated at its own precision, and with float64 for every float.

In float64 each tensor of floats that the launcher sees has a twin in float64. PyTorch's operations of the launcher run
on both, its kernels on the twins alone, so that nothing is rounded between inputs and outputs. Integers are the same
tensors in both; where floats decide them, those of float64 count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial, wraps
from types import SimpleNamespace
from typing import Any

import torch
import triton.language as tl
from torch.utils._python_dispatch import _pop_mode, _push_mode
from torch.utils._pytree import tree_map, tree_map_only

from kernelsearch.compile.build import BuildFailure, make_ttir
from kernelsearch.core.errors import ExpressionError
from kernelsearch.evaluate.arithmetic import BITS, DTYPES
from kernelsearch.evaluate.faults import Fault, Unsupported
from kernelsearch.evaluate.launch import CompiledKernel, GridRun
from kernelsearch.ir.text import Module, UnknownForm, read_module
from kernelsearch.kernel.launch import LaunchError, LaunchStep, Specialisation, specialise
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.verify.dispatch import DispatchMode, list_tensors
from kernelsearch.worker.judging.candidate_launch import CandidateLaunch
from kernelsearch.worker.judging.evaluated_launch import bind_arguments
from kernelsearch.worker.launcher.arguments import replace_tensors, tensors_in
from kernelsearch.worker.launcher.intercept import Launch, as_arg_fact, intercept_launches
from kernelsearch.worker.launcher.standin import poison_empty, pretend_gpu
from kernelsearch.worker.launcher.trace import as_launch_fact

MOST_WIDE = 2**22
"""Elements of inputs on a GPU that are taken to the CPU, where float64 is evaluated."""
WIDENED = (torch.float16, torch.bfloat16, torch.float32)
_FLOAT = re.compile(r'(?<![\w.%@#"])((?:\d+x)*)(bf16|f16|f32)\b')
Function = Callable[..., Any]


def kernel_as_reference(launcher: Function) -> Function:
    """The reference of a task whose kernel is its own: the launcher as it stands, whose faults stay.

    On a CPU its kernels are evaluated. The judge's right answer has float64 in place of each float of 16 and 32 bits.
    """

    @wraps(launcher, updated=())
    def reference(*inputs: Any) -> Any:
        return run_evaluated(launcher, inputs)

    reference.run_wide = run_wide  # type: ignore[attr-defined]
    return reference


def run_evaluated(launcher: Function, inputs: Sequence[Any]) -> Any:
    """The launcher's result; on a GPU it runs, on the CPU its kernels are evaluated, on meta none runs."""
    devices, depth = _look(inputs)[0], torch._C._len_torch_dispatch_stack()
    if "cuda" in devices:
        return launcher(*inputs)
    runs = (lambda launch: None) if "meta" in devices else partial(execute, depth=depth)
    place = "meta" if "meta" in devices else "cpu"
    with pretend_gpu(target_by_name("h100"), place), poison_empty(), intercept_launches(runs):
        return launcher(*inputs)


def run_wide(launcher: Function, values: Sequence[Any], own: Sequence[Any], exact: bool = True) -> Any:
    """The launcher's result in float64 for values in it, in place of floats of own; changes values as it does.

    exact=False: it runs at the precision of own. Raises NotImplementedError.
    """
    devices, elements = _look(values)
    if exact and "cuda" in devices:
        if elements > MOST_WIDE:
            raise NotImplementedError("too large to be evaluated on the CPU")
        here = [v.cpu() if isinstance(v, torch.Tensor) else v for v in values]
        result = run_wide(launcher, here, own)
        _write_back(values, here)
        return tree_map_only(torch.Tensor, lambda y: y.to("cuda"), result)
    depth, twins = torch._C._len_torch_dispatch_stack(), Twins()
    narrow = [twins.narrow(v, o.dtype) if isinstance(v, torch.Tensor) else v for v, o in zip(values, own, strict=True)]
    if exact:
        runs = partial(execute, depth=depth, twins=twins)
        with pretend_gpu(target_by_name("h100"), "cpu"), twins, intercept_launches(runs):
            result = launcher(*narrow)
    else:
        result = run_evaluated(launcher, narrow)
    with torch._C.DisableTorchFunction():
        take = twins.of if exact else lambda y: y.double() if y.dtype in WIDENED else y
        _write_back(values, tree_map_only(torch.Tensor, take, narrow))
        return tree_map_only(torch.Tensor, take, result)


def _look(values: Sequence[Any]) -> tuple[set[str], int]:
    """The kinds of devices on which tensors really are, below stand-ins, and their elements."""
    with torch._C.DisableTorchFunction():
        tensors = list_tensors(list(values))
        return {v.device.type for v in tensors}, sum(v.numel() for v in tensors)


def _write_back(values: Sequence[Any], changed: Sequence[Any]) -> None:
    for value, new in zip(values, changed, strict=True):
        if isinstance(value, torch.Tensor):
            value.copy_(new)


class Twins(DispatchMode):
    """While it is active, PyTorch's operations on floats of 16 and 32 bits also run on their twins in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple[torch.dtype, torch.Tensor, Any]] = {}

    def narrow(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A new tensor of this dtype, whose twin has the value."""
        made = value.clone().to(dtype, copy=True)
        if dtype in WIDENED:
            self._keep(made, value)
        return made

    def _keep(self, tensor: torch.Tensor, value: torch.Tensor | None) -> torch.Tensor:
        storage = tensor.untyped_storage()
        flat = torch.full((storage.nbytes() // tensor.element_size(),), torch.nan, dtype=torch.float64)
        if value is not None:
            flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(value)
        self.known[storage.data_ptr()] = tensor.dtype, flat, storage
        return flat

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The twin of a tensor; itself where it needs none. Raises NotImplementedError."""
        place, wide = tensor.untyped_storage().data_ptr(), tensor.dtype in WIDENED
        dtype, flat, _ = self.known.get(place, (tensor.dtype, None, None))
        if not tensor.numel() or (flat is None and not wide):
            return tensor.double() if wide else tensor
        if dtype != tensor.dtype:
            raise NotImplementedError("the launcher reads the bits of floats")
        if flat is None:  # made before: a weight or a constant of the file
            whole = torch.empty(0, dtype=dtype).set_(tensor.untyped_storage())
            flat = self._keep(whole, whole.double())
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs, name = kwargs or {}, func._schema.name
        if func.is_view:
            return func(*args, **kwargs)
        wide_args, wide_kwargs = tree_map(self._widen, (args, kwargs))
        named = {**{a.name: v for a, v in zip(func._schema.arguments, args, strict=False)}, **kwargs}
        changed = [named[a.name] for a in func._schema.arguments if a.is_write and a.name in named]
        if name == "aten::_local_scalar_dense" or any(v.dtype not in WIDENED for v in list_tensors(changed)):
            made = func(*wide_args, **wide_kwargs)  # once: an integer that is changed is the same tensor in both
            return changed[0] if changed and isinstance(made, torch.Tensor) else made
        result, exact = func(*args, **kwargs), func(*wide_args, **wide_kwargs)
        own = {id(v) for v in list_tensors((args, kwargs))}
        for narrow, wide in zip(list_tensors(result), list_tensors(exact), strict=True):
            if narrow.shape != wide.shape:
                raise NotImplementedError(f"sizes that {name} gives follow floats")
            if narrow.dtype in WIDENED and id(narrow) not in own and narrow.numel():
                self._keep(narrow, None if "empty" in name else wide)
            elif narrow.dtype not in WIDENED and "empty" not in name:
                narrow.copy_(wide)
        return result

    def _widen(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.of(value)
        return torch.float64 if isinstance(value, torch.dtype) and value in WIDENED else value


@contextmanager
def _outside(depth: int) -> Iterator[None]:
    """Without the modes of dispatch above this depth, and without stand-ins."""
    inner = [_pop_mode() for _ in range(torch._C._len_torch_dispatch_stack() - depth)]
    try:
        with torch._C.DisableTorchFunction():
            yield
    finally:
        for mode in reversed(inner):
            _push_mode(mode)


def execute(launch: Launch, depth: int, twins: Twins | None = None) -> None:
    """Evaluates a launch of the launcher's own kernel. Raises RuntimeError, NotImplementedError."""
    launch.run_pre_hooks()
    grid = (*launch.resolve_grid({}), 1, 1)[:3]
    if 0 in grid:
        return
    try:
        with _outside(depth):
            bound, compiled = _bind(launch, grid, bool(twins))
            if twins:
                wide = {n: twins.of(t) for n, t in tensors_in(bound.args).items()}
                bound = replace(bound, args=replace_tensors(bound.args, wide))
            buffers, args = bind_arguments(bound, beside=list(bound.args.values()), wide=bool(twins))
            GridRun(compiled, buffers, args, grid).run()
    except (Fault, LaunchError, ExpressionError) as error:
        where = f" (line {error.line})" if getattr(error, "line", 0) else ""
        raise RuntimeError(f"{launch.site}: {error}{where}") from None
    except (Unsupported, UnknownForm) as error:
        how = "in float64" if twins else "without a GPU"
        raise NotImplementedError(f"{launch.site} cannot be evaluated {how}: {error}") from None


def _bind(launch: Launch, grid: tuple[int, int, int], wide: bool) -> tuple[CandidateLaunch, CompiledKernel]:
    values, params = launch.bind_parameters(), {p.name: p for p in launch.fn.params}
    options = {n: v for n, v in launch.resolve_options().items() if not n.startswith(("num_", "maxnreg"))}
    facts = {n: as_arg_fact(v, n) for n, v in values.items() if not params[n].is_constexpr}
    constants = {n: as_arg_fact(v, n) if isinstance(v, tl.dtype) else v for n, v in values.items() if n not in facts}
    kinds = {n: params[n].annotation_type for n in facts if params[n].annotation_type}
    step = LaunchStep(launch.site, facts, constants, options, grid, kinds)
    fact, plan = as_launch_fact(launch), SimpleNamespace(scratch={})
    compiled = _compile(launch.fn, specialise(step, fact, {}), wide)
    return CandidateLaunch(None, plan, step, fact, values, frozenset()), compiled  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _compile(fn: Any, spec: Specialisation, wide: bool) -> CompiledKernel:
    if fn.is_gluon():
        raise Unsupported("Gluon")
    text = make_ttir("", "", spec, 90, False, fn)
    if isinstance(text, BuildFailure):
        raise RuntimeError(f"{spec.function} does not compile: {text.message}")
    file = fn.fn.__code__.co_filename
    return CompiledKernel(read_widened(text, file) if wide else read_module(text, file))


def read_widened(text: str, file: str) -> Module:
    """The module of a text with float64 in place of floats of 16 and 32 bits. Raises Unsupported for their bits."""
    module = read_module("\n".join(map(_widen_line, text.splitlines())), file)
    for op in (op for func in module.functions.values() for op in func.walk()):
        kinds = {op.types[0].element, op.types[-1].element} if op.name.endswith(".bitcast") else {""}
        reads = (len(kinds) > 1 and "f" in "".join(kinds)) or (op.name == "tt.extern_elementwise" and "_as_" in op.text)
        if reads or op.name in ("tt.ptr_to_int", "tt.int_to_ptr", "tt.dot_scaled"):
            raise Unsupported(f"{op.name} depends on the bits of floats or addresses")
    return module


def _widen_line(line: str) -> str:
    kind = _FLOAT.search(line)
    if kind and "arith.constant" in line:
        line = re.sub(r"\b0x([0-9A-Fa-f]+)\b", lambda bits: _widen_bits(int(bits[1], 16), DTYPES[kind[2]]), line)
    return _FLOAT.sub(r"\1f64", line)


def _widen_bits(bits: int, dtype: torch.dtype) -> str:
    width = 8 * dtype.itemsize
    value = torch.tensor([bits - (bits >> (width - 1) << width)], dtype=BITS[dtype.itemsize]).view(dtype).double()
    return f"0x{int(value.view(torch.int64)) & (1 << 64) - 1:X}"
