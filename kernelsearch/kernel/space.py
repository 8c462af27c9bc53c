"""A space of configs: names to values, its product, its neighbours, and what is known to be impossible.

Nothing here compiles or runs: a predicate says which configs are not worth a trial, and the
built-in one knows only two facts, the shape of `num_warps` and the elements that a thread can hold.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Protocol

from kernelsearch.core.errors import SpaceError
from kernelsearch.core.parsing import parsed
from kernelsearch.core.types import LAUNCH_OPTIONS, Config, TaskFacts, Value, config_key

MAX_ELEMENTS_PER_THREAD = 128
"""A 32-bit register each, of the 255 that a thread can have: beyond it a block spills."""

MAX_WARPS = 32
DEFAULT_WARPS = 4
"""Triton's own default for `num_warps`."""


class HasSource(Protocol):
    """What the built-in predicate reads of a `source.Function`."""

    name: str
    text: str
    params: tuple[str, ...]


class HasFunctions(Protocol):
    """What is read of a `source.Kernel` here: its functions, which of them are launched, and at which sites."""

    functions: tuple[HasSource, ...]
    entries: tuple[str, ...]

    def sites_of(self, function: str) -> tuple[str, ...]: ...


Predicate = Callable[[HasFunctions, Config], bool]
"""`possible(kernel, config)`: False drops the config before a trial is spent on it."""


@dataclass(frozen=True)
class Space:
    """A finite space: every name takes one of its values. Raises SpaceError when a name has none."""

    values: Mapping[str, tuple[Value, ...]]

    def __post_init__(self) -> None:
        clean: dict[str, tuple[Value, ...]] = {}
        for name, values in self.values.items():
            if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
                raise SpaceError(f"the space's {name!r} must be a list of values, not {values!r}")
            distinct = {config_key({"": v}): v for v in values}
            if not distinct:
                raise SpaceError(f"the space's {name!r} has no values: give at least one, or leave the name out")
            clean[name] = tuple(distinct.values())
        object.__setattr__(self, "values", clean)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.values)

    @cached_property
    def size(self) -> int:
        """How many configs the product has, impossible ones included; 1 for a space without names."""
        return math.prod(len(v) for v in self.values.values())

    def __contains__(self, config: Config) -> bool:
        """Whether every name of the space has one of its values in config; other names are not looked at."""
        return all(name in config and _index(values, config[name]) is not None for name, values in self.values.items())

    def configs(self) -> Iterator[dict[str, Value]]:
        """All configs in enumeration order: the last name changes fastest."""
        for point in itertools.product(*self.values.values()):
            yield dict(zip(self.values, point, strict=True))

    def neighbours(self, config: Config) -> Iterator[dict[str, Value]]:
        """Configs that differ in one name: by one step where its values are numbers, else by any other value.

        A value that is not in the space counts as lying next to the nearest values, or to all of them.
        """
        for name, values in self.values.items():
            for value in _next_to(values, config.get(name)):
                yield {**config, name: value}

    def outward(self, config: Config) -> Iterator[dict[str, Value]]:
        """All configs of the space, nearest to config first (steps of `neighbours`); config itself first if inside."""
        given = [config.get(name) for name in self.values]
        pairs = list(zip(self.values.values(), given, strict=True))
        start = tuple(_index(values, value) for values, value in pairs)  # None: a value that is not in the space
        outside = [_beside(values, value) for values, value in pairs]
        seen, level = {start}, [start]
        if None not in start:
            yield self._at(start)
        while level:
            following = []
            for at in level:
                for place, index in enumerate(at):
                    for step in outside[place] if index is None else self._steps[place][index]:
                        near = (*at[:place], step, *at[place + 1 :])
                        if near in seen:
                            continue
                        seen.add(near)
                        following.append(near)
                        if None not in near:
                            yield self._at(near)
            level = following

    @cached_property
    def _steps(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """By name and index of a value, the indexes of the values next to it: long runs walk far, past what was tried."""
        return tuple(tuple(_beside(values, value) for value in values) for values in self.values.values())

    def _at(self, indexes: tuple[int, ...]) -> dict[str, Value]:
        return {name: values[i] for (name, values), i in zip(self.values.items(), indexes, strict=True)}

    def merged(self, own: Mapping[str, tuple[Value, ...]]) -> Space:
        """The same space with the names of own put over it."""
        return Space({**self.values, **own})


def checked(space: Space, kernel: HasFunctions, possible: Predicate) -> int:
    """How many configs are possible, counted up to 10,000. Raises SpaceError when none is."""
    if not space.values:
        raise SpaceError("the space is empty: name at least one constexpr or launch option with its values in SPACE")
    count = sum(1 for config in itertools.islice(space.configs(), 10_000) if possible(kernel, config))
    if not count:
        raise SpaceError(
            f"none of the {space.size} configs of the space is possible: "
            f"num_warps must be a power of two up to {MAX_WARPS}, "
            f"and a block may have at most {MAX_ELEMENTS_PER_THREAD} elements a thread"
        )
    return count


def present(name: str, kernel: HasFunctions) -> bool:
    """Whether a config name means something for this kernel: a launch option, or a parameter of a function."""
    of, dot, plain = name.rpartition(".")
    meant = (f for f in kernel.functions if not dot or of == f.name or of in kernel.sites_of(f.name))
    return any(plain in LAUNCH_OPTIONS or plain in f.params for f in meant)


def known_constraints(task: TaskFacts) -> Predicate:
    """`possible` for a task: constexprs that only its launcher sets count as at each timed shape, by its traces."""
    launched: dict[str, dict[str, Config]] = {}
    for shape, trace in task.traces.items():
        if any(s.key == shape and s.timed for s in task.shapes):
            for launch in trace.launches:
                numbers = {n: v for n, v in launch.args.items() if isinstance(v, int) and not isinstance(v, bool)}
                launched.setdefault(launch.site, {})[config_key(numbers)] = numbers
    at = {site: tuple(by_key.values()) for site, by_key in launched.items()}
    return lambda kernel, config: possible(kernel, config, at)


def possible(
    kernel: HasFunctions, config: Config, launched: Mapping[str, Sequence[Config]] = MappingProxyType({})
) -> bool:
    """False for a config that is known to be bad: `num_warps` not a power of two, or too large a block.

    The largest static block is that of `tl.arange`, `tl.zeros` and `tl.full` in the launched functions, where
    its shape follows from the config, or from what the launcher passes to the function of that name
    (launched); shapes that do not are left to the compiler.
    """
    for function in kernel.functions:
        if function.name not in kernel.entries:
            continue
        sites = kernel.sites_of(function.name)
        values = config_of(config, function.name, sites)
        warps = values.get("num_warps", DEFAULT_WARPS)
        if isinstance(warps, int) and not (0 < warps <= MAX_WARPS and warps & (warps - 1) == 0):
            return False
        threads = 32 * warps if isinstance(warps, int) else 32 * MAX_WARPS
        for passed in [p for site in sites for p in launched.get(site, ())] or [{}]:
            if largest_block(function.text, {**passed, **values}) > MAX_ELEMENTS_PER_THREAD * threads:
                return False
    return True


def config_of(config: Config, function: str, sites: Sequence[str] = ()) -> dict[str, Value]:
    """A config as one function sees it: plain names, over them its sites' dotted names, over them its own."""
    seen = {name: value for name, value in config.items() if "." not in name}
    for of in (*sites, function):
        seen |= {name.rpartition(".")[2]: v for name, v in config.items() if name.startswith(f"{of}.")}
    return seen


def largest_block(text: str, values: Config) -> int:
    """Elements of the largest static block in a function's text; 0 when none is known."""
    return max((_elements(shape, values) for shape in _static_shapes(text)), default=0)


@lru_cache(maxsize=512)
def _static_shapes(text: str) -> tuple[ast.expr, ...]:
    tree = parsed(text)
    shapes = _crossed(tree)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if node.func.attr == "arange" and len(node.args) >= 2:
            shapes.append(ast.BinOp(node.args[1], ast.Sub(), node.args[0]))
        elif node.func.attr in ("zeros", "full"):
            shapes.append(node.args[0])
    return tuple(shapes)


def _crossed(tree: ast.Module) -> list[ast.expr]:
    """The blocks that `arange(...)[:, None]` and `arange(...)[None, :]` span together.

    Not with `tl.dot`: there a column of one operand never meets a row of the other.
    """
    if any(isinstance(node, ast.Attribute) and node.attr == "dot" for node in ast.walk(tree)):
        return []
    assigned = {
        n.targets[0].id: n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    }
    sides: dict[int, list[ast.expr]] = {0: [], 1: []}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2):
            continue
        axes = [i for i, e in enumerate(node.slice.elts) if isinstance(e, ast.Slice)]
        value = assigned.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
        for call in ast.walk(value) if len(axes) == 1 else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "arange":
                sides[axes[0]].append(ast.BinOp(call.args[1], ast.Sub(), call.args[0]))
    return [ast.Tuple([column, row], ast.Load()) for column in sides[0] for row in sides[1]]


