"""Watches torch.compile in this process: every graph that it compiles, and what each was last called with.

The script needs no change: `compile_fx` gets another inner compiler, which is Inductor's with a pass of ours. The step
is what the compiled graphs do, each as often as the script called it for one call of the one that it called least.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._guards import TracingContext, tracing
from torch._inductor import compile_fx, config
from torch._prims_common import clone_preserve_strides
from torch.fx import GraphModule, Node

from kernelsearch.core.errors import TaskError
from kernelsearch.core.plugins import blame
from kernelsearch.graphs.regions import GraphRegion
from kernelsearch.graphs.replace import RegionPass, copy_module
from kernelsearch.graphs.task_text import RegionTask

SETTINGS = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")
"""Inductor's settings that a mode of torch.compile changes; a graph that is compiled once more has them too."""


@dataclass
class WatchedGraph:
    """A graph that was compiled: nodes and regions when the pass saw it, and the inputs of its last call."""

    direction: str
    module: GraphModule
    examples: Sequence[Any]
    options: Mapping[str, Any]
    patches: Mapping[str, Any]
    context: TracingContext | None
    nodes: list[Node] = field(default_factory=list)
    regions: list[tuple[GraphRegion, RegionTask]] = field(default_factory=list)
    inputs: list[Any] | None = None
    calls: int = 0
    times: int = 1
    """Calls for one of the graph that was called least, so that a layer counts as often as a step calls it."""
    run: Callable[[list[Any]], Any] = lambda inputs: ()

    @cached_property
    def mutates(self) -> bool:
        """Whether a call changes its inputs."""
        called = (n.target for n in self.module.graph.nodes if n.op == "call_function")
        return any(isinstance(t, torch._ops.OpOverload) and t._schema.is_mutable for t in called)

    def compile(self, act: RegionPass | None) -> Callable[[list[Any]], Any]:
        """The graph compiled once more, with a pass or as it is without us."""
        module, patches = copy_module(self.module), {**self.patches, "post_grad_custom_pre_pass": act}
        patches |= {"fx_graph_cache": False, "fx_graph_remote_cache": False}  # the pass must see it
        with tracing(self.context) if self.context else nullcontext(), config.patch(patches):
            return compile_fx.compile_fx_inner(module, self.examples, **self.options)

    def copy_inputs(self) -> list[Any]:
        """The inputs of its last call, to call it again; what it changes is copied."""
        kept = self.inputs or []
        if not self.mutates:
            return list(kept)
        return [clone_preserve_strides(x) if isinstance(x, torch.Tensor) else x for x in kept]


@contextmanager
def watch() -> Iterator[list[WatchedGraph]]:
    """A context in which every graph that torch.compile makes is added to the list, in the order of compilation."""
    found: list[WatchedGraph] = []
    original, inner = compile_fx.compile_fx, compile_fx.compile_fx_inner

    def compile_inner(module: GraphModule, examples: Sequence[Any], *rest: Any, **options: Any) -> Any:
        direction = "backward" if options.get("is_backward") else "forward"
        patches = {name: getattr(config, name) for name in SETTINGS}
        graph = WatchedGraph(direction, copy_module(module), examples, options, patches, TracingContext.try_get())

        def act(module: GraphModule, tasks: list[tuple[GraphRegion, RegionTask]]) -> None:
            graph.nodes += [n for n in module.graph.nodes if n.op == "call_function"]
            graph.regions += tasks

        with config.patch(post_grad_custom_pre_pass=RegionPass(act, on_copy=True)):
            compiled = inner(module, examples, *rest, **options)
        if not hasattr(compiled, "current_callable"):  # a graph without operations
            return compiled
        graph.run = run = compiled.current_callable

        def call(inputs: list[Any]) -> Any:
            graph.inputs, graph.calls = list(inputs), graph.calls + 1
            return run(inputs)

        compiled.current_callable = call
        found.append(graph)
        return compiled

    def compile_whole(model: Any, examples: Any, inner_compile: Any = compile_inner, **options: Any) -> Any:
        return original(model, examples, inner_compile=inner_compile, **options)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(compile_fx, "compile_fx", compile_whole))
        stack.enter_context(config.patch(fx_graph_cache=False, fx_graph_remote_cache=False))
        # a donated buffer is written over by the backward graph, which is called once more
        stack.enter_context(functorch_config.patch(donated_buffer=False, enable_autograd_cache=False))
        yield found


def run_script(script: str, arguments: Sequence[str]) -> list[WatchedGraph]:
    """Runs a script, or a module after `-m `, as `python` would, and returns the graphs that it called.

    What it prints goes to stderr: stdout is for what a command found. Raises TaskError where it fails or compiles
    nothing.
    """
    name = script.removeprefix("-m ")
    if name == script and not Path(script).is_file():
        raise TaskError(f"there is no file {script}")
    with (
        watch() as graphs,
        redirect_stdout(sys.stderr),
        mock.patch.multiple(sys, argv=[name, *arguments], path=sys.path[:]),
    ):
        counters.clear()
        sys.path.insert(0, str(Path(script).resolve().parent) if name == script else "")
        with blame(script, TaskError, "ends with an error"):
            try:
                run = runpy.run_path if name == script else runpy.run_module
                run(name, run_name="__main__")
            except SystemExit as done:
                if done.code not in (None, 0):
                    raise
    called = [g for g in graphs if g.calls]
    if not called:
        said = (text for kind in ("unimplemented", "graph_break") for text in counters.get(kind, ()))
        broken = " ".join(next(said, "").partition("\n\n")[0].split())
        why = f"torch.compile gives it up. {broken}" if broken else "it needs a torch.compile, and a call of its result"
        raise TaskError(f"{name} calls no compiled graph: {why}")
    for graph in called:
        graph.times = max(1, round(graph.calls / min(g.calls for g in called)))
    return called
