"""The seed as a kernel file: the task's live jit functions, made self-contained.

Decorators other than `@triton.jit` (with its literal flags) go; helper jit functions come along, from
wherever they were imported; names of `triton.language` become `tl.`, of libdevice `libdevice.`; literal globals become
`NAME = tl.constexpr(value)`. What a kernel file cannot hold is left as it is and said in a note:
the gate then refuses the seed's source, and the seed is tuned by numbers only.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import KernelInterface

from kernelsearch.core.errors import TaskError
from kernelsearch.core.parsing import parsed
from kernelsearch.kernel.language import JIT_FLAGS
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks.reach import innermost

LITERALS = (bool, int, float, str)


@dataclass(frozen=True)
class Seed:
    """The seed kernel and sentences for the user about what could not be carried over."""

    kernel: Kernel
    notes: tuple[str, ...] = ()


def extract(kernels: Mapping[str, Any]) -> Seed:
    """The seed of these live kernels by site name (`Task.kernels()`, narrowed to the sites that are launched).

    Raises TaskError when a kernel's source cannot be read.
    """
    work = _Extraction()
    for kernel in kernels.values():
        work.add(innermost(kernel))
    lines = ["import triton", "import triton.language as tl"]
    if any("libdevice." in text for text in work.texts.values()):
        lines.append("from triton.language.extra import libdevice")
    constants = [f"{name} = tl.constexpr({value!r})" for name, value in work.constants.items()]
    text = "\n".join([*lines, "", *constants, "", "", "\n\n".join(work.texts.values())])
    return Seed(Kernel.parse(text), tuple(work.notes))


@dataclass
class _Extraction:
    """What has been collected so far; texts are in the order in which they are defined, helpers first."""

    texts: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _names: dict[FunctionType, str] = field(default_factory=dict)

    def add(self, function: FunctionType) -> str:
        """Adds a function with all that it needs; the name that it has in the kernel file."""
        if function in self._names:
            return self._names[function]
        name = function.__name__
        while name in self._names.values():
            name += "_"
        self._names[function] = name
        source = _Source.of(function)
        changes = dict(_changes(source, self))
        self.texts[name] = source.rewritten(name, changes)
        return name

    def constant(self, name: str, value: Any) -> str:
        """A literal global under its own name, or under another when two modules use the name differently."""
        while name in self.constants and self.constants[name] != value:
            name += "_"
        self.constants[name] = value
        return name

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


@dataclass(frozen=True)
class _Source:
    """A function's text and tree; positions in the tree are positions in the text."""

    function: FunctionType
    text: str
    node: ast.FunctionDef

    @classmethod
    def of(cls, function: FunctionType) -> _Source:
        try:
            text = textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):
            raise TaskError(f"the source of kernel {function.__name__} cannot be read: define it in a file") from None
        node = parsed(text).body[0]
        if not isinstance(node, ast.FunctionDef):
            raise TaskError(f"kernel {function.__name__} must be a plain function")
        return cls(function, text, node)

    def rewritten(self, name: str, changes: Mapping[tuple[int, int, int, int], str]) -> str:
        """The text with the spans replaced, bearing this name, under `@triton.jit` and nothing else."""
        lines = [line.encode() for line in self.text.splitlines(keepends=True)]
        for (row, col, end_row, end_col), new in sorted(changes.items(), reverse=True):
            tail = lines[end_row - 1][end_col:]
            lines[row - 1 : end_row] = [lines[row - 1][:col] + new.encode() + tail]
        body = b"".join(lines[self.node.lineno - 1 :]).decode()
        if name != self.function.__name__:
            body = body.replace(f"def {self.function.__name__}", f"def {name}", 1)
        return f"@triton.jit{self._flags()}\n{body.rstrip()}\n"

    def _flags(self) -> str:
        """The literal flags of `@triton.jit(...)` that a kernel file may keep, as text."""
        for decorator in self.node.decorator_list:
            if isinstance(decorator, ast.Call) and (_chain(decorator.func) or ("",))[-1] == "jit":
                kept = [k for k in decorator.keywords if k.arg in JIT_FLAGS and _is_literal(k.value)]
                return f"({', '.join(f'{k.arg}={ast.unparse(k.value)}' for k in kept)})" if kept else ""
        return ""


def _span(node: ast.AST) -> tuple[int, int, int, int]:
    return (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)


