"""Makes a kernel of Inductor's readable, and free of its runtime: one function of plain Triton."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count

from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import content_digest
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import drop_unread, terms
from kernelsearch.propose.inductor.product_text import flatten_product

RENAMED = {
    "triton_helpers.maximum": "tl.maximum",
    "triton_helpers.minimum": "tl.minimum",
    "triton_helpers.max2": "tl.max",
    "triton_helpers.min2": "tl.min",
    "triton_helpers.any": "any_of",
    "triton_helpers.prod": "product",
    "triton_helpers.welford_reduce": "welford_add",
    "triton_helpers.welford_combine": "welford_merge",
    "triton_helpers.welford": "welford_along",
    "triton_helpers.online_softmax_combine": "online_add",
    "triton_helpers.online_softmax_combine_with_sum": "online_merge",
    "triton_helpers.online_softmax_reduce": "online_along",
    "triton_helpers.max_with_index": "max_and_index",
    "triton_helpers.min_with_index": "min_and_index",
    "triton_helpers.maximum_with_index": "larger_and_index",
    "triton_helpers.minimum_with_index": "smaller_and_index",
    "triton_helpers.select_one": "pick_one",
    "triton_helpers.div_floor_integer": "divide_down",
    "triton_helpers.remainder_integer": "modulo",
}
"""Inductor's helpers and what stands for them: functions of `tl`, or those of `analysis/device_functions.py`."""

IN_TL = frozenset("abs ceil cos erf exp exp2 floor fma log log2 rsqrt sigmoid sin sqrt".split())
"""Functions of libdevice and of Inductor's `tl_math` that `tl` has under the same name."""


BLOCKS = re.compile(r"[XYZ]BLOCK|R\d_BLOCK")
_LONG = re.compile(r"\b_triton_helper_fn_\w{40,}")
"""Names of all operations of a scan's function, which may be longer than a kernel's names may be."""
_NUMEL = re.compile(r"([xyz]|r\d_)numel")


class NotConvertible(ValueError):
    """Inductor's text has something that a task file cannot hold; the message says what, as a clause."""


@dataclass(frozen=True)
class KernelText:
    """A kernel as plain Triton. functions has its own and those that Inductor defined beside it, by name.

    parameters are those of Inductor's launch, in its order. whole maps a block that holds a row as a whole to the
    parameter with the row's length, so that a launcher can choose it. changed are its parameters that it both reads and
    writes. given are constexprs, and their first values, that kernels of one file have together.
    """

    name: str
    functions: Mapping[str, str]
    parameters: tuple[str, ...]
    blocks: tuple[str, ...]
    whole: Mapping[str, str] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    given: Mapping[str, int] = field(default_factory=dict)


def read_kernel(source: str, name: str, new_name: str, renamed: Mapping[str, str]) -> KernelText:
    """Rewrites the kernel of this name. renamed maps its parameters to better names. Raises NotConvertible."""
    source = _LONG.sub(lambda found: f"combine_{content_digest(found[0])[:8]}", source)
    defined = [n for n in parse_python(source).body if isinstance(n, ast.FunctionDef)]
    kernel = next(f for f in defined if f.name == name)
    parameters = tuple(a.arg for a in kernel.args.args)
    whole = _take_whole_rows(kernel)
    signature = re.search(r"'signature': \{(.*?)\}", source)
    numbers = set(re.findall(r"'(\w+)': '(?!\*|constexpr)\w+'", signature.group(1) if signature else ""))
    sizes = {p for p in parameters if p in numbers or _NUMEL.fullmatch(p)}
    kernel.name = new_name
    for function in defined:
        function.decorator_list = [parse_python("triton.jit", mode="eval").body]
        _Plain(sizes if function is kernel else set()).visit(function)
    _simplify(kernel)
    flat = flatten_product(kernel)
    if flat is not kernel:
        defined[defined.index(kernel)] = kernel = flat
        _simplify(kernel)
    mutated = re.search(r"'mutated_arg_names': \[(.*?)\]", source)
    changed = re.findall(r"'(\w+)'", mutated.group(1) if mutated else "")
    positions = [parameters.index(p) for p in changed if p in parameters]
    _rename(kernel, renamed)
    _share_addresses(kernel)
    changed = [kernel.args.args[i].arg for i in positions]
    texts = {f.name: ast.unparse(ast.fix_missing_locations(f)) for f in defined if f is not kernel}
    texts[new_name] = ast.unparse(ast.fix_missing_locations(kernel))
    blocks = tuple(a.arg for a in kernel.args.args if BLOCKS.fullmatch(a.arg))
    return KernelText(new_name, texts, parameters, blocks, whole, tuple(changed))


