"""A kernel file as a value: its jit functions, its launch spec, its canonical form and digest.

Parsing here never executes anything and accepts more than the gate does: it only needs to know
where the functions are and what the literals say. Whether a kernel may be compiled is the gate's
decision (`verify/gate.py`).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.parsing import parsed
from kernelsearch.core.types import Config, Value, content_digest

SPEC_NAMES = ("GRID", "ARGS", "SCRATCH", "INIT", "LAUNCHES", "SPACE", "CONFIG")
LIBDEVICE_IMPORT = "from triton.language.extra import libdevice"


@dataclass(frozen=True)
class Function:
    """One `@triton.jit` function: its source text, parameters in order, and which are constexpr.

    types has the scalar parameters that are annotated with a dtype (`n: tl.int64`), as Triton's names (`i64`).
    """

    name: str
    text: str
    params: tuple[str, ...]
    constexprs: tuple[str, ...]
    calls: frozenset[str] = field(default_factory=frozenset)
    defaults: Mapping[str, Value] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)


def setting_names(function: str, site: str, name: str) -> tuple[str, ...]:
    """The names under which a config may give a step's constexpr or launch option a value, the strongest first.

    The function's own (`f_partial.BLOCK`), then that of the launcher's site, which all its steps share, then the plain one.
    """
    return tuple(dict.fromkeys((f"{function}.{name}", f"{site}.{name}", name)))


@dataclass(frozen=True)
class Kernel:
    """An untrusted kernel: functions, module-level constants and the launch spec, all optional but one function.

    grid and args are keyed by function name; launches by site name (the empty name stands for the
    only site of a task that has one). space and config are flat; a dotted name speaks of one function, or of every
    step of one site (see `setting_names`).
    """

    functions: tuple[Function, ...]
    constants: tuple[str, ...] = ()
    grid: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    scratch: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    init: Mapping[str, float] = field(default_factory=dict)
    launches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    space: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    config: Config = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Kernel:
        """Reads a kernel file. Raises KernelSyntaxError with the line when it is not one."""
        return _Parser(text).kernel()

    def function(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(name)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.functions)

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """Functions that no other function calls: the ones that can be launched."""
        called = frozenset().union(*(f.calls for f in self.functions))
        return tuple(name for name in self.names if name not in called)

    def steps_at(self, site: str, sites: tuple[str, ...]) -> tuple[str, ...] | None:
        """The functions launched in order at a site, or None when this kernel leaves the site alone."""
        if site in self.launches:
            return self.launches[site]
        if "" in self.launches and len(sites) == 1:
            return self.launches[""]
        return (site,) if site in self.names else None

    def sites_of(self, function: str) -> tuple[str, ...]:
        """The sites at which a function is a step, by this kernel's own account: those of LAUNCHES, else its own name."""
        return tuple(site for site, steps in self.launches.items() if site and function in steps) or (function,)

    @cached_property
    def digest(self) -> str:
        """Hash of the syntax trees without docstrings and comments, and of GRID, ARGS, SCRATCH, INIT, LAUNCHES."""
        functions = sorted(canonical_source(f.text) for f in self.functions)
        constants = sorted(canonical_source(c) for c in self.constants)
        spec = json.dumps(
            [
                {k: _spaces_out(v) for k, v in self.grid.items()},
                {f: {k: _spaces_out(v) for k, v in a.items()} for f, a in self.args.items()},
                {k: list(v) for k, v in self.scratch.items()},
                dict(self.init),
                {k: list(v) for k, v in self.launches.items()},
            ],
            sort_keys=True,
        )
        return content_digest(*functions, *constants, spec)

    @cached_property
    def code(self) -> str:
        """What is compiled: imports, constants and functions, without the launch spec."""
        parts = ["import triton\nimport triton.language as tl"]
        if any("libdevice" in f.text for f in self.functions):
            parts[0] += f"\n{LIBDEVICE_IMPORT}"
        if self.constants:
            parts.append("\n".join(self.constants))
        parts.extend(f.text.strip() for f in self.functions)
        return "\n\n\n".join(parts) + "\n"

    def render(self) -> str:
        """The kernel as a file that `parse` reads back to an equal digest, space and config."""
        head, _, body = self.code.partition("\n\n\n")
        literals = []
        if self.grid:
            literals.append(("GRID", _single(self.grid, self.entries)))
        if self.args:
            literals.append(("ARGS", _single(self.args, self.entries)))
        if self.scratch:
            literals.append(("SCRATCH", dict(self.scratch)))
        if self.init:
            literals.append(("INIT", dict(self.init)))
        if self.launches:
            plain = {k: list(v) for k, v in self.launches.items()}
            literals.append(("LAUNCHES", plain[""] if set(plain) == {""} else plain))
        if self.space:
            literals.append(("SPACE", {k: list(v) for k, v in self.space.items()}))
        if self.config:
            literals.append(("CONFIG", dict(self.config)))
        spec = "\n".join(f"{name} = {value!r}" for name, value in literals)
        return f"{head}\n\n" + (f"{spec}\n\n\n" if spec else "\n") + body

    def with_function(self, name: str, text: str) -> Kernel:
        """The same kernel with one function's text replaced (its name may stay or change)."""
        new = _function_of(parsed(text).body[-1], text)
        return replace(self, functions=tuple(new if f.name == name else f for f in self.functions))

    def changed(self, **fields: Any) -> Kernel:
        """The same kernel with some fields replaced: `kernel.changed(grid={"k": "(num_sms,)"})`."""
        return replace(self, **fields)


