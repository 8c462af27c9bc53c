"""A region as a task file: its operations as plain torch, its sizes as parameters, and the digest of both.

Isomorphic regions have one digest, whatever their nodes are called and whatever their sizes are. A size is a parameter
`d0`, `d1`, ... where the region means the same at any other (tried without data), and a number where it does not;
products of sizes, and sizes that are equal, stay tied.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from math import prod
from operator import getitem
from typing import Any, cast

import torch
from torch.fx import Node

from kernelsearch.graphs.regions import GraphRegion

FACTORS = 4  # sizes whose product another size may be
LEAST_PRODUCT = 64  # smaller sizes are products of others by accident
ODD = 37  # a size that divides nothing
CODES = 100  # integers that index nothing are below this
MOST_INPUTS = 63  # an operator of torch's takes 64 arguments, and that of a package has one of its own
INDEX_AT = {"embedding": 1, "gather": 2, "scatter": 2, "index_select": 2, "index": 1}
"""Where operations take integers that index their first tensor."""
VERSION = torch.__version__.partition("+")[0]
Number = Any  # an integer, or a symbol of a dynamic graph


class NotWritable(Exception):
    """A region that is no task: why."""


@dataclass(frozen=True)
class RegionTask:
    """A region as a task: digest of its text, inputs in the order of the reference's parameters, sizes seen here.

    fixed says that a size that varies in the graph is a number in the text.
    """

    digest: str
    text: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    sizes: Mapping[str, int]
    operations: tuple[str, ...]
    fixed: bool = False

    def write(self, sizes: Mapping[str, int]) -> str:
        """The text with these sizes as its defaults."""
        return self.text.format(**sizes)

    def load(self) -> dict[str, Any]:
        """The names that its text defines, reference and get_inputs, at the sizes that were seen here."""
        scope: dict[str, Any] = {}
        exec(compile(self.write(self.sizes), "<region>", "exec"), scope)  # our own text of a graph of this process
        return scope


def number_of(size: Number) -> Number:
    """A size as an integer, or as the expression of a dynamic graph."""
    if isinstance(size, torch.SymInt):
        expression = size.node.expr
        return int(expression) if expression.is_Integer else expression
    return int(size)


def hint_of(size: Number) -> int:
    """A size as it was seen. Raises NotWritable for one that is known only when the graph runs."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    if size.node.hint is None:
        raise NotWritable("a size is known only when it runs")
    return int(size.node.hint)


@dataclass
class _Sizes:
    """The sizes that are parameters: by number, in the order in which they are seen; and what was seen there.

    fixed says that one that varies was written as a number.
    """

    names: dict[Number, str] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    fixed: bool = False

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor], frozen: frozenset[Number]) -> _Sizes:
        seen = {number_of(n): hint_of(n) for t in tensors for n in t.shape}
        seen = {n: hint for n, hint in seen.items() if n not in frozen and hint > 1}
        pairs = {a * b for a, b in combinations_with_replacement(seen, 2) if seen[a] * seen[b] >= LEAST_PRODUCT}
        simple = [n for n in seen if n not in pairs]
        names = {n: f"d{i}" for i, n in enumerate(simple)}
        return cls(names, {name: seen[n] for n, name in names.items()})

    def write(self, size: Number) -> str:
        """An integer of the graph as an expression. Raises NotWritable."""
        number = number_of(size)
        if number in self.names:
            return self.names[number]
        if number in (0, 1, -1):
            return str(number)
        for count in range(2, FACTORS + 1) if hint_of(size) >= LEAST_PRODUCT else ():
            for factors in combinations_with_replacement(self.names, count):
                if prod(factors) == number:
                    return " * ".join(self.names[f] for f in factors)
        self.fixed |= not isinstance(number, int)
        return str(hint_of(size))  # right for this size alone


