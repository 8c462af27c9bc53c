"""What parts of a step cost: by bytes and flops (estimated), or measured on a GPU.

Without a GPU a part takes its floor times a factor that was measured once for parts of its kind (an H100, torch 2.11:
nine fused kernels, matrix products of 4096 and attention, `studies/measurement`), and the time of a kernel's launch.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from kernelsearch.graphs.regions import GraphRegion, is_fusible, is_view
from kernelsearch.graphs.task_text import NotWritable, RegionTask, hint_of
from kernelsearch.graphs.watch import WatchedGraph
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.timing.events import Flush, take_samples

OVER_FLOOR = {"region": 1.37, "other": 1.37, "product": 1.07, "attention": 1.28}
"""Times over floors of torch.compile's kernels and of the library's."""
ATTENTION = ("attention", "flex_", "sdpa")
REPLAYS = 7


def count_bytes(nodes: Sequence[Any]) -> int:
    """The bytes of the tensors of nodes, each once."""
    return sum(_count(v) * v.element_size() for v in _tensors(dict.fromkeys(nodes)))


def _tensors(nodes: Iterable[Any]) -> list[torch.Tensor]:
    return [v for n in nodes for v in tree_leaves(n.meta.get("val")) if isinstance(v, torch.Tensor)]


def _count(value: torch.Tensor) -> int:
    """The elements of a tensor that lie in memory: one that is expanded has fewer."""
    total = 1
    for size, stride in zip(value.shape, value.stride(), strict=True):
        total *= hint_of(size) if hint_of(stride) else 1
    return total


def count_region(region: GraphRegion) -> tuple[int, int]:
    """(Bytes that a region must read and write, its floating-point operations)."""
    flops = sum(max(map(_elements, [n, *n.all_input_nodes])) for n in region.inside if not is_view(n))
    return count_bytes(region.inputs) + count_bytes(region.outputs), flops


def _elements(node: Node) -> int:
    value = node.meta.get("val")
    return _count(value) if isinstance(value, torch.Tensor) else 0


def find_floor_us(moved: int, flops: int, target: Target, dtype: torch.dtype | None = None) -> float:
    """The least time of so many bytes and flops: on tensor cores where a product's dtype is given."""
    tflops = target.fp32_tflops
    if dtype is not None:
        tflops = {4: target.tf32_tflops, 8: target.fp32_tflops / 2}.get(dtype.itemsize, target.tensor_tflops)
    return max(moved / target.bandwidth_gbps / 1e3, flops / tflops / 1e6)


def estimate_rest(graph: WatchedGraph, target: Target) -> dict[str, float]:
    """Microseconds of what is in no region, by kind: product, attention, other."""
    inside = {node for region, _ in graph.regions for node in region.inside}
    total = dict.fromkeys(("product", "attention", "other"), 0.0)
    for node in graph.nodes:
        if node in inside or is_view(node) or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if first := _tensors([node])[:1]:
            with suppress(NotWritable):  # a size that only a run knows
                kind, flops = _count_flops(node, node.target)
                dtype = first[0].dtype if kind != "other" else None
                floor = find_floor_us(count_bytes([node, *node.all_input_nodes]), flops, target, dtype)
                total[kind] += target.launch_us + OVER_FLOOR[kind] * floor
    return total


def _count_flops(node: Node, target: torch._ops.OpOverload) -> tuple[str, int]:
    name = target.overloadpacket.__name__
    if any(word in name for word in ATTENTION):
        shapes = [[hint_of(s) for s in v.shape] for v in _tensors(node.all_input_nodes) if v.dim() == 4]
        backward = "backward" in name
        if len(shapes) < 3 + backward:
            return "attention", 0
        if backward:
            return "attention", sdpa_backward_flop_count(*shapes[:1], *_same_heads(shapes[1:4]))
        return "attention", sdpa_flop_count(*_same_heads(shapes[:3]))
    counter = flop_registry.get(target.overloadpacket)
    if counter is None:
        return ("other" if is_fusible(node) else "product" if "rnn" in name else "other"), 0
    args, kwargs, out = tree_map_only(Node, lambda n: n.meta.get("val"), (node.args, node.kwargs, node.meta["val"]))
    return "product", hint_of(counter(*args, **kwargs, out_val=out))


def _same_heads(shapes: Sequence[list[int]]) -> list[list[int]]:
    """The shapes of q, k and v with the heads of q for each: grouped queries share what they read, not the work."""
    return [[shapes[0][0], shapes[0][1], *shape[2:]] for shape in shapes]


# ---------------------------------------------------------------- on a GPU


def time_calls(call: Callable[[], Any], count: int = REPLAYS, warm: int = 2) -> list[float]:
    """Microseconds of single calls by the device's events, after some that warm up."""
    times = []
    for number in range(count + warm):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        if number >= warm:
            times.append(1000 * start.elapsed_time(end))
    return times


def measure_graph(graph: WatchedGraph) -> dict[str, float]:
    """Microseconds of a graph's call as a whole (`step`), and of its kernels by kind."""
    with torch.no_grad():
        inputs = graph.copy_inputs()
        step = statistics.median(time_calls(lambda: graph.run(list(inputs))))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            graph.run(graph.copy_inputs())
            torch.cuda.synchronize()
    found = dict.fromkeys(("product", "attention", "fused", "other"), 0.0)
    for event in profile.key_averages():
        found[name_kind(event.key)] += float(event.self_device_time_total)
    return {"step": step, **found}


def name_kind(kernel: str) -> str:
    """The kind of a GPU kernel by its name."""
    lower = kernel.lower()
    if kernel.startswith("triton_") and not kernel.startswith("triton_tem"):
        return "fused"
    if any(word in lower for word in ("flash", "fmha", "attention", "sdpa", "flex")):
        return "attention"
    words = ("gemm", "nvjet", "cutlass", "gemv", "splitk", "conv", "wgrad", "dgrad", "triton_tem", "matmul", "rnn")
    return "product" if any(word in lower for word in words) else "other"


def measure_region(task: RegionTask, sizes: dict[str, int], device: str = "cuda") -> float:
    """Microseconds of a region as torch.compile runs it by itself, the L2 cache flushed."""
    scope = task.load()
    with torch.device(device):
        inputs = scope["get_inputs"](**sizes)
    torch._dynamo.reset()  # it may take functions without a file for one that changes, which it compiles a few times
    with torch.no_grad():
        call = torch.compile(scope["reference"], dynamic=False)
        return statistics.median(take_samples(call, [tuple(inputs)], Flush()).times_us)
