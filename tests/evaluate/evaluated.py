"""Runs a kernel of a text in the evaluator, as a launch with these arguments would."""

from types import SimpleNamespace

import torch

from kernelsearch.compile.build import INVENTED, BuildFailure, make_ttir
from kernelsearch.core.types import DescriptorFact, LaunchFact, TensorFact
from kernelsearch.evaluate.launch import CompiledKernel, GridRun
from kernelsearch.ir.text import read_module
from kernelsearch.kernel.launch import TRITON_DTYPES, LaunchStep, Passed, Plan, specialise
from kernelsearch.worker.judging.evaluated_launch import bind_arguments

HEAD = "import triton\nimport triton.language as tl\n"


def evaluate(body, args, constexprs, grid, *, order="forward", undefined=False, fresh=(), inputs=()):
    """The buffers after a launch of `kernel` in a text; fresh and inputs name arguments."""
    facts = {name: _describe(value) for name, value in args.items()}
    step = LaunchStep("kernel", {n: Passed(n) for n in args}, constexprs, {}, (*grid, 1, 1)[:3])
    fact = LaunchFact("kernel", facts, {}, None)
    addresses = {n: v.untyped_storage().data_ptr() for n, v in args.items() if isinstance(v, torch.Tensor)}
    launch = SimpleNamespace(
        plan=Plan((step,)), step=step, fact=fact, args=args, fresh=frozenset(addresses[n] for n in fresh)
    )
    text = make_ttir(HEAD + body, "evaluated", specialise(step, fact, {}), 90)
    assert not isinstance(text, BuildFailure), text
    buffers, values = bind_arguments(launch, frozenset(addresses[n] for n in inputs))
    GridRun(CompiledKernel(read_module(text, INVENTED)), buffers, values, step.grid, order, undefined).run()
    return buffers


def _describe(value):
    if isinstance(value, torch.Tensor):
        return TensorFact(TRITON_DTYPES[str(value.dtype)[6:]], tuple(value.shape), value.stride())
    if hasattr(value, "base"):
        shape, strides = tuple(value.shape), tuple(value.strides)
        return DescriptorFact(TRITON_DTYPES[str(value.base.dtype)[6:]], shape, strides, True, tuple(value.block_shape))
    return value
