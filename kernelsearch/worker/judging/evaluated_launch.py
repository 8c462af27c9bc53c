"""One launch of a candidate as the evaluator takes it: its kernel compiled to TTIR, and its arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.compile.build import INVENTED, BuildFailure, make_ttir
from kernelsearch.compile.marks import list_choices, read_mark
from kernelsearch.core.types import LAUNCH_OPTIONS, Verdict, Word
from kernelsearch.evaluate.arithmetic import BITS
from kernelsearch.evaluate.buffers import Storage, Storages
from kernelsearch.evaluate.faults import EndlessLoop, Fault, OutOfBounds, Race, Unsupported
from kernelsearch.evaluate.launch import CompiledKernel, make_scalar
from kernelsearch.evaluate.memory import TileDescriptor
from kernelsearch.evaluate.places import follow_places
from kernelsearch.evaluate.steps import Step
from kernelsearch.ir.text import Module, Operation, UnknownForm, read_module
from kernelsearch.kernel.launch import LaunchError, Specialisation, specialise
from kernelsearch.kernel.source import GLUON
from kernelsearch.worker.judging.candidate_launch import CandidateLaunch, describe_shape, name_line, run_launcher
from kernelsearch.worker.launcher.arguments import tensors_in
from kernelsearch.worker.launcher.standin import fill_with_poison
from kernelsearch.worker.messages.jobs import CandidateJob

Wrap = Callable[[Operation, Step], Step]
WORDS = {OutOfBounds: Word.MEMORY, Race: Word.RACE, EndlessLoop: Word.TIMEOUT}
_ELEMENTS = {"fp16": "f16", "fp32": "f32", "fp64": "f64", "u1": "i1", "u64": "i64"}
"""What TTIR calls the types of a signature, where that differs."""


class CompileFailure(Exception):
    """The compiler refuses a function at a launch's specialisation, in its own words."""


def run_guarded(
    path: str,
    candidate: CandidateJob,
    shape: str,
    values: list[Any],
    execute: Callable[[CandidateLaunch], None],
    num_sms: int = 0,
    **memory: Any,
) -> tuple[list[torch.Tensor], Verdict | None]:
    """The outputs of `run_launcher` without empty launches; what the candidate does wrong is a verdict."""

    def guarded(launch: CandidateLaunch) -> None:
        try:
            if 0 not in launch.step.grid:
                with torch._C.DisableTorchFunction(), _disable_current_modes():  # the launcher's stand-ins are not ours
                    execute(launch)
        except Fault as fault:
            raise _Located(fault, launch) from None

    about = describe_shape(path, shape, candidate.target)
    try:
        return run_launcher(path, candidate, shape, values, guarded, num_sms, **memory), None
    except LaunchError as error:
        return [], Verdict(Word.STATIC, "launch", str(error))
    except (Unsupported, UnknownForm) as error:
        return [], Verdict(Word.STATIC, "judge", f"cannot be judged without a GPU: {error}", detail=about)
    except CompileFailure as error:
        return [], Verdict(Word.COMPILE, "compile", str(error), detail=about)
    except _Located as error:
        return [], error.to_verdict(about, path if candidate.kernel.digest == candidate.seed.digest else "")


class _Located(Exception):
    """A fault of a launch, with the kernel whose line it names."""

    def __init__(self, fault: Fault, launch: CandidateLaunch) -> None:
        super().__init__(str(fault))
        self.fault, self.code = fault, launch.kernel.code

    def to_verdict(self, about: dict[str, str], file: str) -> Verdict:
        """The verdict, with the line; file is the task's where the kernel is its own."""
        reason, lines = str(self.fault), self.code.splitlines()
        if 0 < self.fault.line <= len(lines):
            reason = name_line(reason, lines[self.fault.line - 1].strip(), file)
        return Verdict(WORDS.get(type(self.fault), Word.MEMORY), "run", reason, detail=about)


