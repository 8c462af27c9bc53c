"""Puts kernels in the place of regions, with the layouts that the graph expects. What is not replaced stays Inductor's.

In a graph of fixed sizes a kernel's launches are traced, and Inductor writes them between its own. Elsewhere, and where
torch cannot trace them (tensor descriptors, Gluon), they are one operator of torch's. If its inputs turn out at run
time to have other sizes or strides than those that were judged, it runs the region as torch.compile compiles it.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import getitem
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.pattern_matcher import stable_topological_sort
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from kernelsearch.graphs.regions import GraphRegion, find_regions
from kernelsearch.graphs.task_text import NotWritable, RegionTask, write_task

NAMESPACE = "kernelsearch_regions"
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_OPERATORS: dict[str, Any] = {}
Layouts = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
Say = Callable[[str], object]


def copy_module(module: GraphModule) -> GraphModule:
    """A copy to compile, since the compiler changes what it is given."""
    copied = GraphModule(module, copy.deepcopy(module.graph))
    copied.meta.update(module.meta)
    return copied


class RegionPass(CustomGraphPass):
    """A pass of Inductor over the regions of each graph; without an identity, so that nothing of it is cached.

    What is kept for later must be of a copy: the passes that follow take nodes of the graph itself apart.
    """

    def __init__(
        self,
        act: Callable[[GraphModule, list[tuple[GraphRegion, RegionTask]]], None],
        identity: Any = None,
        on_copy: bool = False,
    ) -> None:
        self.act, self.identity, self.on_copy = act, identity, on_copy

    def uuid(self) -> Any:
        return self.identity

    def __call__(self, graph: torch.fx.Graph) -> None:
        owner = graph.owning_module
        assert owner is not None  # Inductor's graphs are those of modules
        module = copy_module(owner) if self.on_copy else owner
        tasks = []
        for region in find_regions(module):
            with suppress(NotWritable, TypeError, ValueError):  # what cannot be a task stays torch.compile's
                tasks.append((region, write_task(region)))
        self.act(module, tasks)


def layouts_of(tensors: Sequence[torch.Tensor]) -> Layouts:
    """Shape and strides of each; the stride of an axis of one element says nothing."""
    return tuple((tuple(t.shape), tuple(s if n != 1 else 1 for n, s in zip(t.shape, t.stride()))) for t in tensors)


def list_results(result: Any) -> list[Any]:
    """The results of a call: one, or several as a tuple or a list."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


@dataclass(frozen=True)
class RegionKernel:
    """A kernel for a region: identity is that of its source and configs, judged are the layouts of inputs that it runs
    at; reference is the region itself; traceable is a `triton_op` of it, which raises where it cannot be traced."""

    region: str
    identity: str
    call: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: int
    outputs: int
    judged: frozenset[Layouts]
    traceable: Callable[..., Any] | None = None

    @classmethod
    def of_task(cls, region: str, task: Any, shapes: Collection[str], identity: str) -> RegionKernel:
        """A package's task as the kernel of a region, at these of its timed shapes. Raises LookupError without any."""
        judged = set()
        for case in (c for c in task.cases if c.key in shapes):
            with torch.device("meta"):
                inputs = task.make(**case.params)
            judged.add(layouts_of(inputs))
        if not judged:
            raise LookupError("its package has none of the sizes at which its kernel is faster")
        count = len(list_results(task.reference(*inputs)))

        def trace(*inputs: torch.Tensor) -> Any:
            return task.operator(*inputs, False)

        return cls(region, identity, task.public, task.reference, len(inputs), count, frozenset(judged), trace)

    @property
    def key(self) -> tuple[str, str, list[Layouts]]:
        """What decides what a call runs."""
        return self.region, self.identity, sorted(self.judged)

    @cached_property
    def operator(self) -> Any:
        """torch's operator: made once a process, when the record is loaded, because cached code calls it by name."""
        name = f"r{self.region}_{hashlib.sha256(repr(self.key).encode()).hexdigest()[:8]}"
        if name not in _OPERATORS:
            given = ", ".join(f"Tensor x{i}" for i in range(self.inputs))
            back = "Tensor" if self.outputs == 1 else f"({', '.join(['Tensor'] * self.outputs)})"
            tag = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
            _LIBRARY.define(f"{name}({given}) -> {back}", tags=(tag, torch.Tag.pt2_compliant_tag))
            _LIBRARY.impl(name, _Dispatch(self), "CompositeExplicitAutograd")
            torch.library.register_fake(f"{NAMESPACE}::{name}", self.reference, lib=_LIBRARY)
            _OPERATORS[name] = getattr(getattr(torch.ops, NAMESPACE), name).default
        return _OPERATORS[name]

    def trace(self, inputs: Sequence[torch.Tensor], wanted: Layouts) -> GraphModule | None:
        """Its launches at these (fake) inputs as a graph without mutation; None where it must be one operator."""
        if self.traceable is None or layouts_of(inputs) not in self.judged:
            return None
        try:
            with detect_fake_mode(inputs) or nullcontext(), torch.no_grad():
                graph = make_fx(dispatch_functionalize(self.traceable, FunctionalTensorMode()))(*inputs)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):  # a refusal of the package's, or of torch's
            return None
        results = [n.meta["val"] for n in list_results(graph.graph.output_node().args[0])]
        return graph if layouts_of(results) == wanted else None


