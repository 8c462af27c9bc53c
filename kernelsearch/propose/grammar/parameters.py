"""The kinds of a function's parameters, as the task's launches pass them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import ArgFact, DtypeFact, TaskFacts, TensorFact
from kernelsearch.kernel.launch import TRITON_DTYPES
from kernelsearch.kernel.source import Function, Kernel, setting_names_of
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.kinds import BOOL, FLOAT, INT, ValueKind, join_dtypes

Launches = list[Mapping[str, ArgFact]]


def parameter_kinds(kernel: Kernel, function: Function, task: TaskFacts) -> dict[str, ValueKind]:
    """Kinds of the parameters and of the file's constants; a parameter of unknown kind is left out."""
    kinds = _constants(kernel)
    launches = _launches(kernel, function.name, task)
    addresses = _addresses(tree.function_of(function.text))
    for name in function.params:
        kind = _kind(name, function, kernel, launches)
        if kind is None and function.name in kernel.entries and not launches:
            kind = ValueKind(f"?{name}", pointer=True) if name in addresses else ValueKind(INT)
        if kind is not None:
            kinds[name] = kind
    return kinds


def _kind(name: str, function: Function, kernel: Kernel, launches: Launches) -> ValueKind | None:
    if name in function.constexprs:
        return _constexpr(name, function, kernel, launches)
    if name in function.types:
        return ValueKind(function.types[name])
    if name in kernel.scratch:
        return ValueKind(TRITON_DTYPES[kernel.scratch[name][0]], pointer=True)
    if name in kernel.args.get(function.name, {}):
        return ValueKind(_computed_dtype(name, function, kernel))
    values = [launch[name] for launch in launches if name in launch]
    if not values or len(values) != len(launches):
        return None
    if all(isinstance(v, TensorFact) for v in values):
        return ValueKind(join_dtypes(v.dtype for v in values), pointer=True)  # type: ignore[union-attr]
    dtypes = {_scalar(v) for v in values}
    return ValueKind(dtypes.pop()) if len(dtypes) == 1 and None not in dtypes else None


def _constexpr(name: str, function: Function, kernel: Kernel, launches: Launches) -> ValueKind | None:
    value: ArgFact = next((launch[name] for launch in launches if name in launch), None)
    for site in kernel.sites_of(function.name):
        for key in setting_names_of(function.name, site, name):
            value = kernel.config.get(key, kernel.space[key][0] if key in kernel.space else value)
    if isinstance(value, (str, DtypeFact)):
        return ValueKind(INT, const=True) if name in kernel.config or name in kernel.space else None
    return ValueKind(_computed_dtype(name, function, kernel) if value is None else _scalar(value, INT), const=True)


def _scalar(value: ArgFact, wide: str = "i64") -> str | None:
    """The dtype that Triton gives a Python number; wide is that of integers beyond 32 bits."""
    match value:
        case bool():
            return BOOL
        case int():
            return INT if -(2**31) <= value < 2**31 else wide
        case float():
            return FLOAT
    return None


def _computed_dtype(name: str, function: Function, kernel: Kernel) -> str:
    """The dtype that the launch spec computes for a parameter: a truth value (`n_cols >= BLOCK`) or an integer."""
    text = kernel.args.get(function.name, {}).get(name)
    return BOOL if isinstance(text, str) and _is_truth(parse_python(text, "eval").body) else INT


def _is_truth(node: ast.expr) -> bool:
    match node:
        case ast.BoolOp(values=values):
            return all(_is_truth(v) for v in values)
        case ast.Call(func=ast.Name(id="aligned")) | ast.Constant(value=bool()) | ast.UnaryOp(op=ast.Not()):
            return True
    return isinstance(node, ast.Compare)


def _launches(kernel: Kernel, name: str, task: TaskFacts) -> Launches:
    """The arguments of the launches that reach a function; launches that agree on every dtype count once."""
    unique: dict[tuple, Mapping[str, ArgFact]] = {}
    for launch in (launch for trace in task.traces.values() for launch in trace.launches):
        if name in (kernel.steps_at(launch.site, task.sites) or ()):
            dtypes = ((n, v.dtype if isinstance(v, TensorFact) else _scalar(v)) for n, v in launch.args.items())
            unique.setdefault(tuple(sorted(dtypes, key=lambda item: item[0])), launch.args)
    return list(unique.values())


def _constants(kernel: Kernel) -> dict[str, ValueKind]:
    kinds = {}
    for text in kernel.constants:
        pair = tree.assignment(parse_python(text).body[0])
        numbers = [n.value for n in ast.walk(pair[1]) if isinstance(n, ast.Constant)] if pair else []
        if pair and len(numbers) == 1 and (dtype := _scalar(numbers[0], INT)):
            kinds[pair[0]] = ValueKind(dtype, const=True)
    return kinds


def _addresses(node: ast.FunctionDef) -> set[str]:
    """Names that an address begins with, where the task has no launches to tell."""
    accesses = tree.calls(node, "load", "store", "atomic_add", "atomic_max", "atomic_min")
    names = {_first_term(tree.argument(call, 0, "pointer")) for call in accesses}
    for statement in reversed(list(tree.all_statements(node.body))):
        pair = tree.assignment(statement)
        if pair and pair[0] in names:
            names.add(_first_term(pair[1]))  # row = x_ptr + offset, with row used as an address
    return names


def _first_term(address: ast.expr | None) -> str:
    while isinstance(address, ast.BinOp):
        address = address.left
    return address.id if isinstance(address, ast.Name) else ""
