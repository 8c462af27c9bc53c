"""The worker that evaluates candidates' TTIR on a CPU, for judging without a GPU.

It is always forked from a nursery, which imports this module before any candidate comes.
"""

from __future__ import annotations

import ast
import random
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.compile.build import INVENTED, BuildFailure, make_ttir
from kernelsearch.compile.marks import list_choices, read_mark
from kernelsearch.core.types import Verdict, Word
from kernelsearch.evaluate.arithmetic import BITS
from kernelsearch.evaluate.buffers import Storage, Storages
from kernelsearch.evaluate.faults import NOT_EVALUATED, EndlessLoop, Fault, OutOfBounds, Race, Unsupported
from kernelsearch.evaluate.launch import CompiledKernel, GridRun, make_scalar
from kernelsearch.evaluate.memory import TileDescriptor
from kernelsearch.ir.text import UnknownForm, read_module
from kernelsearch.kernel.launch import LaunchError, Specialisation, specialise
from kernelsearch.kernel.source import GLUON
from kernelsearch.verify.judge import poison_value
from kernelsearch.worker.isolation.sandbox import WorkerLimits
from kernelsearch.worker.judging.candidate_launch import (
    CandidateLaunch,
    describe_shape,
    find_inputs,
    name_line,
    run_launcher,
)
from kernelsearch.worker.launcher import tensors
from kernelsearch.worker.launcher.arguments import tensors_in
from kernelsearch.worker.launcher.standin import fill_with_poison
from kernelsearch.worker.messages.jobs import UNDEFINED, Interpret, Ran

WORDS = {OutOfBounds: Word.MEMORY, Race: Word.RACE, EndlessLoop: Word.TIMEOUT}
ROWS = 6
"""Rows of a large output that are drawn."""
LIMITS = WorkerLimits(cpu_s=600)  # a backstop: the driver's wall clock ends a job long before
_ELEMENTS = {"fp16": "f16", "fp32": "f32", "fp64": "f64", "u1": "i1", "u64": "i64"}
"""What TTIR calls the types of a signature, where that differs."""


class CompileFailure(Exception):
    """The compiler refuses a function at a launch's specialisation, in its own words."""


def preload() -> None:
    """Prepares what every job needs, once, before forking."""
    import triton.compiler
    import triton.experimental.gluon
    from torch.fx.experimental import symbolic_shapes  # noqa: F401  (half a second, at the first meta tensor)

    triton.language.core  # noqa: B018
    torch.set_num_threads(1)


def handle(job: Interpret) -> tuple[Ran, ...]:
    """Runs each case, up to the first that fails."""
    runs: list[Ran] = []
    for number in range(len(job.shapes)):
        runs.append(_run_case(job, number))
        if runs[-1].verdict is not None:
            break
    return tuple(runs)


def answer_failure(job: Any, message: str, trace: str) -> Any:
    return (Ran(verdict=Verdict(Word.CRASH, "run", message, detail={"trace": trace})),)