def _take_whole_rows(kernel: ast.FunctionDef) -> dict[str, str]:
    """Makes blocks that Inductor fixed for one length constexprs; returns them with the length's parameter."""
    parameters = {a.arg for a in kernel.args.args}
    static = {t.id for n in kernel.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    whole = {}
    for node in list(kernel.body):
        match node:
            case ast.AnnAssign(target=ast.Name(id=block)) if block.startswith("R") and BLOCKS.fullmatch(block):
                length = f"{block.removesuffix('BLOCK').lower()}numel"
                if length in parameters and length not in static:
                    kernel.body.remove(node)
                    kernel.args.args.append(ast.arg(block, tree.expression("tl.constexpr")))
                    whole[block] = length
    return whole


class _Plain(ast.NodeTransformer):
    """Replaces Inductor's helpers, and what Triton takes for a constexpr only."""

    def __init__(self, sizes: set[str]) -> None:
        self.sizes = set(sizes)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.targets[0], ast.Name) and self._is_size(node.value):
            self.sizes.add(node.targets[0].id)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        node.keywords = [k for k in node.keywords if ast.unparse(k.value) != "'evict_last'"]  # no seed may have it
        if name == "triton_helpers.promote_to_tensor":
            return node.args[0]
        if name in ("online_add", "online_merge", "online_along"):
            node.args.pop()  # whether exponentials may be less exact
        if isinstance(node.func, ast.Attribute) and node.func.attr == "broadcast_to":
            value, shape = (
                node.args if name == "tl.broadcast_to" else (node.func.value, ast.List(node.args, ast.Load()))
            )
            if self._is_size(value):  # it may be a constant, of which no block is made but by `full`
                return ast.Call(tree.expression("tl.full"), [shape, value, tree.expression("tl.int64")], [])
            return ast.Call(tree.expression("tl.broadcast_to"), [value, shape], [])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and self._is_size(node.func.value):
            return ast.Call(parse_python("tl.cast", mode="eval").body, [node.func.value, *node.args], [])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        library, function = node.value.id if isinstance(node.value, ast.Name) else "", node.attr
        name = f"{library}.{function}"
        if library in ("libdevice", "tl_math") and function in IN_TL:
            name = f"tl.{function}"
        elif library == "triton_helpers":
            if name not in RENAMED and name != "triton_helpers.promote_to_tensor":
                raise NotConvertible(f"it needs Inductor's own {function}")
            name = RENAMED.get(name, name)
        elif library == "tl_math":
            name = f"libdevice.{function}"
        else:
            self.generic_visit(node)
            return node
        return parse_python(name, mode="eval").body

    def _is_size(self, node: ast.AST) -> bool:
        """True for an expression of sizes only, which Triton makes a constexpr where it is 1."""
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        arithmetic = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.expr_context)
        return bool(names) and all(isinstance(n, arithmetic) for n in ast.walk(node)) and set(names) <= self.sizes