class _Dispatch:
    """What the operator does: the kernel where it was judged, and its results as the graph expects them to lie."""

    def __init__(self, kernel: RegionKernel) -> None:
        self.kernel = kernel
        self.layouts: dict[Layouts, Layouts] = {}
        self.fallback = torch.compile(kernel.reference, dynamic=True)

    def __call__(self, *inputs: torch.Tensor) -> Any:
        given = layouts_of(inputs)
        if given not in self.kernel.judged:
            return self.fallback(*inputs)
        result = self.kernel.call(*inputs)
        outputs = list_results(result)
        expected = self.layouts.get(given) or self._expect(inputs, given)
        for i, (output, (shape, stride)) in enumerate(zip(outputs, expected, strict=True)):
            if output.stride() != stride:
                outputs[i] = torch.empty_strided(shape, stride, dtype=output.dtype, device=output.device).copy_(output)
        return tuple(outputs) if isinstance(result, (tuple, list)) else outputs[0]

    def _expect(self, inputs: Sequence[torch.Tensor], given: Layouts) -> Layouts:
        shapes = [torch.empty_strided(*layout, dtype=x.dtype, device="meta") for x, layout in zip(inputs, given)]
        self.layouts[given] = layouts_of(list_results(self.kernel.reference(*shapes)))
        return self.layouts[given]


@dataclass
class PlacedKernels:
    """A record of kernels as a pass: which regions it replaced, and where it could not."""

    kernels: Mapping[str, RegionKernel]
    say: Say = lambda text: None
    replaced: list[str] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def make_pass(self) -> RegionPass:
        """The pass; its identity changes with the record, so that cached graphs are right."""
        for kernel in self.kernels.values():
            kernel.operator  # noqa: B018 - made now
        identity = sorted(kernel.key for kernel in self.kernels.values())
        return RegionPass(self, hashlib.sha256(repr((NAMESPACE, 1, identity)).encode()).hexdigest())

    def __call__(self, module: GraphModule, tasks: list[tuple[GraphRegion, RegionTask]]) -> None:
        now: dict[Node, Node] = {}
        for region, task in tasks:
            kernel = self.kernels.get(task.digest)
            why = refuse(kernel, region, task) if kernel else ""
            if kernel and not why:
                _replace(module, region, task, kernel, now)
                self.replaced.append(task.digest)
            elif kernel and (line := f"region {task.digest} stays torch.compile's: {why}") not in self.told:
                self.told.add(line)
                self.say(line)
        if now:
            stable_topological_sort(module.graph)
            module.graph.eliminate_dead_code()
            module.graph.lint()
            module.recompile()


def refuse(kernel: RegionKernel, region: GraphRegion, task: RegionTask) -> str:
    """Why a kernel does not fit a region of a graph; empty where it does."""
    values = [n.meta["val"] for n in task.inputs]
    dynamic = any(isinstance(n, torch.SymInt) for v in values for n in (*v.shape, *v.stride()))
    if dynamic and task.fixed:
        return "a size that varies is fixed in its kernel"
    if not dynamic and layouts_of(values) not in kernel.judged:
        return f"its sizes here ({', '.join(f'{k}={v}' for k, v in task.sizes.items())}) were not judged"
    if (len(values), len(region.outputs)) != (kernel.inputs, kernel.outputs):
        return "it has other inputs"
    with detect_fake_mode(values) or nullcontext():
        found = list_results(kernel.reference(*values))
    wanted = [n.meta["val"] for n in region.outputs]
    if any(f.dtype != w.dtype or f.shape != w.shape or f.stride() != w.stride() for f, w in zip(found, wanted)):
        return "its results lie otherwise in this graph"
    return ""


def _replace(
    module: GraphModule, region: GraphRegion, task: RegionTask, kernel: RegionKernel, now: dict[Node, Node]
) -> None:
    graph, outputs = module.graph, task.outputs
    given, values = [now.get(n, n) for n in task.inputs], [n.meta["val"] for n in outputs]
    if traced := kernel.trace([n.meta["val"] for n in task.inputs], layouts_of(values)):
        with graph.inserting_before(region.inside[-1].next):
            made = list_results(_copy_nodes(graph, traced, given))
        for output, new in zip(outputs, made, strict=True):
            output.replace_all_uses_with(new)
            now[output] = new
        return
    with graph.inserting_after(region.inside[-1]):
        call = graph.call_function(kernel.operator, tuple(given))
    call.meta["val"] = tuple(values) if len(values) > 1 else values[0]
    for i, output in enumerate(outputs):
        new = call
        if len(outputs) > 1:
            with graph.inserting_after(call):
                new = graph.call_function(getitem, (call, i))
            new.meta["val"] = output.meta["val"]
        output.replace_all_uses_with(new)
        now[output] = new


def _copy_nodes(graph: torch.fx.Graph, traced: GraphModule, given: Sequence[Node]) -> Any:
    """Copies a traced graph's operations into another; what it returns. Launches need their inputs' exact strides."""
    copied = dict(zip(traced.graph.find_nodes(op="placeholder"), given, strict=True))
    for node in traced.graph.nodes:
        if node.op == "call_function":
            copied[node] = new = graph.node_copy(node, copied.__getitem__)
            if node.target is triton_kernel_wrapper_functional:
                new.meta["eager_input_vals"] = map_arg(((), node.kwargs), lambda n: n.meta["val"])
    return map_arg(traced.graph.output_node().args[0], copied.__getitem__)
