"""A kernel file as a value: its jit functions, its launch spec, its canonical form and digest.

Parsing here never executes anything and accepts more than the gate does: it only finds the functions and reads the
literals. The gate (`verify/gate.py`) decides whether a kernel may be compiled.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import Config, Value, content_digest
from kernelsearch.kernel.descriptors import DESCRIPTOR_FORM, are_descriptors
from kernelsearch.kernel.dialects import find_dialect
from kernelsearch.kernel.literals import check_constraints, expect, flatten_config, flatten_space, is_dict_of, is_value

SPEC_NAMES = tuple("LANGUAGE GRID ARGS SCRATCH INIT DESCRIPTORS LAUNCHES SPACE CONSTRAINTS CONFIG".split())
TRITON, GLUON = "triton", "gluon"
"""The languages of a kernel's functions, see `dialects`."""
LIBDEVICE_IMPORT = "from triton.language.extra import libdevice"


@dataclass(frozen=True)
class Function:
    """One `@triton.jit` function: its source text, parameters in order, and which are constexpr.

    types maps scalar parameters that are annotated with a dtype (`n: tl.int64`) to Triton's name of it (`i64`), and
    plain those that `@triton.jit(...)` names to the flag that names them: Triton does not specialise them.
    """

    name: str
    text: str
    params: tuple[str, ...]
    constexprs: tuple[str, ...]
    calls: frozenset[str] = field(default_factory=frozenset)
    defaults: Mapping[str, Value] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    plain: Mapping[str, str] = field(default_factory=dict)


def setting_names_of(function: str, site: str, name: str) -> tuple[str, ...]:
    """The names under which a config may give a step's constexpr or launch option a value, the strongest first.

    First the function's own (`f_partial.BLOCK`), then that of the launcher's site, which all its steps share, then the
    plain name.
    """
    return tuple(dict.fromkeys((f"{function}.{name}", f"{site}.{name}", name)))


