"""The module with a task's public function and its torch operator, written for the task's own inputs and outputs.

It also says what was verified of the task: dtypes, layouts, sizes, scalars, and every judged shape.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelsearch.core.formats import Claims, list_spans
from kernelsearch.core.types import Evidence, ShapeFact, TensorFact
from kernelsearch.export import ExportError, cannot_ship, render
from kernelsearch.export.examine import Extra, Input, is_literal, list_ties
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.export.launches import free_name
from kernelsearch.export.layouts import layout, list_gaps, list_ones
from kernelsearch.export.task_modules import find_defining_module


def write_function_module(part: ExportedTask, gradients: Sequence[ExportedTask] = ()) -> str:
    """The text of a task folder's `__init__.py`; gradients are the tasks that give the gradients of its results."""
    e = part.examined
    names = [i.name for i in e.inputs]
    switch = free_name("fallback", [*names, *(x.name for x in e.extras)])
    tensors = [i.name for i in e.inputs if i.is_tensor]
    optional = [i.name for i in e.inputs if _is_optional(i)]
    gradient = " or ".join(
        f"({n} is not None and {n}.requires_grad)" if n in optional else f"{n}.requires_grad" for n in tensors
    )
    key = ", ".join(_key(n, n in optional) if n in tensors else n for n in names)
    if e.outputs is None:
        back = ", ".join(e.returned) + ("," if e.in_tuple and len(e.returned) == 1 else "") if e.returned else "None"
        returns = write_return_type(len(e.returned), e.in_tuple) if e.returned else "None"
    else:
        back, returns = "", write_return_type(e.outputs, e.in_tuple)
    return render(
        "task_function.py.jinja",
        **collect_template_values(part),
        dispatch_names="Case, Task, Verified",
        gradients=[g.folder for g in gradients],
        optional=optional,
        typed=", ".join(f"{i.name}: {write_annotation(i)}" for i in e.inputs),
        public=", ".join(
            (
                *(f"{i.name}: {write_annotation(i)}{write_default(i)}" for i in _defaults_last(e.inputs)),
                *(_write_extra(x) for x in e.extras if not x.by_name),
                "*",
                *(_write_extra(x) for x in e.extras if x.by_name),
            )
        ),
        others=[(x.name, write_literal(x.default), type(x.default).__name__) for x in e.extras],
        given_others=f"dict({', '.join(f'{x.name}={x.name}' for x in e.extras)})",
        unknown=tuple(x.name for x in e.extras if not x.known),
        switch=switch,
        returns=returns,
        operator_returns="None" if e.outputs is None else returns,
        back=back,
        key=key + ("," if len(names) == 1 and "," not in key else ""),
        addresses=" | ".join(
            f"({n} is not None and {n}.data_ptr())" if n in optional else f"{n}.data_ptr()" for n in tensors
        ),
        gradient=gradient if len(tensors) == 1 else f"({gradient})",
        not_plain=" or ".join(f"type({n}) not in _PLAIN" for n in tensors),  # not a loop: each call pays for it
        tolerance=float(e.task.tolerance) if isinstance(e.task.tolerance, (int, float)) else 1.0,
        kinds=", ".join(sorted({f"{f.evidence.value} on {f.device}" for f in part.chosen.found})),
        input_lines=_input_lines(part),
    )


def _is_optional(given: Input) -> bool:
    return any(v is None for v in given.values)


def _key(name: str, optional: bool) -> str:
    facts = write_tensor_key(name)
    return f"None if {name} is None else ({facts})" if optional else facts


def _write_extra(extra: Extra) -> str:
    kind = type(extra.default)
    annotation = f": {kind.__name__}" if kind in (bool, int, float, str) else ""
    return f"{extra.name}{annotation} = {write_literal(extra.default)}"


