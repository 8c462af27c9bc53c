"""A space of configs: names with their values, the product, neighbours, and configs that are known to be impossible.

Nothing here compiles or runs. A predicate says which configs are not worth a trial; the built-in one knows only three
facts: `num_warps` is a power of two, a thread can hold so many elements, and what CONSTRAINTS say.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TypeGuard

from kernelsearch.core.errors import ExpressionError, SpaceError
from kernelsearch.core.parsing import find_nearest, parse_python
from kernelsearch.core.types import LAUNCH_OPTIONS, Config, TaskFacts, Value, config_key
from kernelsearch.kernel.expressions import Scope, evaluate, names_in
from kernelsearch.kernel.literals import MAX_THREADS, MAX_WARPS, refuse_option
from kernelsearch.kernel.source import GLUON, Function, Kernel
from kernelsearch.kernel.unrolling import fold

MAX_ELEMENTS_PER_THREAD = 128
"""Each needs a 32-bit register of the 255 that a thread can have: larger blocks spill."""

CONSUMERS = 2
"""Groups of `num_warps` warps that share out the blocks of a warp-specialised loop."""
DEFAULT_WARPS = 4
"""Triton's own default for `num_warps`."""

Predicate = Callable[[Kernel, Config], bool]
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

    @cached_property
    def size(self) -> int:
        """How many configs the product has, impossible ones included; 1 for a space without names."""
        return math.prod(len(v) for v in self.values.values())

    def __contains__(self, config: Config) -> bool:
        """Whether config gives every name of the space one of its values; other names are ignored."""
        return all(name in config and _index_of(values, config[name]) >= 0 for name, values in self.values.items())

    def iterate_configs(self) -> Iterator[dict[str, Value]]:
        """All configs in enumeration order: the last name changes fastest."""
        for point in itertools.product(*self.values.values()):
            yield dict(zip(self.values, point, strict=True))

    def iterate_neighbours(self, config: Config) -> Iterator[dict[str, Value]]:
        """Configs that differ in one name: by one step where its values are numbers, else by any other value.

        A value outside the space counts as next to the nearest values, or to all values if they are not numbers.
        """
        for name, values in self.values.items():
            for index in _find_neighbours(values, config.get(name)):
                yield {**config, name: values[index]}

    def iterate_outward(self, config: Config) -> Iterator[dict[str, Value]]:
        """All configs of the space, nearest to config first (`iterate_neighbours`); config itself first if inside."""
        pairs = [(values, config.get(name)) for name, values in self.values.items()]
        start = tuple(_index_of(values, value) for values, value in pairs)  # -1: a value that is not in the space
        steps = [(*own, _find_neighbours(*pair)) for own, pair in zip(self._steps, pairs, strict=True)]  # -1: the last
        seen, queue = {start}, deque([start])
        while queue:
            at = queue.popleft()
            if -1 not in at:
                yield {name: values[i] for (name, values), i in zip(self.values.items(), at, strict=True)}
            for place, index in enumerate(at):
                for step in steps[place][index]:
                    near = (*at[:place], step, *at[place + 1 :])
                    if near not in seen:
                        seen.add(near)
                        queue.append(near)

    @cached_property
    def _steps(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """For each name and index of a value, the indices of its neighbours (cached: long runs walk far)."""
        return tuple(tuple(_find_neighbours(values, value) for value in values) for values in self.values.values())


def require_possible_config(space: Space, kernel: Kernel, possible: Predicate, start: Config | None = None) -> None:
    """Raises SpaceError for an empty space, and where none of 10,000 configs is possible: those nearest to start, else
    the first ones.
    """
    if not space.values:
        raise SpaceError("the space is empty: name at least one constexpr or launch option with its values in SPACE")
    configs = space.iterate_outward(start) if start is not None and start in space else space.iterate_configs()
    if not any(possible(kernel, config) for config in itertools.islice(configs, 10_000)):
        raise SpaceError(
            f"none of the {space.size} configs of the space is possible: "
            f"num_warps must be a power of two up to {MAX_WARPS}, "
            f"and a block may have at most {MAX_ELEMENTS_PER_THREAD} elements a thread"
            + "".join(f", and CONSTRAINTS has {text!r}" for text in kernel.constraints)
        )


def is_name_of(name: str, kernel: Kernel) -> bool:
    """Whether a config name means something for this kernel: see `names_of`."""
    return bool(functions_of(name, kernel))


def functions_of(name: str, kernel: Kernel) -> list[str]:
    """The functions for which a config name means something: all that have it, or those of the name's prefix."""
    prefix, _, plain = name.rpartition(".")
    meant = (f for f in kernel.functions if not prefix or prefix == f.name or prefix in kernel.sites_of(f.name))
    return [f.name for f in meant if plain in names_of(kernel, f)]


def names_of(kernel: Kernel, function: Function) -> frozenset[str]:
    """The plain names that a config may set for a function: launch options, parameters, what its expressions read.

    In Gluon no compiler pipelines loops: `num_stages` says nothing there.
    """
    options = {*LAUNCH_OPTIONS} - ({"num_stages"} if kernel.language == GLUON else set())
    return frozenset((*options, *function.params)).union(*map(names_in, kernel.expressions_of(function.name)))


def pipelines_loops(kernel: Kernel, name: str) -> bool:
    """Whether `num_stages` can change a function's code, or that of one that it calls.

    Triton pipelines loops over a range with a matrix product in them; those that name their stages do not read it.
    """
    reached = [name]
    for called in reached:
        reached += [f for f in kernel.function(called).calls if f not in reached and f in kernel.names]
    trees = [parse_python(kernel.function(f).text) for f in reached]
    loops = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.For)]
    ranges = [(ast.unparse(n.iter), ast.unparse(n)) for n in loops]
    of_products = [f for f in reached if re.search(r"\bdot(_scaled)?\(", kernel.function(f).text)]
    calls = re.compile(rf"\bdot(_scaled)?\(|\b({'|'.join(of_products) or 'dot'})\(")
    return any(not re.search(r"static_range|num_stages=", over) and calls.search(loop) for over, loop in ranges)


