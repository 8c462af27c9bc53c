"""A Llama for tests, compiled by AOTAutograd with a pass of ours and without Inductor's code."""

from itertools import count

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

from kernelsearch.graphs.replace import RegionKernel, layouts_of
from kernelsearch.graphs.watch import RegionPass
from models_whole.llama import Llama

_NUMBERS = count()


def make_backend(act):
    """Inductor's graphs, run operation by operation: a pass of ours sees them as it does inside Inductor."""

    def compile_graph(module, examples):
        act(module.graph)
        module.graph.lint()
        return make_boxed_func(module.forward)

    return aot_autograd(
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        decompositions=select_decomp_table,
        partition_fn=min_cut_rematerialization_partition,
    )


def run_step(model, act, lengths=(96,), batch=3, **options):
    """The loss and the gradients of steps at these lengths, compiled once."""
    torch._dynamo.reset()
    compiled, found = torch.compile(model, backend=make_backend(act), **options), []
    for length in lengths:
        torch.manual_seed(length)
        tokens = torch.randint(0, 256, (batch, length))
        model.zero_grad()
        loss = compiled(tokens, tokens.roll(-1, 1))
        loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in model.parameters())]
    return found


def see_regions(model, **options):
    """The pairs of regions and tasks of a step's graphs, in the order of the graphs."""
    seen = []
    found = run_step(model, RegionPass(lambda module, tasks: seen.extend(tasks)), **options)
    return seen, found


def make_model(layers=1, **sizes):
    torch.manual_seed(0)
    return Llama(layers, **sizes).to(torch.bfloat16)


def stand_in(task, calls, identity="", sizes=None):
    """A region's own operations in the place of a kernel; calls notes its digest at each call."""
    scope = {}
    exec(task.write(task.sizes), scope)

    def call(*inputs):
        calls.append(task.digest)
        return scope["reference"](*inputs)

    judged = frozenset(layouts_of(scope["get_inputs"](**one)) for one in sizes or [task.sizes])
    counts, identity = (len(task.inputs), len(task.outputs)), identity or f"stand-in {next(_NUMBERS)}"
    return RegionKernel(task.digest, identity, call, scope["reference"], *counts, judged)


def stand_ins(seen, calls):
    """Those of all regions, by digest, at all sizes that were seen."""
    sizes = {}
    for _, task in seen:
        sizes.setdefault(task.digest, []).append(task.sizes)
    return {task.digest: stand_in(task, calls, sizes=sizes[task.digest]) for _, task in seen}
