"""The seed as a kernel file: the task's live jit functions, made self-contained.

Decorators other than `@triton.jit` (with its literal flags) are removed; imported helper jit functions are copied in;
names of `triton.language` become `tl.`, of libdevice `libdevice.`; literal globals become `NAME = tl.constexpr(value)`,
but infinities and NaN stand in the code, where Triton knows `float`; what does nothing is left out (`idle_code.py`).
Code that a kernel file cannot hold stays as it is, with a note: the gate then refuses the seed's source, and only the
seed's numbers are tuned.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import Any, cast

import triton
import triton.language as tl
from triton.runtime.jit import KernelInterface

from kernelsearch.core.errors import TaskError
from kernelsearch.core.parsing import parse_python, read_dotted
from kernelsearch.kernel.language import JIT_FLAGS, MEMBERS
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks.idle_code import LITERALS, find_defaults, find_idle_statements, find_plainer
from kernelsearch.tasks.reach import unwrap_kernel

Span = tuple[int, int, int, int]
"""First line and column, last line and column; lines count from 1, columns are bytes."""


EVICTED = "evict_last is left out of the seed: what it keeps in L2 would speed up the kernel that is timed next"


@dataclass(frozen=True)
class Seed:
    """The seed kernel, and sentences for the user about code that a kernel file cannot hold."""

    kernel: Kernel
    notes: tuple[str, ...] = ()


def extract_seed(kernels: Mapping[str, Any]) -> Seed:
    """The seed of these live kernels by site name (`Task.kernels()`, narrowed to the sites that are launched).

    Raises TaskError when a kernel's source cannot be read.
    """
    work = _Extraction()
    for kernel in kernels.values():
        work.add(unwrap_kernel(kernel))
    functions = "\n\n".join(work.texts.values())
    lines = ["import triton", "import triton.language as tl"]
    if "libdevice." in functions:
        lines.append("from triton.language.extra import libdevice")
    constants = [f"{name} = tl.constexpr({value!r})" for name, value in work.constants.items()]
    return Seed(Kernel.parse("\n".join([*lines, "", *constants, "", "", functions])), tuple(work.notes))


@dataclass
class _Extraction:
    """The parts collected so far; texts are in the order in which they are defined, helpers first."""

    texts: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    _names: dict[FunctionType, str] = field(default_factory=dict)

    def add(self, function: FunctionType) -> str:
        """Adds a function with everything that it uses. Returns its name in the kernel file."""
        if function in self._names:
            return self._names[function]
        name = function.__name__
        while name in self._names.values():
            name += "_"
        self._names[function] = name
        source = _FunctionText.read(function)
        self.texts[name] = source.rewrite(name, dict(_find_changes(source, self)))
        return name

    def add_constant(self, name: str, value: Any) -> str:
        """Adds a literal global. Returns its name in the kernel file, a new one if two modules use it differently."""
        while name in self.constants and self.constants[name] != value:
            name += "_"
        self.constants[name] = value
        return name


@dataclass(frozen=True)
class _FunctionText:
    """A function's text and tree; positions in the tree are positions in the text."""

    function: FunctionType
    text: str
    node: ast.FunctionDef

    @classmethod
    def read(cls, function: FunctionType) -> _FunctionText:
        try:
            text = textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):
            raise TaskError(f"the source of kernel {function.__name__} cannot be read: define it in a file") from None
        node = parse_python(text).body[0]
        if not isinstance(node, ast.FunctionDef):
            raise TaskError(f"kernel {function.__name__} must be a plain function")
        return cls(function, text, node)

    def rewrite(self, name: str, changes: Mapping[Span, str]) -> str:
        """The text with the spans replaced and under this name, with no decorator but `@triton.jit`."""
        lines = [line.encode() for line in self.text.splitlines(keepends=True)]
        for (row, col, end_row, end_col), new in sorted(changes.items(), reverse=True):
            tail = lines[end_row - 1][end_col:]
            lines[row - 1 : end_row] = [lines[row - 1][:col] + new.encode() + tail]
        body = b"".join(lines[self.node.lineno - 1 :]).decode()
        if name != self.function.__name__:
            body = body.replace(f"def {self.function.__name__}", f"def {name}", 1)
        return f"@triton.jit{self._flags()}\n{body.rstrip()}\n"

    def span_of_lines(self, statement: ast.stmt) -> Span | None:
        """The whole lines of a statement; None if it shares a line with another."""
        row, col, end_row, end_col = _span(statement)
        lines = [line.encode() for line in self.text.splitlines(keepends=True)]
        before, after = lines[row - 1][:col].strip(), lines[end_row - 1][end_col:].strip()
        alone = not before and after[:1] in (b"", b"#")
        return (row, 0, end_row, len(lines[end_row - 1])) if alone else None

    def _flags(self) -> str:
        """The literal flags of `@triton.jit(...)` that a kernel file may keep, as text."""
        for decorator in self.node.decorator_list:
            if isinstance(decorator, ast.Call) and read_dotted(decorator.func)[-1:] == ("jit",):
                flags = [k for k in decorator.keywords if k.arg in JIT_FLAGS and _is_literal(k.value)]
                return f"({', '.join(f'{k.arg}={ast.unparse(k.value)}' for k in flags)})" if flags else ""
        return ""


def _span(node: ast.expr | ast.stmt) -> Span:
    return cast(Span, (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset))


