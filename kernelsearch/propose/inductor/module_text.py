"""Reads the module that Inductor writes: its kernels, and the host's statements that allocate and launch."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelsearch.core.parsing import parse_python
from kernelsearch.propose.inductor import attention
from kernelsearch.propose.inductor.kernel_text import NotConvertible

GRIDS = {
    "Grid1D": "(triton.cdiv({xnumel}, meta['XBLOCK']),)",
    "Grid2D": "(triton.cdiv({xnumel}, meta['XBLOCK']), triton.cdiv({ynumel}, meta['YBLOCK']))",
    "Grid2DWithYZOverflow": "(triton.cdiv({xnumel}, meta['XBLOCK']), "
    "min(triton.cdiv({ynumel}, meta['YBLOCK']), 65535), triton.cdiv(triton.cdiv({ynumel}, meta['YBLOCK']), 65535))",
    "Grid3D": "(triton.cdiv({xnumel}, meta['XBLOCK']), triton.cdiv({ynumel}, meta['YBLOCK']), "
    "triton.cdiv({znumel}, meta['ZBLOCK']))",
    "BatchMatmulGrid3D": "(triton.cdiv({znumel}, meta['ZBLOCK']), triton.cdiv({ynumel}, meta['YBLOCK']), "
    "triton.cdiv({xnumel}, meta['XBLOCK']))",
}
"""Inductor's kinds of grids as a launcher's expression."""
_SKIPPED = re.compile(
    r"args\.clear|torch\.cuda\.set_device|(raw_)?stream\d+ =|assert_size_stride|assert_alignment|"
    r"pass$|(\w+) = \2$|\w+ = \w+\.size\(\)$"
)


class LibraryCallsOnly(NotConvertible):
    """There is no kernel in Inductor's module."""


_RANDOM = re.compile(r"rand|seed|bernoulli|dropout")


@dataclass(frozen=True)
class KernelRun:
    """A launch of a kernel: its arguments as expressions, in the order of the kernel's parameters."""

    kernel: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Allocation:
    """A tensor that the host makes. strides are None where it is contiguous."""

    name: str
    shape: str
    strides: str | None
    dtype: str


@dataclass(frozen=True)
class ModuleText:
    """Inductor's module. kernels are sources by name; grids are by kernel.

    arguments are the host's names for the inputs; sizes are (name, expression); steps are launches, allocations, and
    other statements as text; results are expressions.
    """

    kernels: Mapping[str, str]
    grids: Mapping[str, str]
    arguments: tuple[str, ...]
    sizes: tuple[tuple[str, str], ...]
    steps: tuple[KernelRun | Allocation | str, ...]
    results: tuple[str, ...]


def read_module(text: str, numbers: Collection[int] = (), attends: bool = False) -> ModuleText:
    """Reads Inductor's module; numbers are the positions of inputs that are Python numbers. Raises NotConvertible.

    attends: attention is a kernel, without a source here; else a library call.
    """
    tree = parse_python(text)
    kernels = dict(_find_kernels(tree))
    if attends and attention.OP in text:
        kernels[attention.KERNEL] = ""
    if not kernels:
        called = dict.fromkeys(re.findall(r"(?:extern_kernels|torch\.ops|aten)\.([\w.]+)\(", text))
        if not called:
            raise NotConvertible("it returns inputs as they are, or views of them: nothing is computed")
        raise LibraryCallsOnly(f"it is library calls only ({', '.join(called)})")
    call = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call"), None)
    if call is None:
        raise NotConvertible("Inductor's module has no call")
    reader = _Host(kernels, numbers, attends)
    for statement in _flatten(call.body):
        reader.read(statement)
    grids = {name: _find_grid(source) for name, source in kernels.items()}
    return ModuleText(kernels, grids, reader.arguments, tuple(reader.sizes), tuple(reader.steps), reader.results)


def _find_kernels(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"), attr=kind), args=args),
            ):
                if kind != "triton":
                    raise NotConvertible(f"Inductor writes {kind} code for a part of it")
                yield name, ast.literal_eval(args[1])


def _find_grid(source: str) -> str:
    if not source:
        return attention.GRID
    found = re.search(r"'grid_type': '(\w+)'", source)
    kind = found.group(1) if found else "none"
    if kind not in GRIDS:
        raise NotConvertible(f"a kernel has Inductor's grid {kind}")
    return GRIDS[kind]