def parse_function(text: str) -> Function:
    """Reads the text of one decorated function."""
    return _function_of(parsed(text).body[-1], text)


@lru_cache(maxsize=1024)
def canonical_source(text: str) -> str:
    """The source without comments, docstrings and layout; equal texts mean equal trees."""
    tree = parsed(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            node.body = kept or [ast.Pass()]
    return ast.unparse(tree)


def _spaces_out(expression: str) -> str:
    return "".join(expression.split()) if " if " not in expression and " and " not in expression else expression


def _single(by_function: Mapping[str, Any], entries: tuple[str, ...]) -> Any:
    plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in by_function.items()}
    return plain[entries[0]] if len(entries) == 1 and set(plain) == {entries[0]} else plain


def _function_of(node: ast.stmt, text: str) -> Function:
    if not isinstance(node, ast.FunctionDef):
        raise KernelSyntaxError("expected a function definition")
    params = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    constexprs = tuple(p.arg for p in params if p.annotation is not None and "constexpr" in ast.unparse(p.annotation))
    calls = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name)) - {p.arg for p in params}
    types = {p.arg: kind for p in params if (kind := _annotated_type(p.annotation))}
    return Function(
        node.name,
        text,
        tuple(p.arg for p in params),
        constexprs,
        calls - {node.name},
        _literal_defaults(node.args),
        types,
    )


_SCALAR_TYPES = {
    "int1": "u1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float32": "fp32",
    "float64": "fp64",
}


def _annotated_type(annotation: ast.expr | None) -> str | None:
    """Triton's name of the scalar type that an annotation means: `tl.int64`, `"int64"` or `"i64"`."""
    match annotation:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
            return name if name in _SCALAR_TYPES.values() else _SCALAR_TYPES.get(name)
    return None


