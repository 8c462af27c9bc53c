"""The kinds of a function's parameters, as the task's launches pass them."""

from __future__ import annotations

import ast

from kernelsearch.core.parsing import parsed
from kernelsearch.core.types import ArgFact, DtypeFact, TaskFacts, TensorFact
from kernelsearch.kernel.launch import TRITON_DTYPES
from kernelsearch.kernel.source import Function, Kernel, setting_names
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.kinds import BOOL, FLOAT, INT, Kind, join_dtypes


def parameter_kinds(kernel: Kernel, function: Function, task: TaskFacts) -> dict[str, Kind]:
    """Kinds of the parameters and of the file's constants; a parameter that nothing tells of is left out."""
    kinds = _constants(kernel)
    node = tree.function_of(function.text)
    addresses = _addresses(node)
    worlds = _worlds(kernel, function.name, task)
    launched = function.name in kernel.entries
    for name in function.params:
        kind = _kind(name, function, kernel, worlds)
        if kind is None and launched and not worlds:
            kind = Kind(f"?{name}", pointer=True) if name in addresses else Kind(INT)
        if kind is not None:
            kinds[name] = kind
    return kinds


def _kind(name: str, function: Function, kernel: Kernel, worlds: list[dict[str, ArgFact]]) -> Kind | None:
    if name in function.constexprs:
        return _constexpr(name, function, kernel, worlds)
    if name in function.types:
        return Kind(function.types[name])
    if name in kernel.scratch:
        return Kind(TRITON_DTYPES[kernel.scratch[name][0]], pointer=True)
    if name in kernel.args.get(function.name, {}):
        return Kind(_computed(name, function, kernel))
    values = [w[name] for w in worlds if name in w]
    if not values or len(values) != len(worlds):
        return None
    if all(isinstance(v, TensorFact) for v in values):
        return Kind(join_dtypes(v.dtype for v in values), pointer=True)  # type: ignore[union-attr]
    dtypes = {_scalar(v) for v in values}
    return Kind(dtypes.pop()) if len(dtypes) == 1 and None not in dtypes else None  # type: ignore[arg-type]


def _constexpr(name: str, function: Function, kernel: Kernel, worlds: list[dict[str, ArgFact]]) -> Kind | None:
    value: ArgFact = next((w[name] for w in worlds if name in w), None)
    for known in (kernel.config, kernel.space):
        keys = (k for site in kernel.sites_of(function.name) for k in setting_names(function.name, site, name))
        for key in keys:
            if key in known:
                value = known[key][0] if isinstance(known[key], tuple) else known[key]  # type: ignore[index]
    if isinstance(value, (str, DtypeFact)):
        return Kind(INT, const=True) if name in kernel.config or name in kernel.space else None
    if value is None:
        return Kind(_computed(name, function, kernel), const=True)
    dtype = BOOL if isinstance(value, bool) else FLOAT if isinstance(value, float) else INT
    return Kind(dtype, const=True)


def _computed(name: str, function: Function, kernel: Kernel) -> str:
    """What the launch spec computes for a parameter: a truth value (`n_cols >= BLOCK`) or an integer."""
    text = kernel.args.get(function.name, {}).get(name)
    return BOOL if isinstance(text, str) and _truth(parsed(text, "eval").body) else INT


def _truth(node: ast.expr) -> bool:
    match node:
        case ast.BoolOp(values=values):
            return all(_truth(v) for v in values)
        case ast.Call(func=ast.Name(id="aligned")):
            return True
        case ast.Constant(value=bool()) | ast.UnaryOp(op=ast.Not()):
            return True
    return isinstance(node, ast.Compare)


def _scalar(value: ArgFact) -> str | None:
    match value:
        case bool():
            return BOOL
        case int():
            return INT if -(2**31) <= value < 2**31 else "i64"
        case float():
            return FLOAT
    return None


def _worlds(kernel: Kernel, name: str, task: TaskFacts) -> list[dict[str, ArgFact]]:
    """What the launches that reach this function pass; launches that agree on every dtype count once."""
    found: dict[tuple, dict[str, ArgFact]] = {}
    for trace in task.traces.values():
        for launch in trace.launches:
            if name in (kernel.steps_at(launch.site, task.sites) or ()):
                key = tuple(
                    (n, v.dtype if isinstance(v, TensorFact) else _scalar(v)) for n, v in sorted(launch.args.items())
                )
                found.setdefault(key, dict(launch.args))
    return list(found.values())


def _constants(kernel: Kernel) -> dict[str, Kind]:
    kinds = {}
    for text in kernel.constants:
        pair = tree.assignment(parsed(text).body[0])
        numbers = [n.value for n in ast.walk(pair[1]) if isinstance(n, ast.Constant)] if pair else []
        if pair and len(numbers) == 1 and isinstance(numbers[0], (bool, int, float)):
            dtype = {bool: BOOL, int: INT, float: FLOAT}[type(numbers[0])]
            kinds[pair[0]] = Kind(dtype, const=True)
    return kinds


def _addresses(node: ast.FunctionDef) -> set[str]:
    """Names that an address begins with, where the task has no launches to tell."""
    found = set()
    for call in tree.calls(node, "load", "store", "atomic_add", "atomic_max", "atomic_min"):
        at: ast.expr | None = tree.argument(call, 0, "pointer")
        while isinstance(at, ast.BinOp):
            at = at.left
        if isinstance(at, ast.Name):
            found.add(at.id)
    for n in ast.walk(node):
        if isinstance(n, ast.Attribute) and n.attr == "element_ty" and isinstance(n.value, ast.Attribute):
            if isinstance(n.value.value, ast.Name):
                found.add(n.value.value.id)
    for stmt in ast.walk(node):  # row = x_ptr + offset, with row used as an address
        pair = tree.assignment(stmt) if isinstance(stmt, ast.stmt) else None
        if pair and pair[0] in found and isinstance(pair[1], ast.BinOp) and isinstance(pair[1].left, ast.Name):
            found.add(pair[1].left.id)
    return found