def _run_case(job: Interpret, number: int) -> Ran:
    """One launcher call, whose launches are evaluated whole."""
    c, shape = job.candidate, job.shapes[number]
    values = [tensors.unpack(value) for value in job.inputs[number]]
    inputs = find_inputs(job.path, shape, c.target, values)
    suspects: list[str] = []
    reached: set[Any] = set()
    ran: set[Any] = set()

    def execute(launch: CandidateLaunch) -> None:
        if 0 in launch.step.grid:
            return
        compiled, blocks, choices = _compile(launch, c.target.capability)
        buffers, args = bind_arguments(launch, inputs)
        run = GridRun(compiled, buffers, args, launch.step.grid, _order(job.order), job.order == UNDEFINED)
        try:
            with torch._C.DisableTorchFunction(), _disable_current_modes():  # the launcher's stand-ins are not ours
                run.run()
        except Fault as fault:
            raise _Located(fault, launch) from None
        suspects.append(buffers.suspect)
        reached.update(block for runs, block in run.met & blocks if not runs and (True, block) in blocks)
        ran.update(block for runs, block in run.met & blocks if runs)
        for line, sides in choices.items():
            for block, side in sides:
                if (line, True) in run.met or (line, False) in run.met:
                    reached.add(block)
                if (line, side) in run.met:
                    ran.add(block)

    about = describe_shape(job.path, shape, c.target)
    try:
        outputs = run_launcher(job.path, c, shape, values, execute, job.num_sms)
    except LaunchError as error:
        return Ran(verdict=Verdict(Word.STATIC, "launch", str(error)))
    except (Unsupported, UnknownForm) as error:
        return Ran(verdict=Verdict(Word.STATIC, NOT_EVALUATED, f"cannot be evaluated here: {error}", detail=about))
    except CompileFailure as error:
        return Ran(verdict=Verdict(Word.COMPILE, "compile", str(error), detail=about))
    except _Located as error:
        own = job.path if c.kernel.digest == c.seed.digest else ""
        return Ran(verdict=error.to_verdict(about, own))
    if any(tensors.has_gap_changed(v) for v in values):
        reason = "wrote between the rows of an input whose rows lie apart"
        return Ran(verdict=Verdict(Word.MEMORY, "run", reason, detail=about))
    packed = tuple(tensors.pack(o) for o in outputs), tuple(tensors.pack(v) for v in values)
    suspect = next((text for text in suspects if text), "")
    seed = job.sampled[number] if job.sampled else 0
    looked_at = tuple(tensors.pack(_draw_rows(o, seed)) for o in outputs) if seed else ()
    return Ran(*packed, suspect=suspect, written=looked_at, reached=frozenset(reached), ran=frozenset(ran))


def _draw_rows(output: torch.Tensor, seed: int) -> torch.Tensor:
    """True in the rows of a large output that are compared: the first, the last, some drawn, and unwritten ones."""
    mask = torch.zeros(output.shape, dtype=torch.bool)
    if not output.dim() or not len(output):
        return mask.fill_(True)
    poison = poison_value(output.dtype)
    blank = torch.isnan(output) if output.dtype.is_floating_point else output == poison
    unwritten = blank.reshape(len(output), -1).any(1).nonzero().flatten()[:ROWS].tolist()
    drawn = random.Random(seed).sample(range(len(output)), min(ROWS, len(output)))
    mask[[0, len(output) - 1, *drawn, *unwritten]] = True
    return mask


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


def _order(order: str) -> str:
    return "forward" if order == UNDEFINED else order


def _compile(launch: CandidateLaunch, arch: int) -> Any:
    """What a launch runs: with launch options that change no result left out, so that fewer are compiled."""
    spec = specialise(launch.step, launch.fact, launch.plan.scratch)
    kept = tuple((n, v) for n, v in spec.options if n not in ("num_warps", "num_stages", "num_ctas", "maxnreg"))
    if launch.kernel.language == GLUON:
        raise Unsupported("Gluon")
    return _compile_once(launch.kernel.code, launch.kernel.digest, replace(spec, options=kept), arch)


@lru_cache(maxsize=256)
def _compile_once(code: str, digest: str, spec: Specialisation, arch: int) -> Any:
    """A compiled function, its marks, and by line the sides of its conditional expressions. Raises CompileFailure."""
    text = make_ttir(code, digest, spec, arch)
    if isinstance(text, BuildFailure):
        raise CompileFailure(text.message)
    choices = list_choices(_parse(code))
    module = read_module(text, INVENTED)
    compiled = CompiledKernel(
        module, lambda op: read_mark(op.text) if op.name == "tt.print" else None, frozenset(choices)
    )
    every = (op for func in module.functions.values() for op in func.walk() if op.name == "tt.print")
    return compiled, {mark for op in every if (mark := read_mark(op.text)) is not None}, choices


@lru_cache(maxsize=64)
def _parse(code: str) -> ast.Module:
    return ast.parse(code)


def bind_arguments(launch: CandidateLaunch, inputs: frozenset[int]) -> tuple[Storages, list[Any]]:
    """The buffers of a launch's arguments, and the value of each parameter in order; inputs must not be written."""
    spec = dict(specialise(launch.step, launch.fact, launch.plan.scratch).signature)
    places: dict[int, int] = {}
    buffers = Storages([])
    for name, tensor in tensors_in(launch.args).items():
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
