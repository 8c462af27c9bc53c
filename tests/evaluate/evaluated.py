"""Runs a kernel of a text in the evaluator, as a launch with these arguments would."""

from types import SimpleNamespace

import torch

from kernelsearch.compile.build import INVENTED, BuildFailure, make_ttir
from kernelsearch.core.types import DescriptorFact, LaunchFact, TensorFact
from kernelsearch.evaluate.buffers import Storages
from kernelsearch.evaluate.launch import CompiledKernel, GridRun
from kernelsearch.ir.text import read_module
from kernelsearch.kernel.launch import TRITON_DTYPES, LaunchStep, Passed, Plan, specialise
from kernelsearch.worker.judging.evaluated_launch import bind_arguments

HEAD = "import triton\nimport triton.language as tl\n"


def evaluate(body, args, constexprs, grid, *, order="forward", undefined=False, fresh=(), inputs=(), **how):
    """The buffers after a launch of `kernel` in a text; fresh and inputs name arguments."""
    grid = (*grid, 1, 1)[:3]
    module, buffers, values = prepare(body, args, constexprs, grid, fresh=fresh, inputs=inputs)
    GridRun(CompiledKernel(module, **how), buffers, values, grid, order, undefined).run()
    return buffers


def prepare(body, args, constexprs, grid, *, fresh=(), inputs=(), storages=Storages):
    """The module of a text, the buffers of a launch of `kernel`, and the values of its parameters."""
    facts = {name: _describe(value) for name, value in args.items()}
    step = LaunchStep("kernel", {n: Passed(n) for n in args}, constexprs, {}, grid)
    fact = LaunchFact("kernel", facts, {}, None)
    addresses = {n: v.untyped_storage().data_ptr() for n, v in args.items() if isinstance(v, torch.Tensor)}
    launch = SimpleNamespace(
        plan=Plan((step,)), step=step, fact=fact, args=args, fresh=frozenset(addresses[n] for n in fresh)
    )
    text = make_ttir(HEAD + body, "evaluated", specialise(step, fact, {}), 90)
    assert not isinstance(text, BuildFailure), text
    return read_module(text, INVENTED), *bind_arguments(launch, frozenset(addresses[n] for n in inputs), storages)


def _describe(value):
    if isinstance(value, torch.Tensor):
        return TensorFact(TRITON_DTYPES[str(value.dtype)[6:]], tuple(value.shape), value.stride())
    if hasattr(value, "base"):
        shape, strides = tuple(value.shape), tuple(value.strides)
        return DescriptorFact(TRITON_DTYPES[str(value.base.dtype)[6:]], shape, strides, True, tuple(value.block_shape))
    return value
