"""What was verified of a task, as Python: dtypes, layouts, sizes, scalars, and every judged shape."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from kernelsearch.core.types import TensorFact
from kernelsearch.export.errors import ExportError
from kernelsearch.export.examine import Input, layouts_of, params_text
from kernelsearch.export.part import Part


def verified_text(part: Part) -> str:
    """`Verified(...)` as Python."""
    e = part.examined
    count = len(e.keys)
    dtypes = sorted({tuple(_dtype(i.values[n]) for i in e.inputs) for n in range(count)}, key=repr)
    layouts = [f"frozenset({set_text(layouts_of(i))})" for i in e.inputs]
    sizes = [repr(_sizes(i, e.task.path.name)) for i in e.inputs]
    scalars = [f"frozenset({set_text(_scalars(i))})" for i in e.inputs]
    largest = max(_reach(v) for i in e.inputs for v in i.values if isinstance(v, TensorFact))
    return (
        "Verified(\n"
        f"    dtypes=frozenset({set_text(dtypes)}),\n"
        f"    layouts=({', '.join(layouts)},),\n"
        f"    sizes=({', '.join(sizes)},),\n"
        f"    scalars=({', '.join(scalars)},),\n"
        f"    largest={largest},\n"
        ")"
    )


def set_text(values: Sequence[Any]) -> str:
    return "(" + "".join(f"{v!r}, " for v in values).rstrip(" ") + ")"


def _dtype(value: Any) -> str | None:
    return value.dtype if isinstance(value, TensorFact) else None


def _scalars(given: Input) -> list[Any]:
    found = {(type(v).__name__, repr(v)): v for v in given.values if not isinstance(v, TensorFact)}
    return [found[k] for k in sorted(found)]


def _sizes(given: Input, file: str) -> tuple[tuple[int, int], ...]:
    shapes = [v.shape for v in given.values if isinstance(v, TensorFact)]
    if len({len(s) for s in shapes}) > 1:
        raise ExportError(f"{file} cannot be shipped: input {given.name} has another number of axes at some shapes")
    return tuple((min(axis), max(axis)) for axis in zip(*shapes, strict=True)) if shapes else ()


def _reach(value: TensorFact) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride, strict=True))


def cases_text(part: Part) -> str:
    """`(Case(...), ...)` as Python: every judged shape."""
    e = part.examined
    labels = {s.key: s.label for s in (*e.facts.shapes, *e.facts.test_shapes)}
    lines = [
        f'    Case("{key}", "{labels[key]}", {params_text(e.task.params(key), e.task.path.name)}),' for key in e.keys
    ]
    return "(\n" + "\n".join(lines) + "\n)"


def annotation(given: Input) -> str:
    kinds = {type(v) for v in given.values} - {type(None)}
    if kinds == {TensorFact}:
        word = "Tensor"
    elif kinds <= {int, float} and kinds:
        word = "float" if float in kinds else "int"
    elif len(kinds) == 1:
        word = kinds.pop().__name__
    else:
        raise ExportError(f"input {given.name} is of several kinds ({', '.join(sorted(k.__name__ for k in kinds))})")
    return f"Optional[{word}]" if any(v is None for v in given.values) else word


def default_text(given: Input) -> str:
    return "" if given.default is inspect.Parameter.empty else f" = {given.default!r}"