def _flatten(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.With):
            yield from _flatten(node.body)
        else:
            yield node


class _Host(ast.NodeTransformer):
    """Collects the statements of `call`."""

    def __init__(self, kernels: Mapping[str, str], numbers: Collection[int], attends: bool) -> None:
        self.kernels, self.positions, self.attends = kernels, numbers, attends
        self.numbers: tuple[str, ...] = ()
        self.arguments: tuple[str, ...] = ()
        self.sizes: list[tuple[str, str]] = []
        self.steps: list[KernelRun | Allocation | str] = []
        self.results: tuple[str, ...] = ()
        self.numels: dict[str, ast.expr] = {}

    def read(self, node: ast.stmt) -> None:
        match node:
            case ast.Delete():
                return
            case ast.Assign(targets=[target], value=ast.Name(id="args")):
                elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                self.arguments = tuple(ast.unparse(e) for e in elements)
                self.numbers = tuple(self.arguments[i] for i in self.positions)
                return
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Subscript(value=ast.Name(id=size), slice=ast.Constant(value=int(axis))),
            ) if size.endswith("_size"):
                self.sizes.append((name, f"{size.removesuffix('_size')}.shape[{axis}]"))
                return
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.endswith("numel"):
                self.numels[name] = self.visit(value)
                return
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if attention.is_attention(call):
                self.generic_visit(call)
                if not self.attends:
                    self.steps.append(f"{name} = {attention.write_call(call)}")
                    return
                for step in attention.list_launch(name, call):
                    self.steps.append(step if isinstance(step, str) else KernelRun(attention.KERNEL, step))
                return
            case ast.Return(value=ast.Tuple(elts=elements) | ast.List(elts=elements)):
                self.results = tuple(ast.unparse(self.visit(e)) for e in elements)
                return
        if _SKIPPED.match(ast.unparse(node)):
            return
        if read := self._read_step(self.visit(node)):
            self.steps.append(read)

    def _read_step(self, node: ast.stmt) -> KernelRun | Allocation | str:
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=kernel), attr="run"), args=args)):
                return KernelRun(kernel, tuple(map(ast.unparse, args)))
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=function), args=[shape, strides, dtype])
            ) if function.startswith("empty_strided"):
                contiguous = _is_contiguous(shape, strides)
                kept = None if contiguous else ast.unparse(strides)
                return Allocation(name, ast.unparse(shape), kept, ast.unparse(dtype))
        text = ast.unparse(node)
        return "" if _SKIPPED.match(text) else text

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.numels.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name == "copy_if_misaligned":
            return node.args[0]
        if name.endswith(".item") and name.removesuffix(".item") in self.numbers:
            return node.func.value  # type: ignore[attr-defined]
        if name == "reinterpret_tensor":
            return ast.Call(parse_python("torch.as_strided", mode="eval").body, node.args, node.keywords)
        if name.startswith("extern_kernels."):
            function = name.removeprefix("extern_kernels.")
            path = "torch.ops.aten.convolution" if function == "convolution" else f"torch.{function}"
            node.func = parse_python(path, mode="eval").body
        if name.startswith("aten.") and not _RANDOM.search(name):
            node.func = parse_python(f"torch.ops.{name}", mode="eval").body
        elif name.partition(".")[0] in ("aten", "inductor_ops"):
            raise NotConvertible(f"{name} makes random numbers" if _RANDOM.search(name) else f"it needs {name}")
        return node


def _is_contiguous(shape: ast.expr, strides: ast.expr) -> bool:
    """True if each stride is the product of the later sizes, compared as polynomials."""
    import sympy

    try:
        symbols = {n.id: sympy.Symbol(n.id) for e in (shape, strides) for n in ast.walk(e) if isinstance(n, ast.Name)}
        sizes, steps = (sympy.sympify(ast.unparse(e), locals=symbols) for e in (shape, strides))
    except (sympy.SympifyError, TypeError, ValueError):
        return False
    expected = sympy.Integer(1)
    for size, step in zip(reversed(sizes), reversed(steps), strict=True):
        if size != 1 and sympy.expand(step - expected) != 0:
            return False
        expected *= size
    return True