@dataclass(frozen=True)
class Kernel:
    """An untrusted kernel: functions, module-level constants and the launch spec, all optional but one function.

    grid and args are keyed by function name; launches by site name (the empty name stands for the
    only site of a task that has one). space and config are flat; a dotted name speaks of one function, or of every
    step of one site (see `setting_names_of`). constraints are expressions that hold for every config worth a trial.
    """

    functions: tuple[Function, ...]
    constants: tuple[str, ...] = ()
    grid: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    scratch: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    init: Mapping[str, float | None] = field(default_factory=dict)
    descriptors: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    launches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    space: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    config: Config = field(default_factory=dict)
    language: str = TRITON

    @classmethod
    def parse(cls, text: str) -> Kernel:
        """Reads a kernel file. Raises KernelSyntaxError with the line when it is not one."""
        return _parse_kernel(text)

    def function(self, name: str) -> Function:
        """The function of that name. Raises KeyError."""
        return {f.name: f for f in self.functions}[name]

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

    @property
    def unfilled(self) -> tuple[str, ...]:
        """The arguments whose fill by the launcher is left out: None in INIT."""
        return tuple(name for name, value in self.init.items() if value is None)

    def find_shared_scratch(self, sites: tuple[str, ...]) -> str:
        """A buffer of SCRATCH that functions of two sites take, where each site has its own; else ""."""
        steps = [(s, f) for s in sites if self.scratch for f in self.steps_at(s, sites) or ()]
        taken = {n: {s for s, f in steps if n in self.reached_by(f)} for n in self.scratch}
        return next((n for n, by in taken.items() if len(by) > 1), "")

    def expressions_of(self, function: str) -> tuple[str, ...]:
        """The texts of the launch spec that are evaluated where a function is launched."""
        grid = (self.grid[function],) if function in self.grid else ()
        made = (text for spec in self.descriptors_of(function).values() for text in spec[1:4])
        return (*grid, *self.args.get(function, {}).values(), *(spec[1] for spec in self.scratch.values()), *made)

    def descriptors_of(self, function: str) -> dict[str, tuple[Any, ...]]:
        """The descriptors that a function takes, by its parameters."""
        params = self.function(function).params if self.descriptors else ()
        return {name: spec for name, spec in self.descriptors.items() if name in params}

    def reached_by(self, function: str) -> frozenset[str]:
        """The parameters of a function, and the tensors that its descriptors describe."""
        return frozenset(self.function(function).params).union(s[0] for s in self.descriptors_of(function).values())

    def sites_of(self, function: str) -> tuple[str, ...]:
        """The sites at which this kernel launches a function: those of LAUNCHES, else the function's own name."""
        return tuple(site for site, steps in self.launches.items() if site and function in steps) or (function,)

    @cached_property
    def digest(self) -> str:
        """Hash of the syntax trees without docstrings and comments, and of the literals, but for SPACE and CONFIG."""
        functions = sorted(canonicalise(f.text) for f in self.functions)
        constants = sorted(canonicalise(c) for c in self.constants)
        spec = json.dumps(
            [
                {k: _strip_spaces(v) for k, v in self.grid.items()},
                {f: {k: _strip_spaces(v) for k, v in a.items()} for f, a in self.args.items()},
                {k: list(v) for k, v in self.scratch.items()},
                dict(self.init),
                {k: list(v) for k, v in self.launches.items()},
                *map(_strip_spaces, self.constraints),
                *([{k: list(v) for k, v in self.descriptors.items()}] if self.descriptors else ()),
                *([self.language] if self.language != TRITON else ()),
            ],
            sort_keys=True,
        )
        return content_digest(*functions, *constants, spec)

    @cached_property
    def code(self) -> str:
        """The text to compile: imports, constants and functions, without the launch spec."""
        parts = [find_dialect(self.language).header]
        if any("libdevice" in f.text for f in self.functions):
            parts[0] += f"\n{LIBDEVICE_IMPORT}"
        if self.constants:
            parts.append("\n".join(self.constants))
        parts.extend(f.text.strip() for f in self.functions)
        return "\n\n\n".join(parts) + "\n"

    def render(self) -> str:
        """The kernel as a file that `parse` reads back to an equal digest, space and config."""
        head, _, body = self.code.partition("\n\n\n")
        launches = {site: list(steps) for site, steps in self.launches.items()}
        literals = {
            "LANGUAGE": self.language if self.language != TRITON else "",
            "GRID": _unwrap_single(self.grid, self.entries),
            "ARGS": _unwrap_single(self.args, self.entries),
            "SCRATCH": dict(self.scratch),
            "INIT": dict(self.init),
            "DESCRIPTORS": dict(self.descriptors),
            "LAUNCHES": launches[""] if set(launches) == {""} else launches,
            "SPACE": {name: list(values) for name, values in self.space.items()},
            "CONSTRAINTS": list(self.constraints),
            "CONFIG": dict(self.config),
        }
        spec = "\n".join(f"{name} = {value!r}" for name, value in literals.items() if value)
        return f"{head}\n\n" + (f"{spec}\n\n\n" if spec else "\n") + body

    def with_changes(self, **fields: Any) -> Kernel:
        """The same kernel with some fields replaced: `kernel.with_changes(grid={"k": "(num_sms,)"})`."""
        return replace(self, **fields)


def parse_function(text: str) -> Function:
    """Reads the text of one decorated function."""
    return _function_of(parse_python(text).body[-1], text)


@lru_cache(maxsize=1024)
def canonicalise(text: str) -> str:
    """The source without comments, docstrings and layout; equal texts mean equal trees."""
    tree = parse_python(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            code = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            body[:] = code or [ast.Pass()]
    return ast.unparse(tree)


def _strip_spaces(expression: str) -> str:
    return "".join(expression.split()) if " if " not in expression and " and " not in expression else expression


def _unwrap_single(by_function: Mapping[str, Any], entries: tuple[str, ...]) -> Any:
    plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in by_function.items()}
    return plain[entries[0]] if len(entries) == 1 and set(plain) == {entries[0]} else plain