def _literal_defaults(arguments: ast.arguments) -> dict[str, Value]:
    positional = [*arguments.posonlyargs, *arguments.args]
    given = positional[len(positional) - len(arguments.defaults) :]
    pairs = [
        *zip(given, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return {p.arg: d.value for p, d in pairs if isinstance(d, ast.Constant)}


def constant_source(node: ast.stmt) -> str:
    """`NAME = 128` and `NAME: tl.constexpr = 128` as `NAME = tl.constexpr(128)`, the one form of a global that Triton takes.

    Empty for anything else, which stays as it is written.
    """
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) != "tl.constexpr":
        return ""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value)
        ):
            inner = value.operand if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else value
            if isinstance(inner, ast.Constant) and isinstance(inner.value, (bool, int, float)):
                return f"{name} = tl.constexpr({ast.unparse(value)})\n"
    return ""


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self.tree = parsed(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if line else ""
            raise KernelSyntaxError(f"not Python{where}: {getattr(error, 'msg', None) or error}") from None
        self.lines = text.splitlines(keepends=True)

    def kernel(self) -> Kernel:
        functions: list[Function] = []
        constants: list[str] = []
        spec: dict[str, Any] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                functions.append(_function_of(node, self._segment(node)))
            elif isinstance(node, (ast.Import, ast.ImportFrom)) or (
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            ):
                continue
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in SPEC_NAMES:
                    spec[name] = self._literal(name, node.value)
                else:
                    constants.append(constant_source(node) or self._segment(node))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                constants.append(constant_source(node) or self._segment(node))
            else:
                raise KernelSyntaxError(
                    f"line {node.lineno}: a kernel file holds imports, literals and jit functions, "
                    f"not {type(node).__name__}"
                )
        if not functions:
            raise KernelSyntaxError("no @triton.jit function")
        if len({f.name for f in functions}) != len(functions):
            raise KernelSyntaxError("two functions have the same name")
        local = {f.name for f in functions}
        functions = [replace(f, calls=f.calls & local) for f in functions]
        return _with_spec(Kernel(tuple(functions), tuple(constants)), spec)

    def _segment(self, node: ast.stmt) -> str:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        return "".join(self.lines[first - 1 : node.end_lineno]).rstrip() + "\n"

    def _literal(self, name: str, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise KernelSyntaxError(f"line {node.lineno}: {name} must be a literal") from None


def _with_spec(kernel: Kernel, spec: Mapping[str, Any]) -> Kernel:
    """Brings the literals, single or by function name, into the one form that Kernel keeps."""
    entries = kernel.entries or kernel.names
    fields: dict[str, Any] = {}
    if "LAUNCHES" in spec:
        launches = spec["LAUNCHES"]
        by_site = launches if isinstance(launches, dict) else {"": launches}
        for site, steps in by_site.items():
            _expect(isinstance(site, str) and isinstance(steps, (list, tuple)), "LAUNCHES", "a list of function names")
            unknown = [s for s in steps if s not in kernel.names]
            _expect(not unknown, "LAUNCHES", f"functions of this file; not there: {unknown}")
        fields["launches"] = {site: tuple(steps) for site, steps in by_site.items()}
    if "GRID" in spec:
        grid = spec["GRID"]
        by_name = grid if isinstance(grid, dict) else {entries[-1]: grid}
        for name, text in by_name.items():
            _expect(name in kernel.names and isinstance(text, str), "GRID", "an expression, or expressions by function")
        fields["grid"] = by_name
    if "ARGS" in spec:
        args = spec["ARGS"]
        _expect(isinstance(args, dict), "ARGS", "a dict")
        nested = bool(args) and all(isinstance(v, dict) for v in args.values())
        by_name = args if nested else {name: args for name in entries}
        for name, values in by_name.items():
            good = name in kernel.names and all(
                isinstance(k, str) and isinstance(v, (str, int)) for k, v in values.items()
            )
            _expect(good, "ARGS", "expressions by argument name")
        known = {f.name: set(f.params) for f in kernel.functions}
        fields["args"] = {
            n: kept
            for n, v in by_name.items()
            if (kept := {k: str(e) for k, e in v.items() if nested or k in known[n]})
        }
    if "SCRATCH" in spec:
        scratch = spec["SCRATCH"]
        good = isinstance(scratch, dict) and all(
            isinstance(k, str)
            and isinstance(v, (tuple, list))
            and len(v) in (2, 3)
            and isinstance(v[0], str)
            and isinstance(v[1], str)
            for k, v in scratch.items()
        )
        _expect(good, "SCRATCH", '{"name": ("float32", "(shape, expression)")}')
        fields["scratch"] = {k: tuple(v) for k, v in scratch.items()}
    if "INIT" in spec:
        init = spec["INIT"]
        good = isinstance(init, dict) and all(
            isinstance(k, str) and isinstance(v, (int, float)) for k, v in init.items()
        )
        _expect(good, "INIT", "numbers by argument name")
        fields["init"] = dict(init)
    if "SPACE" in spec:
        fields["space"] = flat_space(spec["SPACE"])
    if "CONFIG" in spec:
        fields["config"] = flat_config(spec["CONFIG"])
    return replace(kernel, **fields)


def flat_space(space: Any, where: str = "SPACE") -> dict[str, tuple[Value, ...]]:
    """`{"BLOCK": [1, 2]}` or the same by function name, as one flat dict with dotted names."""
    _expect(isinstance(space, dict), where, "a dict of lists")
    flat: dict[str, tuple[Value, ...]] = {}
    for name, values in _dotted(space).items():
        good = isinstance(values, (list, tuple)) and values and all(map(_is_value, values))
        _expect(good, where, f"a non-empty list of numbers for {name!r}")
        flat[name] = tuple(values)
    return flat


def flat_config(config: Any, where: str = "CONFIG") -> dict[str, Value]:
    """`{"BLOCK": 1}` or the same by function name, as one flat dict with dotted names."""
    _expect(isinstance(config, dict), where, "a dict of values")
    flat = _dotted(config)
    for name, value in flat.items():
        _expect(_is_value(value), where, f"a number for {name!r}")
    return flat


def _dotted(given: Mapping[Any, Any]) -> dict[str, Any]:
    """A dict whose inner dicts are written out as dotted names."""
    flat: dict[str, Any] = {}
    for name, value in given.items():
        flat.update({f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {str(name): value})
    return flat


def _is_value(value: Any) -> bool:
    return value is None or isinstance(value, (int, float, bool, str))


def _expect(condition: Any, name: str, expected: str) -> None:
    if not condition:
        raise KernelSyntaxError(f"{name} must be {expected}")
