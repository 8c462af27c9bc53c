"""A kernel that is its own reference: its launcher evaluated at its own precision, and with float64 for every float.

In float64 each tensor of floats that the launcher sees has a twin in float64. PyTorch's operations of the launcher run
on both, its kernels on the twins alone, so that nothing is rounded between inputs and outputs. Integers are the same
tensors in both; where floats decide them, those of float64 count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial, wraps
from types import SimpleNamespace
from typing import Any

import torch
import triton.language as tl
from torch.utils._python_dispatch import _pop_mode, _push_mode
from torch.utils._pytree import tree_map, tree_map_only

from kernelsearch.compile.build import BuildFailure, make_ttir
from kernelsearch.core.errors import ExpressionError
from kernelsearch.core.types import LAUNCH_OPTIONS
from kernelsearch.evaluate.arithmetic import BITS, DTYPES
from kernelsearch.evaluate.faults import Fault, Unsupported
from kernelsearch.evaluate.launch import CompiledKernel, GridRun
from kernelsearch.evaluate.steps import Step
from kernelsearch.ir.text import Module, Operation, UnknownForm, read_module
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


def kernel_as_reference(launcher: Any) -> Any:
    """The reference of a task whose kernel is its own: the launcher as it stands, whose faults stay.

    On a CPU its kernels are evaluated. The judge's right answer has float64 in place of each float of 16 and 32 bits.
    """

    @wraps(launcher, updated=())
    def reference(*inputs: Any) -> Any:
        return run_evaluated(launcher, inputs)

    def widen(nest: Callable[[Any], Any], own: Sequence[Any]) -> Any:
        def wide(*values: Any) -> Any:
            return run_wide(nest(launcher), values, own, said)

        said = wide.said = list[str]()  # type: ignore[attr-defined]
        return wide

    reference.widen = widen  # type: ignore[attr-defined]
    return reference


def run_evaluated(launcher: Any, inputs: Sequence[Any]) -> Any:
    """The launcher's result; on a GPU it runs, on the CPU its kernels are evaluated, on meta none runs."""
    device, depth = _find_device(inputs), torch._C._len_torch_dispatch_stack()
    if device == "cuda":
        return launcher(*inputs)
    runs = (lambda launch: None) if device == "meta" else partial(execute, depth=depth)
    with pretend_gpu(target_by_name("h100"), device), poison_empty(), intercept_launches(runs):
        return launcher(*inputs)


def fits_cpu(values: Sequence[Any]) -> bool:
    """Whether the CPU evaluates these inputs in float64 where there is a GPU too."""
    return sum(v.numel() for v in list_tensors(list(values))) <= MOST_WIDE


def run_wide(launcher: Any, values: Sequence[Any], own: Sequence[Any], said: list[str]) -> Any:
    """The launcher's result in float64, else at the precision of own, with the reason in said; changes values too."""
    depth, twins, is_cuda = torch._C._len_torch_dispatch_stack(), Twins(), _find_device(values) == "cuda"
    large = is_cuda and not fits_cpu(values)
    here = [v.cpu() if torch.is_tensor(v) and is_cuda and not said and not large else v for v in values]
    narrow = [v.to(o.dtype, copy=True) if torch.is_tensor(v) else v for v, o in zip(here, own, strict=True)]
    for new, value in zip(narrow, here, strict=True):
        if torch.is_tensor(new) and new.dtype in WIDENED:
            twins.keep(new, value)
    runs = partial(execute, depth=depth, twins=twins)
    try:
        if said or large:
            raise NotImplementedError("too large to be evaluated on the CPU")
        with pretend_gpu(target_by_name("h100"), "cpu"), poison_empty(), twins, intercept_launches(runs):
            result = launcher(*narrow)
        for made in list_tensors([result, narrow]):
            twins.of(made)
    except NotImplementedError as error:
        why = f"it does not run in float64 ({error}): what it gives at its own precision is the truth"
        said[:] = said or [why]
        narrow = [v.to(o.dtype, copy=True) if torch.is_tensor(v) else v for v, o in zip(values, own, strict=True)]
        result, twins = run_evaluated(launcher, narrow), Twins()
    with torch._C.DisableTorchFunction():
        for value, new in zip(values, narrow, strict=True):
            value.copy_(twins.of(new)) if torch.is_tensor(value) else None
        move = torch.Tensor.cuda if is_cuda else torch.Tensor.cpu
        return tree_map_only(torch.Tensor, lambda y: move(twins.of(y)), result)


def _find_device(values: Sequence[Any]) -> str:
    """The kind of device on which tensors really are, below stand-ins."""
    with torch._C.DisableTorchFunction():
        return next((v.device.type for v in list_tensors(list(values))), "cpu")