def _function_of(node: ast.stmt, text: str) -> Function:
    if not isinstance(node, ast.FunctionDef):
        raise KernelSyntaxError("expected a function definition")
    params = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    constexprs = tuple(p.arg for p in params if p.annotation is not None and "constexpr" in ast.unparse(p.annotation))
    calls = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name)) - {p.arg for p in params}
    types = {p.arg: kind for p in params if (kind := _type_of(p.annotation))}
    names = tuple(p.arg for p in params)
    calls -= {node.name}
    plain = _list_plain(node, names)
    return Function(node.name, text, names, constexprs, calls, _defaults_of(node.args), types, plain)


def _list_plain(node: ast.FunctionDef, names: Sequence[str]) -> dict[str, str]:
    """Parameters by name or number in `do_not_specialize`, `do_not_specialize_on_alignment`: the first such flag."""
    flags = [k for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords]
    named = [(k.arg, k.value.elts) for k in flags if isinstance(k.value, (ast.List, ast.Tuple))]
    values = [(v.value, flag) for flag, elements in named for v in elements if flag and isinstance(v, ast.Constant)]
    places: dict[Any, str] = dict(enumerate(names))
    return {str(places.get(value, value)): flag for value, flag in sorted(values, key=lambda v: v[1], reverse=True)}


_SCALAR_TYPES = {
    "int1": "u1",
    "float32": "fp32",
    "float64": "fp64",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}


def _type_of(annotation: ast.expr | None) -> str | None:
    """Triton's name of the scalar type that an annotation means: `tl.int64`, `"int64"` or `"i64"`."""
    match annotation:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
            return name if name in _SCALAR_TYPES.values() else _SCALAR_TYPES.get(name)
    return None


def _defaults_of(arguments: ast.arguments) -> dict[str, Value]:
    positional = [*arguments.posonlyargs, *arguments.args]
    optional = [*positional[len(positional) - len(arguments.defaults) :], *arguments.kwonlyargs]
    defaults: dict[str, Value] = {}
    for parameter, default in zip(optional, [*arguments.defaults, *arguments.kw_defaults], strict=True):
        with suppress(ValueError, TypeError):
            if default is not None and is_value(value := ast.literal_eval(default)):
                defaults[parameter.arg] = value
    return defaults


def read_language(tree: ast.Module) -> str:
    """The language of a kernel file, by its literal LANGUAGE. Raises KernelSyntaxError for an unknown one."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="LANGUAGE")], value=value):
                language = value.value if isinstance(value, ast.Constant) else None
                expect(language in (TRITON, GLUON), "LANGUAGE", f"{TRITON!r} or {GLUON!r}")
                return str(language)
    return TRITON


def normalise_constant(node: ast.stmt, alias: str = "tl") -> str:
    """`NAME = 128` and `NAME: tl.constexpr = 128` as `NAME = tl.constexpr(128)`, the only global that Triton accepts.

    alias is the module of the language. Empty for anything else, which stays as it is written.
    """
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) != f"{alias}.constexpr":
        return ""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
        ):
            inner = value.operand if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else value
            if isinstance(inner, ast.Constant) and isinstance(inner.value, (bool, int, float)):
                return f"{name} = {alias}.constexpr({ast.unparse(value)})\n"
    return ""


def _parse_kernel(text: str) -> Kernel:
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f" (line {line})" if line else ""
        raise KernelSyntaxError(f"not Python{where}: {getattr(error, 'msg', None) or error}") from None
    lines = text.splitlines(keepends=True)
    language = read_language(tree)
    alias = find_dialect(language).alias
    functions: list[Function] = []
    constants: list[str] = []
    spec: dict[str, Any] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef():
                functions.append(_function_of(node, _text_of(node, lines)))
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in SPEC_NAMES:
                spec[name] = _read_literal(name, value)
            case ast.Assign(targets=[ast.Name()]) | ast.AnnAssign(target=ast.Name(), value=ast.expr()):
                constants.append(normalise_constant(node, alias) or _text_of(node, lines))
            case _:
                raise KernelSyntaxError(
                    f"line {node.lineno}: a kernel file holds imports, literals and jit functions, "
                    f"not {type(node).__name__}"
                )
    if not functions:
        raise KernelSyntaxError(f"no @{find_dialect(language).jit} function")
    names = {f.name for f in functions}
    if len(names) != len(functions):
        raise KernelSyntaxError("two functions have the same name")
    functions = [replace(f, calls=f.calls & names) for f in functions]
    return _add_spec(Kernel(tuple(functions), tuple(constants), language=language), spec)


def _text_of(node: ast.stmt, lines: list[str]) -> str:
    """The source of a statement with its decorators."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return "".join(lines[first - 1 : node.end_lineno]).rstrip() + "\n"