@dataclass
class _Writer:
    """Names nodes from the outputs backwards, and writes a line for each operation."""

    region: GraphRegion
    sizes: _Sizes
    names: dict[Node, str] = field(default_factory=dict)
    inputs: list[Node] = field(default_factory=list)
    lines: dict[Node, str] = field(default_factory=dict)

    def visit(self, node: Node) -> str:
        if node in self.names:
            return self.names[node]
        if node not in self.region.inside:
            value = node.meta.get("val")
            if isinstance(value, (int, torch.SymInt)):
                return self.sizes.write(value)
            if not isinstance(value, torch.Tensor):
                raise NotWritable(f"it reads a {type(value).__name__} that is neither a tensor nor a size")
            self.inputs.append(node)
            self.names[node] = f"x{len(self.inputs) - 1}"
            return self.names[node]
        if node.target is torch.ops.aten.alias.default:
            return self.names.setdefault(node, self.visit(node.all_input_nodes[0]))
        if node.target is getitem:
            text = f"{self.visit(node.all_input_nodes[0])}[{node.args[1]}]"
        else:
            schema = cast(
                torch._ops.OpOverload, node.target
            )._schema  # its types call sizes plain integers, its text does not
            sizes = re.findall(r"SymInt[\[\]?\d]* (\w+)", str(schema))
            given = [self.write(a, p.name in sizes) for a, p in zip(node.args, schema.arguments, strict=False)]
            given += [f"{k}={self.write(v, k in sizes)}" for k, v in node.kwargs.items()]
            text = f"torch.ops.{node.target}({', '.join(given)})"
        self.names[node] = f"v{len(self.lines)}"
        self.lines[node] = text
        return self.names[node]

    def write(self, value: Any, is_size: bool) -> str:
        if isinstance(value, Node):
            return self.visit(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self.write(v, is_size) for v in value)}]"
        if isinstance(value, torch.SymInt) or (type(value) is int and is_size):
            return str(value) if type(value) is int and value >= 2**31 else self.sizes.write(value)
        if isinstance(value, torch.device):
            return "x0.device"
        return repr(value)


def write_task(region: GraphRegion) -> RegionTask:
    """The task of a region. Raises NotWritable."""
    tensors = [n.meta["val"] for n in region.inputs if isinstance(n.meta.get("val"), torch.Tensor)]
    if len({t.device for t in tensors}) > 1:
        raise NotWritable("its inputs are on several devices")
    frozen: frozenset[Number] = frozenset()
    writer = _write(region, tensors, frozen)
    frozen = frozenset(n for n, name in writer.sizes.names.items() if not _varies(writer, {name}))
    writer = _write(region, tensors, frozen)
    if not _varies(writer, set(writer.sizes.values)):
        writer = _write(region, tensors, frozenset(number_of(n) for t in tensors for n in t.shape))
    return _finish(writer)


def _write(region: GraphRegion, tensors: Sequence[torch.Tensor], frozen: frozenset[Number]) -> _Writer:
    first = _Writer(region, _Sizes())
    for output in region.outputs:
        first.visit(output)
    ordered = [n.meta["val"] for n in first.inputs]  # sizes are named in this order
    writer = _Writer(region, _Sizes.of(ordered, frozen))
    for output in region.outputs:
        writer.visit(output)
    return writer


def _varies(writer: _Writer, changed: set[str]) -> bool:
    """Whether the region means the same where these sizes have other values: all shapes change as they should."""
    values = writer.sizes.values
    if not changed:
        return True
    for change in (lambda n: 2 * n, lambda n: ODD if n != ODD else ODD + 4):
        scope: dict[str, Any] = {"torch": torch, "inf": float("inf"), "nan": float("nan")}
        scope |= {name: change(n) if name in changed else n for name, n in values.items()}
        try:
            for node, name in [(n, writer.names[n]) for n in writer.inputs] + list(writer.names.items()):
                shape = _shape_of(node, writer.sizes)
                if node in writer.lines:
                    scope[name] = eval(writer.lines[node], scope)  # operations of torch's own, without data
                elif name not in scope:
                    size = eval(shape, scope)
                    scope[name] = torch.empty(size, dtype=node.meta["val"].dtype, device="meta")
                if shape and tuple(scope[name].shape) != eval(shape, scope):
                    return False
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
            return False
    return True


def _shape_of(node: Node, sizes: _Sizes) -> str:
    """A tensor's shape as a tuple in Python; empty for other values."""
    value = node.meta["val"]
    return _tuple(value.shape, sizes) if isinstance(value, torch.Tensor) else ""


def _tuple(numbers: Sequence[Number], sizes: _Sizes) -> str:
    return f"({', '.join(map(sizes.write, numbers))}{',' * (len(numbers) == 1)})"


