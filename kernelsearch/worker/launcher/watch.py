"""Refuses, while TorchInductor traces a reference, operations that no kernel can replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from kernelsearch.propose.inductor import attention
from kernelsearch.verify.dispatch import DispatchMode
from kernelsearch.worker.launcher.standin import replace_attributes

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


def may_be_faster(graph: torch.fx.GraphModule, precision: str) -> bool:
    """True if plain kernels may be faster than the library's for all products and attentions of a graph.

    They may with tensor cores: with 16 bits, or where the task's precision is less than float32's.
    """
    allowed = {torch.float16, torch.bfloat16} | ({torch.float32} if precision in ("tf32", "tf32x3") else set())
    found = []
    for node in graph.graph.nodes:
        name = node.target.name() if isinstance(node.target, torch._ops.OpOverload) else ""
        if name in _PRODUCTS:
            found.append(node.args[-1].meta["val"].dtype in allowed)
        elif attention.OP in name:
            q, _, v = (a.meta["val"] for a in node.args[:3])
            found.append(q.dtype in allowed and q.shape[3] == v.shape[3] <= attention.WIDEST_HEAD)
            found.append("attn_mask" not in node.kwargs)
    return bool(found) and all(found)


MOST_CONSTANTS = 64
"""Numbers of a tensor of constants that kernels choose from."""


class Refused(Exception):
    """The reference does something that no kernel can replace; the message says what."""


SPARSE = "has sparse tensors ({}): write it for dense ones"


class _Watch(DispatchMode):
    """Raises Refused for an operation of the reference that no kernel can replace, or that changes these storages."""

    def __init__(self, kept: frozenset[int]) -> None:
        super().__init__()
        self.kept = kept

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.name().removeprefix("aten::")
        if torch.Tag.nondeterministic_seeded in function.tags and "sdp" not in name and "dot_product" not in name:
            raise Refused(f"makes random numbers ({name}): its results cannot be compared")
        for taken, value in zip(function._schema.arguments, args, strict=False):
            if taken.alias_info is not None and taken.alias_info.is_write and self.kept & _list_storages(value):
                raise Refused(f"changes an input ({name}): change a copy, or name the input in MUTATES")
        try:
            results = function(*args, **(kwargs or {}))
        except RuntimeError as error:
            if len({x.device for x in _list_tensors((args, kwargs)) if x.ndim}) > 1:
                raise Refused(f"has tensors of two devices ({name}): make all with the device of an input") from error
            if "sparse" in name:  # where sizes are symbols, making one fails
                raise Refused(SPARSE.format(name)) from error
            raise
        for value in _list_tensors((args, kwargs, results)):
            if value.dtype.is_complex:
                raise Refused(f"has complex numbers ({name}), and Triton has none")
            if value.layout != torch.strided:
                raise Refused(SPARSE.format(name))
        sized = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
        if free_unbacked_symbols([x for x in tree_leaves(results) if isinstance(x, sized)]):
            raise Refused(f"depends on data ({name})")
        return results


def _list_tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def _list_storages(values: Any) -> frozenset[int]:
    return frozenset(x.untyped_storage()._cdata for x in _list_tensors(values))


def watch(function: Callable[..., Any], names: Sequence[str], mutates: bool) -> Callable[..., Any]:
    """The function, made to raise Refused where it does something that no kernel can replace.

    Its results are a tensor or a tuple of tensors. names are the inputs'; weights, `self.NAME`, may always change.
    """

    def refuse(tensor: Any) -> Any:
        raise Refused("depends on data")

    def call(*inputs: Any) -> Any:
        inputs_only = [x for x, name in zip(inputs, names, strict=True) if not (mutates or name.startswith("self."))]
        with (
            _Watch(_list_storages(inputs_only)),
            replace_attributes(FakeTensor, tolist=refuse),
        ):  # torch would make a symbol of each number
            try:
                results = function(*inputs)
            except RuntimeError as error:
                if "dynamo-optimized" not in str(error):
                    raise
                text = "is compiled by torch.compile: remove that, torch.compile is a baseline anyway"
                raise Refused(text).with_traceback(error.__traceback__) from error
        found = tuple(_list_tensors(results))
        if not mutates and not found:
            raise Refused("returns no tensor: nothing could be compared")
        return found[0] if len(found) == 1 else found

    return call


def _write_values(graph: torch.fx.Graph, value: torch.Tensor, device: torch.device) -> torch.fx.Node:
    """A tensor of constants as operations: by its place each element is one of them. Raises Refused."""
    if value.numel() > MOST_CONSTANTS:
        raise Refused(f"makes {value.numel()} constants: give them as an input")
    aten, shape = torch.ops.aten, list(value.shape)
    options: dict[str, Any] = {"dtype": value.dtype, "device": device}
    first, *others = value.flatten().tolist() or [0]
    chosen = graph.call_function(aten.full.default, (shape, first), options)
    if others:
        places = graph.call_function(aten.arange.default, (value.numel(),), {"device": device})
        places = graph.call_function(aten.view.default, (places, shape))
    for place, number in enumerate(others, 1):
        here = graph.call_function(aten.eq.Scalar, (places, place))
        number = graph.call_function(aten.full.default, ([], number), options)
        chosen = graph.call_function(aten.where.self, (here, number, chosen))
    return chosen


def inline_numbers(graph: torch.fx.GraphModule, device: str) -> None:
    """Replaces tensors that the reference makes from constants by the numbers: no input has them. Raises Refused.

    What begins with a Python number (`1 - alpha`), which is a tensor of the CPU, is computed in the kernels too;
    what they decide (`if alpha > 0`) is decided as for the task's own numbers.
    """
    for node in [n for n in graph.graph.nodes if n.target == torch.ops.aten._local_scalar_dense.default]:
        if not node.users:
            graph.graph.erase_node(node)
    numbers = [n for n in graph.graph.nodes if n.op == "placeholder" and n.meta["val"].device == torch.device("cpu")]
    for number in numbers:
        for node in [n for n in number.users if n.all_input_nodes[0] in numbers]:  # the first one's device is taken
            with graph.graph.inserting_before(node):
                options = {"dtype": number.meta["val"].dtype, "device": torch.device(device)}
                zero = graph.graph.call_function(torch.ops.aten.full.default, ([], 0), options)
                moved = graph.graph.call_function(torch.ops.aten.add.Tensor, (zero, number))
                node.replace_input_with(number, moved)
    for node in [n for n in graph.graph.nodes if n.op == "get_attr"]:
        value = getattr(graph, node.target)
        value = getattr(value, "constant", None) if isinstance(value, FakeTensor) else value
        if isinstance(value, torch.Tensor):
            with graph.graph.inserting_before(node):
                node.replace_all_uses_with(_write_values(graph.graph, value, torch.device(device)))
            graph.graph.erase_node(node)
            if all(n.target != node.target for n in graph.graph.nodes):
                delattr(graph, str(node.target))  # or it would be an input
    graph.recompile()