def _elements(shape: ast.expr, values: Config) -> int:
    sides = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else [shape]
    known = [_number(side, values) for side in sides]
    return math.prod(known) if all(side is not None for side in known) else 0


def _number(node: ast.expr, values: Config) -> int | None:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            value = values.get(name)
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        case ast.BinOp(left=left, op=ast.Mult() | ast.FloorDiv() | ast.Add() | ast.Sub() as op, right=right):
            a, b = _number(left, values), _number(right, values)
            if a is None or b is None or (isinstance(op, ast.FloorDiv) and b == 0):
                return None
            match op:
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
                case ast.Add():
                    return a + b
            return a - b
    return None


def _index(values: tuple[Value, ...], value: Value) -> int | None:
    return next((i for i, v in enumerate(values) if v == value and type(v) is type(value)), None)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _next_to(values: tuple[Value, ...], value: Value) -> list[Value]:
    if not (_is_number(value) and all(_is_number(v) for v in values)):
        return [v for v in values if not (v == value and type(v) is type(value))]
    below = [v for v in values if v < value]
    above = [v for v in values if v > value]
    return [*([max(below)] if below else []), *([min(above)] if above else [])]


def _beside(values: tuple[Value, ...], value: Value) -> tuple[int, ...]:
    """The indexes of what is next to a value."""
    return tuple(_index(values, near) for near in _next_to(values, value))
