"""What the three forms share: reading a file's optional names, choosing shapes, finding the launcher."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from kernelsearch.core.errors import NoKernelError, TaskError
from kernelsearch.tasks.reach import LIBRARIES, kernels_reached, loaded_names
from kernelsearch.tasks.task import Params, Task

A_MODEL = "kernelsearch optimize FILE --model openai:http://HOST:PORT/v1#MODEL"


PRECISIONS = ("ieee", "tf32x3", "tf32", "half-accumulate")
"""What PRECISION may say; `verify/precision.py` has what each means."""

DOMAINS = ("positive", "nonnegative", "unit", "fixed")
"""What DOMAIN may say of an input; `verify/regimes.py` has what each means."""


@dataclass(frozen=True)
class Source:
    """A task file that was imported."""

    path: Path
    digest: str
    module: ModuleType

    @property
    def name(self) -> str:
        return self.path.stem

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self.module, name, default)


@dataclass(frozen=True)
class Form:
    """One form of task file: how to recognise it, and how to make a Task of it.

    adapt takes the source and whether a kernel must be there.
    """

    name: str
    matches: Callable[[Source], bool]
    adapt: Callable[[Source, bool], Task]


def options(source: Source) -> dict[str, Any]:
    """The optional names that every form may have, as fields of Task."""
    return {
        "precision": _word(source, "PRECISION", PRECISIONS),
        "tolerance": _factor(source, "TOLERANCE"),
        "mutates": _names(source),
        "domain": _domain(source),
        "space": source.get("SPACE"),
        "config": source.get("CONFIG"),
        "baselines": dict(_typed(source, "BASELINES", Mapping, {}, "a dict of functions by name")),
    }


def shape_list(source: Source, name: str) -> list[dict[str, Any]] | None:
    """SHAPES or TEST_SHAPES, None when absent. Raises TaskError when it is not a list of dicts."""
    value = source.get(name)
    if value is None:
        return None
    good = isinstance(value, (list, tuple)) and value and all(isinstance(s, Mapping) for s in value)
    if not good:
        raise TaskError(f"{source.path.name}: {name} must be a list of dicts, such as [dict(rows=7, cols=1000)]")
    return [dict(s) for s in value]


def keyed(prefix: str, shapes: list[Params]) -> tuple[tuple[str, Params], ...]:
    return tuple((f"{prefix}:{i}", dict(params)) for i, params in enumerate(shapes))


def parameters(function: Any) -> tuple[str, ...]:
    """The names of a function's parameters; those of a custom operator of torch are in its schema."""
    if hasattr(function, "_opoverload"):
        return tuple(a.name for a in function._opoverload._schema.arguments)
    named = inspect.signature(function).parameters
    return tuple(name for name, p in named.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))


def required(function: Any) -> tuple[str, ...]:
    """The parameters of a function that have no default."""
    if hasattr(function, "_opoverload"):
        return tuple(a.name for a in function._opoverload._schema.arguments if not a.has_default_value())
    named = inspect.signature(function).parameters
    return tuple(n for n, p in named.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)


def own_callables(source: Source) -> dict[str, Any]:
    """Functions that the file itself defines or binds at its top level, kernels not among them."""
    found = {}
    for name, value in vars(source.module).items():
        if isinstance(value, FunctionType):
            if value.__module__.partition(".")[0] not in LIBRARIES:
                found[name] = value
        elif hasattr(value, "_opoverload"):
            found[name] = value
    return found


def find_launcher(source: Source, takes: tuple[str, ...]) -> Any:
    """The launcher: what LAUNCHER names, else the one function with the reference's parameters that reaches a kernel.

    takes are the reference's parameters. A function of that many required parameters under other
    names counts only when no function has those very names. Raises TaskError, which says what to add.
    """
    named = source.get("LAUNCHER")
    if named is not None:
        launcher = source.get(named) if isinstance(named, str) else named
        if not callable(launcher):
            raise TaskError(f"{source.path.name}: LAUNCHER names {named!r}, which is no function of this file")
        return launcher
    ignored = {"reference", "get_inputs", "get_init_inputs", "bytes_moved", "flops"}
    launching = {name: f for name, f in own_callables(source).items() if name not in ignored and kernels_reached([f])}
    if not launching:
        raise NoKernelError(no_kernel(source))
    exact = {
        n: f for n, f in launching.items() if parameters(f)[: len(takes)] == takes and set(required(f)) <= set(takes)
    }
    alike = exact or {n: f for n, f in launching.items() if len(required(f)) == len(takes)}
    if len(alike) > 1 and source.name in alike:
        return alike[source.name]
    if len(alike) > 1:
        alike = _not_called_by_others(alike)
    if len(alike) == 1:
        return next(iter(alike.values()))
    names = ", ".join(alike or launching)
    why = (
        "several functions could be the launcher"
        if alike
        else f"no function that launches a kernel takes ({', '.join(takes)})"
    )
    raise TaskError(
        f'{source.path.name}: {why} ({names}); add a line\n    LAUNCHER = "{next(iter(alike or launching))}"'
    )


def no_kernel(source: Source) -> str:
    return (
        f"{source.path.name} has no kernel that a function of it launches; let a model write the first one "
        f"(`{A_MODEL}`), or add\n"
        "    @triton.jit\n"
        "    def my_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr): ...\n"
        "    def my_launcher(x):  # the reference's parameters\n"
        "        y = torch.empty_like(x)\n"
        "        my_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)\n"
        "        return y"
    )


def _not_called_by_others(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Of several launching functions those that no other of them calls: a wrapper hides what it wraps."""
    called = set()
    for name, function in functions.items():
        code = getattr(function, "__code__", None)
        called |= {n for n in functions if n != name and code is not None and n in loaded_names(code)}
    return {n: f for n, f in functions.items() if n not in called}


def _names(source: Source) -> tuple[str, ...]:
    value = source.get("MUTATES", ())
    value = (value,) if isinstance(value, str) else value
    if not isinstance(value, (tuple, list)) or not all(isinstance(n, str) for n in value):
        raise TaskError(f'{source.path.name}: MUTATES must be names of inputs, such as ("x",)')
    return tuple(value)


def _word(source: Source, name: str, known: tuple[str, ...]) -> str:
    value = source.get(name, known[0])
    if value not in known:
        raise TaskError(f"{source.path.name}: {name} must be one of {', '.join(known)}, not {value!r}")
    return value


def _factor(source: Source, name: str) -> float | None:
    value = source.get(name)
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
    if value is not None and not good:
        raise TaskError(
            f"{source.path.name}: {name} must be a number above 0 that multiplies what is allowed, not {value!r}"
        )
    return value


def _domain(source: Source) -> dict[str, str]:
    value = dict(_typed(source, "DOMAIN", Mapping, {}, 'a dict such as {"x": "positive"}'))
    wrong = [limit for limit in value.values() if limit not in DOMAINS]
    if wrong:
        raise TaskError(f"{source.path.name}: a domain is one of {', '.join(DOMAINS)}, not {wrong[0]!r}")
    return value


def _typed(source: Source, name: str, kind: Any, default: Any, expected: str) -> Any:
    value = source.get(name, default)
    if not isinstance(value, kind):
        raise TaskError(f"{source.path.name}: {name} must be {expected}")
    return value
