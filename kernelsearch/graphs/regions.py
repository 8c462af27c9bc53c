"""Finds the regions of a compiled graph: ordinary operations between products, attention and library calls.

A region is convex, so that it can be one call. It has no random numbers, no mutation and no sums in an undefined order
(`index_put`, `scatter_add`). Views cost nothing: they belong to no region. What a region reads through views it reads
where these begin, and a view of its results is made of them after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch._inductor.lowering import fallbacks, lowerings
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupport
from torch.utils.flop_counter import flop_registry

UNORDERED = ("index_put", "scatter_add", "scatter_reduce", "_unsafe_masked_index_put_accumulate", "index_add")
"""Operations whose sums have no order: their results differ from call to call."""
FALLBACKS = frozenset(fallbacks)
"""Operations that Inductor calls a library for; it adds others while it compiles, which regions may not depend on."""
LEAST = 2  # operations of a region; a single one runs at the memory's speed as it is


@dataclass(frozen=True)
class GraphRegion:
    """Operations of a graph, in its order: inside are those with their views, inputs what they read, outputs what is
    read of them by others."""

    inside: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


def is_view(node: Node) -> bool:
    target = node.target
    if target is getitem:
        return is_view(node.all_input_nodes[0])
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    return any(r.alias_info is not None and not r.alias_info.is_write for r in target._schema.returns)


def is_fusible(node: Node) -> bool:
    """Whether Inductor writes a kernel for it, one that may be fused with others."""
    target = node.target
    if target is getitem:
        return is_fusible(node.all_input_nodes[0])
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    name = target.overloadpacket.__name__
    excluded = target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags
    unknown = name.startswith(("inductor_", "fma")) and target.namespace == "prims"
    if excluded or unknown or name in UNORDERED or target not in lowerings or target in FALLBACKS:
        return False
    values = node.meta.get("val")
    values = values if isinstance(values, (tuple, list)) else [values]
    return target.overloadpacket not in flop_registry and all(isinstance(v, torch.Tensor) for v in values)


class _Fusible(OperatorSupport):
    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        return is_view(node) or is_fusible(node)


def find_regions(module: GraphModule) -> list[GraphRegion]:
    """The regions of a graph, in its order."""
    order = {node: number for number, node in enumerate(module.graph.nodes)}
    partitions = CapabilityBasedPartitioner(module, _Fusible(), allows_single_node_partition=True).propose_partitions()
    parts = (part for p in partitions for part in _split(sorted(p.nodes, key=order.__getitem__)))
    found = [_close(part, order) for part in parts if sum(n.target is not getitem for n in part) >= LEAST]
    return sorted((r for r in found if r.inputs and r.outputs), key=lambda r: order[r.inside[0]])


def _split(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """The operations of a partition, in parts that hang together; what only reads the same does not."""
    group = {node: node for node in nodes if not is_view(node)}

    def find(node: Node) -> Node:
        while group[node] is not node:
            node = group[node]
        return node

    for node in group:
        for source in node.all_input_nodes:
            while is_view(source):
                source = source.all_input_nodes[0]
            if source in group:
                group[find(node)] = find(source)
    parts: dict[Node, list[Node]] = {}
    for node in group:
        parts.setdefault(find(node), []).append(node)
    yield from parts.values()


def _close(inner: Sequence[Node], order: dict[Node, int]) -> GraphRegion:
    """The region of these operations with the views between them."""
    own, views, inputs = set(inner), set[Node](), dict[Node, None]()

    def take(node: Node) -> None:
        while node.target is torch.ops.aten.alias.default:
            views.add(node)
            node = node.all_input_nodes[0]
        base, chain = node, []
        while is_view(base) and base not in views:
            chain.append(base)
            base = base.all_input_nodes[0]
        if base in own or base in views:
            views.update(chain)
            inputs.update(dict.fromkeys(s for v in chain for s in v.all_input_nodes[1:]))
            return
        while not _is_dense(node) and is_view(node) and any(_is_dense(v) for v in [*chain, base]):
            views.add(node)  # a permuted tensor is read as it lies in memory
            inputs.update(dict.fromkeys(node.all_input_nodes[1:]))
            node = node.all_input_nodes[0]
        inputs[node] = None

    for node in inner:
        for source in node.all_input_nodes:
            if source not in own:
                take(source)
    inside = sorted(own | views, key=order.__getitem__)
    tensors = [n for n in inner if isinstance(n.meta.get("val"), torch.Tensor)]
    outputs = [n for n in tensors if any(_is_read(user, own, views) for user in n.users)]
    return GraphRegion(tuple(inside), tuple(n for n in inputs if n not in own and n not in views), tuple(outputs))


def _is_read(user: Node, own: set[Node], views: set[Node]) -> bool:
    """Whether a user of a region's node, or of a view of it, is outside."""
    if user in own:
        return False
    return not is_view(user) or any(_is_read(next_user, own, views) for next_user in user.users)


def _is_dense(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_contiguous()