def explain_unknown_name(kernel: Kernel, seed: Kernel, passed: Iterable[str] = ()) -> str:
    """A sentence on the first name in CONFIG, SPACE or CONSTRAINTS that means nothing; empty where all do.

    The seed's names count too: the launcher's grid may read them. passed are the launcher's arguments that are numbers.
    """
    sources = (kernel, seed)
    own = {n for k in sources for f in k.functions for n in (*f.constexprs, *(names_of(k, f) - {*f.params}))}
    for where, names in (("CONFIG", kernel.config), ("SPACE", kernel.space)):
        for name in names:
            if not any(is_name_of(name, k) for k in sources):
                return explain_name(where, name, own, kernel.entries)
    for text in kernel.constraints:
        for name in sorted(names_in(text) - own - {*passed}):
            return explain_name("CONSTRAINTS", name, {*own, *passed}, kernel.entries)
    return ""


def explain_name(where: str, name: str, known: Iterable[str], kernels: Iterable[str]) -> str:
    """A sentence that says that a name is unknown there, with the known name that is closest to it."""
    near = find_nearest(name.rpartition(".")[2], known)
    names = ", ".join(sorted({*known} - {*LAUNCH_OPTIONS})) or "none"
    instead = f"did you mean {near!r}?" if near else f"it has {names}; the options are {', '.join(LAUNCH_OPTIONS)}"
    return f"{where} has {name!r}, which is no constexpr of {', '.join(kernels)} and no launch option: {instead}"


class TaskPredicate:
    """`possible` for a task; values that only its launcher sets come from the traces of timed shapes.

    A config whose blocks fit at one of the timed shapes is possible, and is of use at such shapes only (`find_shapes`).
    CONSTRAINTS hold at all of them; a kernel without any of its own has those of the task.
    """

    def __init__(self, task: TaskFacts) -> None:
        self._own, self._lanes = _constraints_of(task), task.lanes
        self._values = _read_launcher_values(task)
        self._shapes: list[Mapping[str, Sequence[Config]]] = [*self._values.values()] or [{}]

    def __call__(self, kernel: Kernel, config: Config) -> bool:
        if self.find_broken(kernel, config) is not None:
            return False
        return any(is_possible(kernel, config, values, (), self._lanes) for values in self._shapes)

    def find_broken(self, kernel: Kernel, config: Config) -> str | None:
        """The first of a kernel's constraints, else of its task's, that a config breaks."""
        if not (constraints := kernel.constraints or self._own):
            return None
        known = (values for by_site in self._shapes for _, values in _list_values(kernel, config, by_site))
        return next(filter(None, (_find_broken(constraints, values) for values in known)), None)

    def find_shapes(self, kernel: Kernel, config: Config) -> set[str]:
        """The keys of the timed shapes at which its blocks fit; of all, where they fit at none."""
        fitting = {s for s, values in self._values.items() if is_possible(kernel, config, values, (), self._lanes)}
        return fitting or {*self._values}


def _constraints_of(task: TaskFacts) -> tuple[str, ...]:
    """The seed's constraints; a recorded space is a task without a seed."""
    return Kernel.parse(task.seed).constraints if "CONSTRAINTS" in task.seed else ()


def _read_launcher_values(task: TaskFacts) -> dict[str, dict[str, tuple[Config, ...]]]:
    """The numbers that the launcher passes, by timed shape and site."""
    by_shape: dict[str, dict[str, tuple[Config, ...]]] = {}
    for shape in (s.key for s in task.shapes if s.timed and s.key in task.traces):
        by_site: dict[str, dict[str, Config]] = {}
        for launch in task.traces[shape].launches:
            numbers = {n: v for n, v in {**launch.options, **launch.args}.items() if isinstance(v, (int, float))}
            by_site.setdefault(launch.site, {})[config_key(numbers)] = numbers
        by_shape[shape] = {site: tuple(by_key.values()) for site, by_key in by_site.items()}
    return by_shape