def _find_changes(source: _FunctionText, work: _Extraction) -> Iterator[tuple[Span, str]]:
    """The spans of a function to replace, each with its new text."""
    function, node = source.function, source.node
    scope = {**vars(builtins), **function.__globals__, **inspect.getclosurevars(function).nonlocals}
    local = _local_names(node)
    skipped = [*node.decorator_list]
    for parameter in _parameters(node):
        if parameter.annotation is not None and not _is_device_annotation(parameter.annotation, scope):
            skipped.append(parameter.annotation)
            yield (parameter.lineno, parameter.col_offset, *_span(parameter.annotation)[2:]), parameter.arg
    if node.returns is not None:
        skipped.append(node.returns)
        yield from _cut_returns(source, node.returns)
    done = {id(n) for tree in skipped for n in ast.walk(tree)}
    name_of = partial(_name_of, scope=scope, local=local)
    for statement, new in find_idle_statements(node.body, name_of):
        done |= {id(n) for n in ast.walk(statement)}
        lines = None if new else source.span_of_lines(statement)
        yield (lines, "") if lines else (_span(statement), "pass")
    for item, new in (*find_defaults(function, node), *find_plainer(node, name_of)):
        if id(item) not in done:
            done |= {id(n) for n in ast.walk(item)}
            yield _span(item), new
        if isinstance(item, ast.Constant) and item.value == "evict_last":
            work.notes[EVICTED] = None
    for part in ast.walk(node):
        if id(part) in done:
            continue
        if isinstance(part, ast.JoinedStr):
            done |= {id(n) for n in ast.walk(part)}
        if not isinstance(part, (ast.Attribute, ast.Name)) or not isinstance(part.ctx, ast.Load):
            continue
        chain = read_dotted(part)
        if not chain or chain[0] in local:
            continue
        known, length = _translate(chain, scope, work, function.__name__)
        done |= {id(n) for n in ast.walk(part)}
        if known is not None and known != ".".join(chain[:length]):
            prefix: ast.expr = part
            for _ in range(len(chain) - length):
                prefix = cast(ast.Attribute, prefix).value
            yield _span(prefix), known


def _name_of(node: ast.expr, scope: Mapping[str, Any], local: set[str]) -> str:
    """The canonical name of what an expression calls (`tl.load`, `print`); empty for the user's own."""
    chain = read_dotted(node)
    if not chain or chain[0] in local:
        return ""
    value = scope.get(chain[0])
    if len(chain) == 1 and value is vars(builtins).get(chain[0], _ABSENT):
        return chain[0]  # by its name: Ray puts a function of its own in the place of print
    for part in chain[1:]:
        value = getattr(value, part, None)
    return value.__name__ if inspect.isbuiltin(value) or value is float else _language_name(value) or ""


def _translate(
    chain: tuple[str, ...], scope: Mapping[str, Any], work: _Extraction, where: str
) -> tuple[str | None, int]:
    """(New text of a dotted name, how many of its parts that replaces); None leaves the name as it is."""
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
            return work.add(unwrap_kernel(value)), length
        literal = value.value if isinstance(value, tl.constexpr) else value
        if isinstance(literal, float) and not math.isfinite(literal):
            return f'float("{literal}")', length
        if isinstance(literal, LITERALS):
            return work.add_constant(chain[length - 1], literal), length
        if not isinstance(value, (ModuleType, type)):
            break
    if isinstance(value, ModuleType):
        return _language_name(value), len(chain)
    if chain[0] not in vars(builtins) and value is not None:
        work.notes[f"the seed's {where} uses {'.'.join(chain)}, which a kernel file cannot hold"] = None
    return None, len(chain)


_ABSENT = object()


def _language_name(value: Any) -> str | None:
    """An object of Triton as a kernel file writes it: `tl.load`, `libdevice.erf`, `triton.cdiv`; None for any other."""
    for prefix, module in _language_modules():
        if value is module:
            return prefix
        for name in (getattr(value, "__name__", None), getattr(value, "name", None)):
            if isinstance(name, str) and not isinstance(value, ModuleType) and vars(module).get(name) is value:
                return f"{prefix}.{name}"
    member = next((m for m in MEMBERS if attrgetter(m)(tl) is value), None)
    if member is not None:
        return f"tl.{member}"
    if isinstance(value, tl.dtype):
        same = [n for n, v in vars(tl).items() if isinstance(v, tl.dtype) and v == value]
        return f"tl.{same[0]}" if same else None
    return None


def _language_modules() -> list[tuple[str, ModuleType]]:
    extra = triton.language.extra
    modules = [("tl", tl), ("tl.math", tl.math), ("triton", triton)]
    libdevices = (getattr(extra, "libdevice", None), getattr(getattr(extra, "cuda", None), "libdevice", None))
    return modules + [("libdevice", module) for module in libdevices if isinstance(module, ModuleType)]


def _is_literal(node: ast.expr) -> bool:
    return all(isinstance(n, (ast.Constant, ast.List, ast.Tuple, ast.Load)) for n in ast.walk(node))


def _parameters(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _local_names(node: ast.FunctionDef) -> set[str]:
    stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))}
    return stored | {p.arg for p in _parameters(node)}


def _is_device_annotation(annotation: ast.expr, scope: Mapping[str, Any]) -> bool:
    """True if Triton reads an annotation: constexpr, its own types, a text, or Python's number types."""
    if isinstance(annotation, ast.Constant):
        return isinstance(annotation.value, str)
    chain = read_dotted(annotation)
    if not chain:
        return False
    value = scope.get(chain[0])
    for part in chain[1:]:
        value = getattr(value, part, None)
    return value in (int, float, bool) or _language_name(value) is not None


def _cut_returns(source: _FunctionText, returns: ast.expr) -> Iterator[tuple[Span, str]]:
    """Cuts `-> annotation`, from the closing parenthesis to the colon."""
    row, col, end_row, end_col = _span(returns)
    line = source.text.splitlines()[row - 1].encode()
    arrow = line.rfind(b"->", 0, col)
    if arrow >= 0:
        yield (row, len(line[:arrow].rstrip()), end_row, end_col), ""