def _defaults_last(inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """The inputs, with defaults only after the last input that has none."""
    last = max((n for n, i in enumerate(inputs) if not write_default(i)), default=-1)
    return tuple(replace(i, default=inspect.Parameter.empty) if n < last else i for n, i in enumerate(inputs))


# ---------------------------------------------------------------- used by both forms of a task


def collect_template_values(part: ExportedTask) -> dict[str, Any]:
    """The values that the templates of both forms use."""
    e = part.examined
    names = [i.name for i in e.inputs]
    homes = {name: find_defining_module(part, name) for name in ("reference", "get_inputs")}
    kernels = sorted(part.module_of(d) for d in part.kernels)
    weakest, reference = part.chosen.weakest, "differentiated" if e.task.forward else e.reference
    return {
        "e": e,
        "name": part.name,
        "file": e.task.path.name,
        "names": tuple(names),
        "passed": ", ".join(names),
        "inputs": f"({', '.join(names)}{',' if len(names) == 1 else ''})",
        "modules": [*kernels, *sorted({"task", *homes.values(), *(module for _, module in part.launchers)})],
        "reference": "None" if e.is_own else f"{homes['reference']}.{reference}",
        "get_inputs": f"{homes['get_inputs']}.{'differentiated_inputs' if e.task.forward else 'get_inputs'}",
        "seed": part.module_of(part.seed.digest),
        "launches": list_launches(part),
        "launchers": part.launchers,
        "wrapped": list_wrapped_kernels(part),
        "verified": write_verified(e.inputs, e.task.path.name, part.chosen.claims),
        "cases": list_cases(part),
        "weak": weakest.value if weakest is not Evidence.CONFIRMED else "",
    }


def write_tensor_key(name: str) -> str:
    """The facts about a tensor on which a choice depends, as code; the number of its card is read, compared and hashed
    faster than a `torch.device`, and a build of torch knows one kind of card."""
    return f"{name}.shape, {name}.stride(), {name}.dtype, {name}.get_device()"


def write_return_type(count: int, in_tuple: bool) -> str:
    return f"tuple[{', '.join(['Tensor'] * count)}]" if in_tuple else "Tensor"


def list_launches(part: ExportedTask) -> list[tuple[str, str]]:
    """(Key of the table, launch functions by site as Python); at sites that a kernel leaves alone the seed's run."""
    seed = part.module_of(part.seed.digest)
    rows = []
    for digest in part.kernels:
        module, own = part.module_of(digest), part.sites_of(digest)
        rest = [s.name for s in part.examined.sites if s.name not in own]
        others = "".join(f'"{s}": with_config({seed}.SITES["{s}"], {seed}.CONFIG), ' for s in rest)
        rows.append((digest, f"{{{others}**{module}.SITES}}" if rest else f"{module}.SITES"))
    return rows


def list_wrapped_kernels(part: ExportedTask) -> list[tuple[str, str, str]]:
    """(Module, kernel, its name here) of all kernels that are launched.

    The operator's body wraps each by a plain name: there torch looks for the kernels on whose source its caches depend.
    """
    names: list[tuple[str, str]] = []
    for digest in part.kernels:
        module = part.module_of(digest)
        steps = {f for _, functions in part.sites_of(digest).values() for f in functions}
        names += [(module, f) for f in sorted(steps)]
    return [(module, f, f"{f}_{module.rpartition('_')[2]}") for module, f in names]


def _input_lines(part: ExportedTask) -> list[str]:
    """The docstring's lines on tensors and on inputs that change."""
    e = part.examined
    lines = []
    for i in (i for i in e.inputs if i.is_tensor):
        values = [v for v in i.values if v is not None]
        axes = "/".join(map(str, sorted({len(v.shape) for v in values})))
        lines.append(f"{i.name}: {axes} axes, {' or '.join(sorted({v.dtype for v in values}))}.")
    return [*lines, f"Changes {', '.join(e.task.mutates)}."] if e.task.mutates else lines


# ---------------------------------------------------------------- what was verified


def write_verified(inputs: Sequence[Input], file: str, claims: Claims) -> dict[str, str]:
    """The fields of the package's `Verified` as Python, for these inputs of a task's file."""
    facts = [[v for v in i.values if isinstance(v, TensorFact)] for i in inputs]
    by_shape = zip(*(i.values for i in inputs), strict=True)
    dtypes = sorted({tuple(v.dtype if isinstance(v, TensorFact) else None for v in vs) for vs in by_shape}, key=repr)
    layouts = [sorted({(layout(v.shape, v.stride), list_ones(v.shape)) for v in vs}) for vs in facts]
    sizes = [repr(_sizes(i.name, vs, file, claims)) for i, vs in zip(inputs, facts, strict=True)]
    largest = max(1 + sum((n - 1) * s for n, s in zip(v.shape, v.stride, strict=True)) for vs in facts for v in vs)
    return {
        "dtypes": write_set(dtypes),
        "layouts": f"({', '.join(map(write_set, layouts))},)",
        "sizes": f"({', '.join(sizes)},)",
        "scalars": f"({', '.join(write_set(_scalars(i, claims)) for i in inputs)},)",
        "largest": str(largest),
        "ties": repr(list_ties(inputs)),
        "gaps": f"({', '.join(repr(_gaps(vs)) for vs in facts)},)",
    }


def write_set(values: Sequence[Any]) -> str:
    return f"frozenset(({''.join(f'{v!r}, ' for v in values).rstrip(' ')}))"


def _scalars(given: Input, claims: Claims) -> list[Any]:
    claimed = given.values if given.is_tensor else claims.get(given.name, given.values)
    judged = (tuple(v) if isinstance(v, list) else v for v in claimed)
    values = {(type(v).__name__, repr(v)): v for v in judged if not isinstance(v, TensorFact)}
    return [values[k] for k in sorted(values)]


def _sizes(name: str, facts: Sequence[TensorFact], file: str, claims: Claims) -> tuple[Any, ...]:
    """The spans of the sizes of each axis."""
    if len({len(v.shape) for v in facts}) > 1:
        raise cannot_ship(file, f"input {name} does not have the same number of axes at all shapes")
    return tuple(list_spans(axis, claims) for axis in zip(*(v.shape for v in facts), strict=True))


def _gaps(facts: Sequence[TensorFact]) -> dict[int, list[str]]:
    """What was so of an input's gaps at all judged shapes, by axis; nothing where it had none."""
    if not any("gaps" in layout(v.shape, v.stride) for v in facts):
        return {}
    rooms = [list_gaps(v.shape, v.stride) for v in facts]
    found = {axis: set.intersection(*(r[axis] for r in rooms if axis in r)) for r in rooms for axis in r}
    return {axis: sorted(found[axis]) for axis in sorted(found) if found[axis]}


def list_cases(part: ExportedTask) -> list[tuple[ShapeFact, str]]:
    """(Shape, its parameters as arguments in Python) of every judged shape."""
    e = part.examined
    cases = []
    for shape in (*e.facts.shapes, *e.facts.test_shapes):
        params = e.task.params(shape.key)
        for name, value in params.items():
            if not is_literal(value):
                raise cannot_ship(e.task.path.name, f"shape parameter {name} is a {type(value).__name__}")
        cases.append((shape, ", ".join(f"{n}={write_literal(v)}" for n, v in params.items())))
    return cases


def write_annotation(given: Input) -> str:
    """An input's type as Python. Raises ExportError where it is of several kinds."""
    kinds = {type(v) for v in given.values} - {type(None)}
    if kinds <= {TensorFact}:  # also where it is None in all shapes
        word = "Tensor"
    elif kinds <= {int, float} and kinds:
        word = "float" if float in kinds else "int"
    elif len(kinds) == 1:
        kind = kinds.pop()
        word = "torch.dtype" if kind is torch.dtype else kind.__name__
    else:
        raise ExportError(f"input {given.name} is of several kinds ({', '.join(sorted(k.__name__ for k in kinds))})")
    return f"Optional[{word}]" if _is_optional(given) else word


def write_default(given: Input) -> str:
    return "" if given.default is inspect.Parameter.empty else f" = {write_literal(given.default)}"


def write_literal(value: Any) -> str:
    """A plain value as Python; infinity and NaN have no literal."""
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)