def find_broken_constraint(kernel: Kernel, config: Config, task: TaskFacts) -> str | None:
    """The first of a kernel's constraints, else of its task's, that a config breaks."""
    return TaskPredicate(task).find_broken(kernel, config)


def is_possible(
    kernel: Kernel,
    config: Config,
    launcher_values: Mapping[str, Sequence[Config]] = MappingProxyType({}),
    constraints: Sequence[str] | None = None,
    lanes: int = 32,
) -> bool:
    """False for a config that is known to be bad: an impossible `num_warps`, too large a block, CONSTRAINTS.

    Blocks come from `tl.arange`, `tl.zeros` and `tl.full` in the launched functions. Their shapes must follow from the
    config or from the launcher's own arguments (launcher_values, by site); other shapes are left to the compiler.
    constraints are the kernel's own by default; one is held against each launched function that has all its names.
    """
    constraints = kernel.constraints if constraints is None else constraints
    for function, values in _list_values(kernel, config, launcher_values):
        warps = values.get("num_warps")
        threads = lanes * warps if isinstance(warps, int) else MAX_THREADS
        options = [(n, v) for n, v in values.items() if n in LAUNCH_OPTIONS and not isinstance(v, str)]
        if threads > MAX_THREADS or any(refuse_option(n, v) for n, v in options):
            return False
        if "warp_specialize=" in function.text:
            threads *= CONSUMERS
        if largest_block_of(function.text, values) > MAX_ELEMENTS_PER_THREAD * threads:
            return False
        if _find_broken(constraints, values):
            return False
    return True


def _list_values(
    kernel: Kernel, config: Config, launcher_values: Mapping[str, Sequence[Config]]
) -> Iterator[tuple[Function, Config]]:
    """Each launched function with the values that it sees under a config, once for each of its launches."""
    for function in kernel.functions:
        if function.name in kernel.entries:
            sites = kernel.sites_of(function.name)
            values = config_of(config, function.name, sites)
            for passed in [p for site in sites for p in launcher_values.get(site, ())] or [{}]:
                yield function, {"num_warps": DEFAULT_WARPS, **passed, **values}


def _find_broken(constraints: Sequence[str], values: Config) -> str | None:
    """The first constraint that does not hold, or has no value; one whose names have no number here is passed over."""
    numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
    for text in constraints:
        try:
            if names_in(text) <= numbers.keys() and not evaluate(text, Scope(numbers)):
                return text
        except ExpressionError:
            return text
    return None


def config_of(config: Config, function: str, sites: Sequence[str] = ()) -> dict[str, Value]:
    """A config as one function sees it; its own dotted names come before its sites', and those before plain names."""
    values = {name: value for name, value in config.items() if "." not in name}
    for prefix in (*sites, function):
        values |= {name.rpartition(".")[2]: v for name, v in config.items() if name.startswith(f"{prefix}.")}
    return values


def largest_block_of(text: str, values: Config) -> int:
    """Elements of the largest static block in a function's text; 0 when none is known."""
    return max((_count_elements(shape, values) for shape in _find_static_shapes(text)), default=0)


@lru_cache(maxsize=512)
def _find_static_shapes(text: str) -> tuple[ast.expr, ...]:
    tree = parse_python(text)
    shapes = _find_crossed_blocks(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="zeros" | "full"), args=[shape, *_]):
                shapes.append(shape)
            case _ if (length := _length_of_arange(node)) is not None:
                shapes.append(length)
    return tuple(shapes)


def _length_of_arange(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Attribute(attr="arange"), args=[start, end, *_]):
            return ast.BinOp(end, ast.Sub(), start)
    return None


def _find_crossed_blocks(tree: ast.Module) -> list[ast.expr]:
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
        if len(axes) == 1:
            sides[axes[0]] += filter(None, map(_length_of_arange, ast.walk(value)))
    return [ast.Tuple([column, row], ast.Load()) for column in sides[0] for row in sides[1]]


def _count_elements(shape: ast.expr, values: Config) -> int:
    sides = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else [shape]
    known = [n for side in sides if isinstance(n := fold(side, values), int)]
    return math.prod(known) if len(known) == len(sides) else 0


def _index_of(values: tuple[Value, ...], value: Value) -> int:
    """The value's index, -1 if it is not there."""
    return next((i for i, v in enumerate(values) if v == value and type(v) is type(value)), -1)


def is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _find_neighbours(values: tuple[Value, ...], value: Value) -> tuple[int, ...]:
    """The indexes of the values next to a value: the next number below and above, or all others if some are none."""
    numbers = [v for v in values if is_number(v)]
    if not is_number(value) or len(numbers) < len(values):
        own = _index_of(values, value)
        return tuple(i for i in range(len(values)) if i != own)
    below, above = (sorted(v for v in numbers if (v - value) * sign > 0) for sign in (-1, 1))
    return tuple(map(numbers.index, (*below[-1:], *above[:1])))