def _finish(writer: _Writer) -> RegionTask:
    sizes, region = writer.sizes, writer.region
    if not writer.inputs:
        raise NotWritable("it reads no tensor")
    if len(writer.inputs) > MOST_INPUTS:
        raise NotWritable(f"it reads {len(writer.inputs)} tensors, and an operator takes {MOST_INPUTS}")
    made = [_write_input(node, writer) for node in writer.inputs]
    names = [writer.names[n] for n in writer.inputs]
    body = [f"    {name} = {at}" for name, at in _find_sizes(writer)]
    body += [f"    {writer.names[node]} = {line}" for node, line in writer.lines.items()]
    back = ", ".join(writer.names[n] for n in region.outputs)
    body.append(f"    return {back if len(region.outputs) == 1 else f'({back})'}")
    operations = tuple(
        t.overloadpacket.__name__ for n in writer.lines if isinstance(t := n.target, torch._ops.OpOverload)
    )
    code = "\n".join(
        (
            "import torch\n",
            *(["from math import inf, nan\n"] if "inf" in "".join(body) or "nan" in "".join(body) else []),
            f"\ndef reference({', '.join(names)}):",
            *body,
            f"\n\ndef get_inputs({', '.join(f'{name}={{{name}}}' for name in sizes.values)}):",
            "    return [",
            *(f"        {line}," for line in made),
            "    ]\n",
        )
    )
    digest = hashlib.sha256(f"{VERSION}\n{code}".encode()).hexdigest()[:12]
    return RegionTask(digest, code, tuple(writer.inputs), region.outputs, dict(sizes.values), operations, sizes.fixed)


def _find_sizes(writer: _Writer) -> Iterator[tuple[str, str]]:
    """(A size's name, where the reference finds it), for those that its operations need."""
    body = " ".join(writer.lines.values())
    for number, name in writer.sizes.names.items():
        if re.search(rf"\b{name}\b", body):
            for node in writer.inputs:
                at = [i for i, n in enumerate(node.meta["val"].shape) if number_of(n) == number]
                if at:
                    yield name, f"{writer.names[node]}.shape[{at[0]}]"
                    break


def _write_input(node: Node, writer: _Writer) -> str:
    value, sizes = node.meta["val"], writer.sizes
    shape, kind = _tuple(value.shape, sizes), str(value.dtype)
    if value.dtype.is_floating_point:
        made = f"torch.randn({shape}, dtype={kind})"
    elif value.dtype == torch.bool:
        made = f"torch.randint(0, 2, {shape}).bool()"
    elif (axis := _find_scattered(node, writer)) is not None:  # at equal places any value may be the last
        sides = [_find_bound(node, writer) if a == axis else sizes.write(n) for a, n in enumerate(value.shape)]
        places = f"torch.rand({', '.join(sides)}).argsort({axis}).narrow({axis}, 0, {sizes.write(value.shape[axis])})"
        made = f"{places}.to({kind})"
    else:
        made = f"torch.randint(0, {_find_bound(node, writer)}, {shape}, dtype={kind})"
    if not value.is_contiguous():
        made = f"torch.empty_strided({shape}, {_write_strides(value, sizes)}, dtype={kind}).copy_({made})"
    return made


def _write_strides(value: torch.Tensor, sizes: _Sizes) -> str:
    """Strides as the products of the sizes that lie below each, where a tensor is only permuted."""
    strides: dict[int, str] = {}
    inner: list[Number] = []
    for axis in sorted(range(value.dim()), key=lambda a: (hint_of(value.stride(a)), hint_of(value.shape[a]))):
        if hint_of(value.stride(axis)) != prod(map(hint_of, inner)):
            return _tuple(value.stride(), sizes)
        strides[axis] = " * ".join(map(sizes.write, inner)) or "1"
        inner.append(value.shape[axis])
    return f"({', '.join(strides[a] for a in range(value.dim()))}{',' * (value.dim() == 1)})"


def _find_scattered(node: Node, writer: _Writer) -> int | None:
    """The axis along which an input is the places that `scatter` writes to; None for other inputs."""
    for user in writer.lines:
        target, args = user.target, cast(tuple[Any, ...], user.args)
        name = target.overloadpacket.__name__ if isinstance(target, torch._ops.OpOverload) else ""
        if name == "scatter" and len(args) > 2 and args[2] is node:
            return int(args[1]) % max(1, node.meta["val"].dim())
    return None


def _find_bound(node: Node, writer: _Writer) -> str:
    """What an integer input's values are below: the length of what they index."""
    derived, bounds = {node}, []
    for user in writer.lines:
        target, args = user.target, cast(tuple[Any, ...], user.args)
        name = target.overloadpacket.__name__ if isinstance(target, torch._ops.OpOverload) else ""
        at = INDEX_AT.get(name)
        given = [] if at is None or len(args) <= at else args[at]
        given = given if isinstance(given, (list, tuple)) else [given]
        for axis, index in enumerate(given):
            if index in derived and isinstance(index, Node):
                axis = axis if name == "index" else args[1] if name != "embedding" else 0
                bounds.append(args[0].meta["val"].shape[axis])
        value = user.meta.get("val")
        if isinstance(value, torch.Tensor) and not value.dtype.is_floating_point and value.dtype != torch.bool:
            derived |= {user} if derived & set(user.all_input_nodes) else set()
    return writer.sizes.write(min(bounds, key=hint_of)) if bounds else str(CODES)