class Twins(DispatchMode):
    """While it is active, PyTorch's operations on floats of 16 and 32 bits also run on their twins in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple[torch.dtype, torch.Tensor, Any]] = {}

    def keep(self, tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Makes a twin with this value for a tensor; gives all of its storage."""
        storage = tensor.untyped_storage()
        flat = torch.full(
            (storage.nbytes() // tensor.element_size(),), torch.nan, dtype=torch.float64, device=tensor.device
        )
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
            whole = torch.empty(0, dtype=dtype, device=tensor.device).set_(tensor.untyped_storage())
            flat = self.keep(whole, whole.double())
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
            if narrow.dtype not in WIDENED:
                narrow.copy_(wide)
            elif id(narrow) not in own and narrow.numel():
                self.keep(narrow, wide)
        return result

    def _widen(self, value: Any) -> Any:
        is_float = isinstance(value, torch.dtype) and value in WIDENED
        return self.of(value) if torch.is_tensor(value) else torch.float64 if is_float else value


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


def execute(launch: Launch, depth: int, twins: Twins | None = None) -> str:
    """Evaluates a launch of the launcher's own kernel; gives its TTIR. Raises RuntimeError, NotImplementedError."""
    launch.run_pre_hooks()
    x, y, z = grid = (*launch.resolve_grid({}), 1, 1)[:3]
    if 0 in grid:
        return ""
    values, params = launch.bind_parameters(), {p.name: p for p in launch.fn.params}
    options = {n: v for n, v in launch.resolve_options().items() if not n.startswith(("num_", *LAUNCH_OPTIONS))}
    facts = {n: as_arg_fact(v, n) for n, v in values.items() if not params[n].is_constexpr}
    constants = {n: as_arg_fact(v, n) if isinstance(v, tl.dtype) else v for n, v in values.items() if n not in facts}
    kinds = {n: params[n].annotation_type for n in facts if params[n].annotation_type}
    step, fact = LaunchStep(launch.site, facts, constants, options, (x, y, z), kinds), as_launch_fact(launch)
    plan: Any = SimpleNamespace(scratch={})
    try:
        with _outside(depth):
            text, compiled = _compile(launch.fn, specialise(step, fact, {}), bool(twins))
            if twins:
                values = replace_tensors(values, {n: twins.of(t) for n, t in tensors_in(values).items()})
            bound = CandidateLaunch(plan, plan, step, fact, values, frozenset())
            GridRun(compiled, *bind_arguments(bound, beside=[*values.values()], wide=bool(twins)), (x, y, z)).run()
            return text
    except (Fault, LaunchError, ExpressionError) as error:
        where = f" (line {line})" if (line := getattr(error, "line", 0)) else ""
        raise RuntimeError(f"{launch.site}: {error}{where}") from None
    except (Unsupported, UnknownForm) as error:
        how = "in float64" if twins else "without a GPU"
        raise NotImplementedError(f"{launch.site} cannot be evaluated {how}: {error}") from None


@lru_cache(maxsize=256)
def _compile(fn: Any, spec: Specialisation, wide: bool) -> tuple[str, CompiledKernel]:
    if fn.is_gluon():
        raise Unsupported("Gluon")
    text = make_ttir(fn, "", spec, 90, False)
    if isinstance(text, BuildFailure):
        raise RuntimeError(f"{spec.function} does not compile: {text.message}")
    module = (read_widened if wide else read_module)(text, fn.fn.__code__.co_filename)
    return text, CompiledKernel(module, wrap=_run_apart)


def _run_apart(op: Operation, step: Step) -> Step:
    """The step outside all modes of dispatch, if it computes no float: they would follow each part of an address."""
    if op.name.startswith("tt.atomic") or any(kind.element.startswith(("f", "bf")) for kind in op.types):
        return step

    def run(*given: Any) -> Any:
        with torch._C._DisableTorchDispatch():
            return step(*given)

    return run


def read_widened(text: str, file: str) -> Module:
    """The module of a text with float64 in place of floats of 16 and 32 bits. Raises Unsupported for what their
    precision decides: bits, and differences that take back what was added (rounding by a large number, two-sum).
    """
    made: dict[str, Operation] = {}
    for op in (op for func in read_module(text, file).functions.values() for op in func.walk()):
        made |= dict.fromkeys(op.results, op)
        added = made.get(op.operands[0]) if op.name == "arith.subf" else None
        if added is not None and added.name in ("arith.addf", "arith.subf") and op.operands[1] in added.operands:
            raise Unsupported("a difference that takes back what was added depends on its rounding")
        kinds = {op.types[0].element, op.types[-1].element} if op.name.endswith(".bitcast") else {""}
        reads = (len(kinds) > 1 and "f" in "".join(kinds)) or (op.name == "tt.extern_elementwise" and "_as_" in op.text)
        if reads or op.name in ("tt.ptr_to_int", "tt.int_to_ptr", "tt.dot_scaled"):
            raise Unsupported(f"{op.name} depends on the bits of floats or addresses")
    return read_module("\n".join(map(_widen_line, text.splitlines())), file)


def _widen_line(line: str) -> str:
    kind = _FLOAT.search(line)
    if kind and "arith.constant" in line and (found := re.search(r"\b0x([0-9A-Fa-f]+)\b", line)):
        dtype, bits = DTYPES[kind[2]], int(found[1], 16)
        signed = bits - (bits >> (8 * dtype.itemsize - 1) << (8 * dtype.itemsize))
        wide = torch.tensor([signed], dtype=BITS[dtype.itemsize]).view(dtype).double().view(torch.int64)
        line = line.replace(found[0], f"0x{int(wide) & (1 << 64) - 1:X}")
    return _FLOAT.sub(r"\1f64", line)