def compile_launch(launch: CandidateLaunch, arch: int | str, wrap: Wrap | None = None) -> Any:
    """A launch's compiled function, its marks, and by line the sides of its conditional expressions.

    Launch options that change no result are left out, so that fewer are compiled. Raises Unsupported, CompileFailure.
    """
    spec = specialise(launch.step, launch.fact, launch.plan.scratch)
    kept = tuple((n, v) for n, v in spec.options if n not in LAUNCH_OPTIONS)
    if launch.kernel.language == GLUON:
        raise Unsupported("Gluon")
    return _compile_once(launch.kernel.code, launch.kernel.digest, replace(spec, options=kept), arch, wrap)


@lru_cache(maxsize=256)
def _compile_once(code: str, digest: str, spec: Specialisation, arch: int | str, wrap: Wrap | None) -> Any:
    module, choices = _read_once(code, digest, spec, arch), list_choices(_parse(code))
    if wrap is not None:
        return CompiledKernel(module, wrap=wrap), frozenset(), {}
    every = [op for func in module.functions.values() for op in func.walk()]
    marks = {op: read_mark(op.text) for op in every if op.name == "tt.print"}
    numbers = [follow_places] * any(op.name == "tt.ptr_to_int" for op in every)
    return CompiledKernel(module, marks.get, frozenset(choices), *numbers), {*marks.values()} - {None}, choices


@lru_cache(maxsize=64)
def _read_once(code: str, digest: str, spec: Specialisation, arch: int | str) -> Module:
    text = make_ttir(code, digest, spec, arch)
    if isinstance(text, BuildFailure):
        raise CompileFailure(text.message)
    return read_module(text, INVENTED)


@lru_cache(maxsize=64)
def _parse(code: str) -> ast.Module:
    return ast.parse(code)


def bind_arguments(
    launch: CandidateLaunch,
    inputs: frozenset[int] = frozenset(),
    storages: type[Storages] = Storages,
    beside: Sequence[Any] = (),
    wide: bool = False,
) -> tuple[Any, list[Any]]:
    """The buffers of a launch's arguments, and the value of each parameter in order; inputs must not be written.

    beside are values whose tensors a table of addresses may hold; wide, that numbers with a point are float64.
    """
    spec = dict(specialise(launch.step, launch.fact, launch.plan.scratch).signature)
    places: dict[int, int] = {}
    buffers = storages([])
    for name, tensor in (*tensors_in(launch.args).items(), *(("an input", v) for v in tree_leaves(beside))):
        if not isinstance(tensor, torch.Tensor):
            continue
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in places:
            places[storage.data_ptr()] = len(buffers.buffers)
            flat = torch.empty(0, dtype=torch.uint8).set_(storage)
            poison = _poison_bits(tensor.dtype) if storage.data_ptr() in launch.fresh else None
            buffers.buffers.append(Storage(name, flat, poison, storage.data_ptr() in inputs))

    def address(tensor: torch.Tensor) -> torch.Tensor:
        start = buffers.address_of(places[tensor.untyped_storage().data_ptr()])
        return torch.tensor([start + tensor.storage_offset() * tensor.element_size()])

    args: list[Any] = []
    for name, value in launch.args.items():
        kind = spec[name]
        if kind == "constexpr":
            continue
        if isinstance(value, TensorDescriptor):
            sizes, strides = ([torch.tensor([n]) for n in v] for v in (value.shape, value.strides))
            nan = getattr(value, "padding", "zero") == "nan"
            args += [
                TileDescriptor(address(value.base), sizes, strides, nan),
                *(n.to(torch.int32) for n in sizes),
                *strides,
            ]
        elif isinstance(value, torch.Tensor):
            args.append(address(value))
        else:
            kind = "fp64" if wide and kind in ("fp16", "bf16", "fp32") else kind
            args.append(make_scalar(value, _ELEMENTS.get(kind, kind)))
    return buffers, args


@lru_cache
def _poison_bits(dtype: torch.dtype) -> int | None:
    """The bits of an element that was poisoned when it was allocated; one byte may hold them by chance."""
    one = torch.empty(1, dtype=dtype)
    if one.element_size() not in (2, 4, 8):
        return None
    fill_with_poison(one)
    return int(one.view(BITS[one.element_size()]))