def _read_literal(name: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise KernelSyntaxError(f"line {node.lineno}: {name} must be a literal") from None


def _add_spec(kernel: Kernel, spec: Mapping[str, Any]) -> Kernel:
    """The kernel with the spec's literals, single or by function name, in the one form that Kernel has."""
    entries = kernel.entries or kernel.names
    fields: dict[str, Any] = {}
    if "LAUNCHES" in spec:
        launches = spec["LAUNCHES"]
        by_site = launches if isinstance(launches, dict) else {"": launches}
        for site, steps in by_site.items():
            expect(isinstance(site, str) and isinstance(steps, (list, tuple)), "LAUNCHES", "a list of function names")
            unknown = [s for s in steps if s not in kernel.names]
            expect(not unknown, "LAUNCHES", f"functions of this file; not there: {unknown}")
        fields["launches"] = {site: tuple(steps) for site, steps in by_site.items()}
    if "GRID" in spec:
        grid = spec["GRID"]
        by_name = grid if isinstance(grid, dict) else {entries[-1]: grid}
        for name, text in by_name.items():
            expect(name in kernel.names and isinstance(text, str), "GRID", "an expression, or expressions by function")
        fields["grid"] = by_name
    if "ARGS" in spec:
        args = spec["ARGS"]
        expect(isinstance(args, dict), "ARGS", "a dict")
        nested = bool(args) and all(isinstance(v, dict) for v in args.values())
        by_name = args if nested else dict.fromkeys(entries, args)
        fields["args"] = {}
        for name, values in by_name.items():
            valid = name in kernel.names and is_dict_of(values, (str, int))
            expect(valid, "ARGS", "expressions by argument name")
            params = kernel.function(name).params
            if own := {k: str(e) for k, e in values.items() if nested or k in params}:
                fields["args"][name] = own
    if "SCRATCH" in spec:
        scratch = spec["SCRATCH"]
        valid = is_dict_of(scratch, (tuple, list)) and all(
            len(v) in (2, 3) and isinstance(v[0], str) and isinstance(v[1], str) for v in scratch.values()
        )
        expect(valid, "SCRATCH", '{"name": ("float32", "(shape, expression)")}')
        fields["scratch"] = {k: tuple(v) for k, v in scratch.items()}
    if "INIT" in spec:
        expect(is_dict_of(spec["INIT"], (int, float, type(None))), "INIT", "numbers, or None, by argument name")
        fields["init"] = spec["INIT"]
    if "DESCRIPTORS" in spec:
        expect(are_descriptors(spec["DESCRIPTORS"]), "DESCRIPTORS", DESCRIPTOR_FORM)
        fields["descriptors"] = {k: tuple(v) for k, v in spec["DESCRIPTORS"].items()}
    if "SPACE" in spec:
        fields["space"] = flatten_space(spec["SPACE"])
    if "CONSTRAINTS" in spec:
        fields["constraints"] = check_constraints(spec["CONSTRAINTS"])
    if "CONFIG" in spec:
        fields["config"] = flatten_config(spec["CONFIG"])
    return replace(kernel, **fields)