def _changes(source: _Source, work: _Extraction) -> Iterator[tuple[tuple[int, int, int, int], str]]:
    """The spans of a function to replace, and with what."""
    function, node = source.function, source.node
    scope = {**vars(builtins), **function.__globals__, **inspect.getclosurevars(function).nonlocals}
    local = _local_names(node)
    for parameter in _parameters(node):
        if parameter.annotation is not None and not _device_annotation(parameter.annotation, scope):
            annotation = _span(parameter.annotation)
            yield (parameter.lineno, parameter.col_offset, *annotation[2:]), parameter.arg
    if node.returns is not None:
        yield from _without_returns(source)
    dropped = {
        id(n)
        for p in _parameters(node)
        if p.annotation is not None
        for n in ast.walk(p.annotation)
        if not _device_annotation(p.annotation, scope)
    }
    dropped |= {id(n) for n in ast.walk(node.returns)} if node.returns is not None else set()
    dropped |= {id(n) for d in node.decorator_list for n in ast.walk(d)}
    inside: set[int] = set()
    for item in ast.walk(node):
        if id(item) in dropped or id(item) in inside or isinstance(item, ast.JoinedStr):
            inside |= {id(n) for n in ast.walk(item)} if isinstance(item, ast.JoinedStr) else set()
            continue
        if not isinstance(item, (ast.Attribute, ast.Name)) or not isinstance(item.ctx, ast.Load):
            continue
        chain = _chain(item)
        if chain is None or chain[0] in local:
            continue
        new, length = _carried(chain, scope, work, function.__name__)
        inside |= {id(n) for n in ast.walk(item)}
        if new is not None and new != ".".join(chain[:length]):
            yield _prefix_span(item, len(chain) - length), new


def _carried(chain: tuple[str, ...], scope: Mapping[str, Any], work: _Extraction, where: str) -> tuple[str | None, int]:
    """(What a dotted name becomes, how many of its parts that replaces); None leaves it as it is."""
    value: Any = scope.get(chain[0], _ABSENT)
    for length in range(1, len(chain) + 1):
        if length > 1:
            value = getattr(value, chain[length - 1], _ABSENT)
        if value is _ABSENT:
            return None, length
        known = _language_name(value)
        if known is not None and not isinstance(value, ModuleType):
            return known, length
        if isinstance(value, KernelInterface):
            return work.add(innermost(value)), length
        if isinstance(value, tl.constexpr) and isinstance(value.value, LITERALS):
            return work.constant(chain[length - 1], value.value), length
        if isinstance(value, LITERALS):
            return work.constant(chain[length - 1], value), length
        if not isinstance(value, ModuleType):
            break
    if isinstance(value, ModuleType):
        return _language_name(value), len(chain)
    if chain[0] not in vars(builtins) and value is not None:
        work.note(f"the seed's {where} uses {'.'.join(chain)}, which a kernel file cannot hold")
    return None, len(chain)


_ABSENT = object()


def _language_name(value: Any) -> str | None:
    """How a kernel file says an object of Triton: `tl.load`, `libdevice.erf`, `triton.cdiv`; None for any other."""
    if value is triton:
        return "triton"
    if value is tl:
        return "tl"
    for prefix, module in _language_modules():
        if value is module:
            return prefix
        for name in (getattr(value, "__name__", None), getattr(value, "name", None)):
            if isinstance(name, str) and not isinstance(value, ModuleType) and vars(module).get(name) is value:
                return f"{prefix}.{name}"
    if isinstance(value, tl.dtype):
        same = [n for n, v in vars(tl).items() if isinstance(v, tl.dtype) and v == value]
        return f"tl.{same[0]}" if same else None
    return None


def _language_modules() -> list[tuple[str, ModuleType]]:
    modules = [("tl", tl), ("tl.math", tl.math), ("triton", triton)]
    for path in ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice"):
        module = _imported(path)
        if module is not None:
            modules.append(("libdevice", module))
    return modules


def _imported(path: str) -> ModuleType | None:
    value: Any = triton
    for part in path.split(".")[1:]:
        value = getattr(value, part, None)
    return value if isinstance(value, ModuleType) else None


def _is_literal(node: ast.expr) -> bool:
    return all(isinstance(n, (ast.Constant, ast.List, ast.Tuple, ast.Load)) for n in ast.walk(node))


def _chain(node: ast.AST) -> tuple[str, ...] | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else None


def _prefix_span(node: ast.AST, attributes_kept: int) -> tuple[int, int, int, int]:
    for _ in range(attributes_kept):
        node = node.value
    return _span(node)


def _parameters(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _local_names(node: ast.FunctionDef) -> set[str]:
    stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))}
    return stored | {p.arg for p in _parameters(node)}


def _device_annotation(annotation: ast.expr, scope: Mapping[str, Any]) -> bool:
    """Whether Triton reads an annotation: constexpr, its own types, a word, or Python's number types."""
    if isinstance(annotation, ast.Constant):
        return isinstance(annotation.value, str)
    chain = _chain(annotation)
    if chain is None:
        return False
    value = scope.get(chain[0])
    for part in chain[1:]:
        value = getattr(value, part, None)
    return value in (int, float, bool) or _language_name(value) is not None


def _without_returns(source: _Source) -> Iterator[tuple[tuple[int, int, int, int], str]]:
    """Cuts `-> annotation`, from the closing parenthesis to the colon."""
    row, col, end_row, end_col = _span(source.node.returns)
    line = source.text.splitlines()[row - 1].encode()
    arrow = line.rfind(b"->", 0, col)
    if arrow >= 0:
        yield (row, len(line[:arrow].rstrip()), end_row, end_col), ""