def _simplify(kernel: ast.FunctionDef) -> None:
    """Writes names and float constants that are bound once in the place of their copies; drops what nobody reads."""
    while True:
        bound = _count_bindings(kernel)
        copies: dict[str, ast.expr] = {}
        for node in ast.walk(kernel):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other)) if bound[name] == 1:
                    if bound[other] == 1:
                        copies.setdefault(name, node.value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if bound[name] == 1:
                    constant = _read_constant(value)
                    if constant is not None and not _has_attributes(kernel, name):
                        copies.setdefault(name, constant)
        copies = {n: v for n, v in copies.items() if not (isinstance(v, ast.Name) and v.id in copies)}
        before = len(list(tree.all_statements(kernel.body)))
        kernel.body = [tree.substitute(s, copies) for s in kernel.body]
        drop_unread(kernel.body)
        if not copies and len(list(tree.all_statements(kernel.body))) == before:
            return


def _count_bindings(kernel: ast.FunctionDef) -> Counter[str]:
    """How often each name is bound: as a parameter, by an assignment, by a loop."""
    found = Counter(a.arg for a in kernel.args.args)
    found.update(n.id for n in ast.walk(kernel) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return found


def _read_constant(value: ast.expr) -> ast.expr | None:
    """The number of `tl.full([1, 1], NUMBER, tl.float32)`; arithmetic with it is the same with the plain number."""
    match value:
        case ast.Call(func=ast.Attribute(attr="full"), args=[ast.List(elts=sizes), number, kind]):
            if all(isinstance(s, ast.Constant) and s.value == 1 for s in sizes) and ast.unparse(kind) == "tl.float32":
                return number
        case ast.Call(func=ast.Attribute(attr="full"), args=[ast.Attribute(attr="shape"), ast.Constant() as number, _]):
            return number
    return None


def _has_attributes(kernel: ast.FunctionDef, name: str) -> bool:
    """True if something is read of the name that a number lacks, or if it is stored."""
    for node in ast.walk(kernel):
        match node:
            case ast.Attribute(value=ast.Name(id=read)) if read == name:
                return True
            case ast.Call(func=ast.Attribute(attr="store" | "broadcast_to" | "reduce"), args=args):
                if any(isinstance(a, ast.Name) and a.id == name for a in args):
                    return True
    return False


def _rename(kernel: ast.FunctionDef, names: Mapping[str, str]) -> None:
    """Renames parameters; a name that the body has already stays as it is."""
    taken = {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name)} | {a.arg for a in kernel.args.args}
    names = {old: new for old, new in names.items() if new not in taken}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)


def _share_addresses(kernel: ast.FunctionDef) -> None:
    """Loads that are some elements apart, as in a window, have one address: an instruction adds a constant itself.

    It is the lowest of them, so that no element's number becomes larger than it was.
    """
    taken = tree.reads(kernel) | tree.writes(kernel) | {a.arg for a in kernel.args.args}
    for block in tree.blocks(kernel.body):
        found: dict[tuple[str, ...], list[tuple[ast.stmt, ast.Call, int]]] = {}
        for stmt in (s for s in block if isinstance(s, ast.Assign)):
            for call in tree.calls(stmt, "load"):
                match call.args[0]:
                    case ast.BinOp(ast.Name(pointer), ast.Add(), index):
                        parts = terms(index)
                        rest = sorted(f"{sign} * ({tree.text_of(t)})" for sign, t in parts if not _is_integer(t))
                        apart = sum(sign * t.value for sign, t in parts if _is_integer(t))  # type: ignore[attr-defined]
                        found.setdefault((pointer, *rest), []).append((stmt, call, apart))
        for (pointer, *_), loads in found.items():
            lowest = min(loads, key=lambda load: load[2])
            if lowest[2] == max(apart for *_, apart in loads):
                continue
            stem = pointer.removesuffix("_ptr")
            name = next(n for n in chain([f"{stem}_at"], (f"{stem}_at{i}" for i in count(2))) if n not in taken)
            taken.add(name)
            value = tree.text_of(lowest[1].args[0])
            for _, call, apart in loads:
                more = apart - lowest[2]
                call.args[0] = tree.expression(f"{name} + {more}" if more else name)
            block[block.index(loads[0][0]) : block.index(loads[0][0])] = tree.statements(f"{name} = {value}")


def _is_integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)
