"""A task's space of configs: its file's SPACE, else the union of its autotuner's configs, else inferred.

Inference covers only numbers that should not make a kernel wrong: `num_warps`, `num_stages`, and powers of two around
constexprs named like a tile. Such a constexpr must have the same value at every shape, and the launcher's grid must
follow it, as a function or as a tuple that it divides (`grids.py`), or no grid can depend on it: a loop's step, a group
of tiles (`tile_uses.py`). One that says how a buffer of several kernels is shared out is one name, and at most the
launcher's value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from triton.runtime.autotuner import Autotuner, Heuristics

from kernelsearch.core.errors import ExpressionError, KernelSyntaxError, SpaceError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import LAUNCH_OPTIONS, Config, LaunchFact, TensorFact, Trace, Value
from kernelsearch.kernel.expressions import names_in, validate
from kernelsearch.kernel.literals import flatten_config, flatten_space
from kernelsearch.kernel.source import Function, Kernel
from kernelsearch.kernel.space import MAX_WARPS, explain_name, explain_unknown_name, pipelines_loops
from kernelsearch.tasks.reach import list_decorators
from kernelsearch.tasks.tile_uses import TileUses

BLOCK = re.compile(r"BLOCK|TILE|^B_?[MNKQ]$", re.IGNORECASE)
TILE = re.compile(rf"{BLOCK.pattern}|GROUP|SPLIT|ROWS", re.IGNORECASE)
"""A constexpr with such a name, or one that is used like a tile, is a size that the search may choose."""

NOT_TILE = re.compile(r"DMODEL|HEAD|DIM|(^|_)D[KV]?$", re.IGNORECASE)
"""A constexpr with such a name is a size of the problem, even if the name also has BLOCK in it."""

WARPS = (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4, 5)
TRITON_DEFAULTS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
MAX_TILE = 16384


Tuned = list[list[dict[str, Value]]]
"""The configs of each `@triton.autotune` of a kernel, the outermost first."""


@dataclass(frozen=True)
class Numbers:
    """The space, the seed's own config in it, sentences for the user, and `TaskFacts.own_configs`."""

    space: Mapping[str, tuple[Value, ...]]
    config: Mapping[str, Value]
    notes: tuple[str, ...] = ()
    own_configs: tuple[tuple[Config, ...], ...] = ()


def find_numbers(
    declared: Any, config: Any, kernels: Mapping[str, Any], seed: Kernel, traces: Iterable[Trace]
) -> Numbers:
    """The space and the seed's config.

    declared and config are the file's SPACE and CONFIG, or None; kernels are the live ones by site; traces are those of
    all shapes. A name whose value the launcher computes from the shape has that of the first timed shape. Raises
    SpaceError for an invalid SPACE, CONFIG or CONSTRAINTS (the seed's).
    """
    traces = tuple(traces)
    launches = [launch for trace in traces for launch in trace.launches]
    timed = [launch for trace in traces if trace.shape == "timed:0" for launch in trace.launches]
    tuned = {site: _list_tuned(kernel, _find_kept(site, launches, timed)) for site, kernel in kernels.items()}
    notes: list[str] = []
    if declared is not None:
        space = _read_or_refuse(flatten_space, declared, "SPACE")
        _check_declared(space, seed, kernels)
    else:
        space = read_autotuned_space(tuned)
        if not space:
            space, notes = infer_space(seed, kernels, launches)
    own = find_seed_config(space, tuned, launches, timed)
    if config is not None:
        own = {**own, **_read_or_refuse(flatten_config, config, "CONFIG")}
        _check_names("CONFIG", own, seed, kernels, lambda f: f.params)
    _check_constraints(seed, launches)
    lists = () if config is not None else _list_own_configs(space, tuned)
    for one in (own, *(c for configs in lists for c in configs)):
        space = _with_values(space, one)
    return Numbers(space, own, tuple(notes), lists)


def _list_own_configs(space: Mapping[str, Any], tuned: Mapping[str, Tuned]) -> tuple[tuple[Config, ...], ...]:
    """The configs that each kernel's autotuner would choose from, by the space's names; only real choices."""
    lists = []
    for site, of_site in tuned.items():
        for rows in of_site:
            named = [{_name_in_space(site, name, tuned): value for name, value in row.items()} for row in rows]
            kept = [{name: value for name, value in row.items() if name in space} for row in named]
            lists.append(tuple(c for n, c in enumerate(kept) if c not in kept[:n]))
    return tuple(configs for configs in lists if len(configs) > 1)


def _check_declared(space: Mapping[str, tuple[Value, ...]], seed: Kernel, kernels: Mapping[str, Any]) -> None:
    """Raises SpaceError for unknown names, and when Triton takes no value of a num_warps."""
    if not space:
        raise SpaceError("SPACE is empty; leave it out to have one inferred")
    _check_names("SPACE", space, seed, kernels, lambda f: f.constexprs)
    for name, values in space.items():
        plain = name.rpartition(".")[2]
        # an expression may give a possible number of warps: only a launch can evaluate it
        possible = any(isinstance(v, str) or (_is_power(v) and v <= MAX_WARPS) for v in values)
        if plain == "num_warps" and not possible:
            raise SpaceError(
                f"SPACE is impossible: {name} is a power of two from 1 to {MAX_WARPS}, not one of {list(values)}"
            )


def _check_names(
    where: str,
    names: Iterable[str],
    seed: Kernel,
    kernels: Mapping[str, Any],
    settable: Callable[[Function], tuple[str, ...]],
) -> None:
    """Raises SpaceError for a name that is neither one of its kernel's nor a launch option."""
    for name in names:
        site, _, plain = name.rpartition(".")
        sites = [s for s in ([site] if site else kernels) if s in seed.names]
        known = {*LAUNCH_OPTIONS, *(c for s in sites for c in settable(seed.function(s)))}
        if plain not in known:
            raise SpaceError(explain_name(where, name, known, sites or [site]))


def _check_constraints(seed: Kernel, launches: list[LaunchFact]) -> None:
    """Raises SpaceError for a constraint that is not an expression, or reads a name that is no number of the seed."""
    for text in seed.constraints:
        try:
            validate(text)
        except ExpressionError as error:
            raise SpaceError(f"CONSTRAINTS: {error}") from None
    passed = {n for f in launches for n, v in f.args.items() if isinstance(v, (int, float))}
    if unknown := explain_unknown_name(seed, seed, passed):
        raise SpaceError(unknown)


def _is_power(value: Any) -> TypeGuard[int]:
    """True for the integers 1, 2, 4, ..."""
    return type(value) is int and value > 0 and value & (value - 1) == 0


def common_value(name: str, facts: Sequence[LaunchFact]) -> Any:
    """The value of a constexpr in all launches, None where they differ."""
    values = {f.args.get(name) for f in facts}
    return next(iter(values)) if len(values) == 1 else None


def read_autotuned_space(tuned: Mapping[str, Tuned]) -> dict[str, tuple[Value, ...]]:
    """The union of the values of all `@triton.autotune` configs; options only where they vary or a config sets them."""
    space: dict[str, tuple[Value, ...]] = {}
    for site, of_site in tuned.items():
        for rows in of_site:
            for name in dict.fromkeys(n for row in rows for n in row):
                values = tuple(dict.fromkeys(row[name] for row in rows if name in row))
                if not all(isinstance(v, (bool, int, float)) for v in values):
                    continue  # a word or a dtype: the launch takes the first config's (`worker/launcher/intercept.py`)
                if name not in LAUNCH_OPTIONS or name in ("num_warps", "num_stages") or len(values) > 1:
                    space[_name_in_space(site, name, tuned)] = _sort_values(values)
    return space


def infer_space(
    seed: Kernel, kernels: Mapping[str, Any], launches: list[LaunchFact]
) -> tuple[dict[str, tuple[Value, ...]], list[str]]:
    """(The space by the rules at the top of this file, notes on names that look like sizes but are not in it)."""
    space: dict[str, tuple[Value, ...]] = {}
    sizes, fixed, computed = list[str](), list[str](), list[str]()
    shared = list_shared(seed, kernels, launches)
    for site, kernel in kernels.items():
        facts = [launch for launch in launches if launch.site == site]
        ruled = _list_ruled(kernel)
        function = seed.function(site)
        grid_follows = all(f.grid is None for f in facts)
        uses, tied = TileUses(function), seed.grid.get(site, "")
        for name in function.constexprs:
            value, label = common_value(name, facts), _name_in_space(site, name, kernels)
            follows = uses.is_step(name) or uses.is_order(name) or _follows(tied, uses, name)
            follows = follows or (grid_follows and (bool(TILE.search(name)) or all(name in f.tiles for f in facts)))
            if shared.get(name) and name not in ruled and (follows or name in names_in(tied or "0")):
                space[name] = tuple(v for v in powers_around(value, 1) if v <= value)
            elif name not in {*ruled, *shared} and is_tunable(name, value, uses) and follows:
                of_dot = "tl.dot" in seed.code and (BLOCK.search(name) or not TILE.search(name))
                space[label] = powers_around(value, 16 if of_dot else 1)
            elif value != 1 and _is_power(value) and not NOT_TILE.search(name) and name not in space:
                (fixed if is_tunable(name, value) and name not in shared else sizes).append(f"{label}={value}")
            elif value is None and facts and all(is_tunable(name, f.args.get(name)) for f in facts):
                computed.append(label)
        space[_name_in_space(site, "num_warps", kernels)] = WARPS
        if pipelines_loops(seed, site):
            space[_name_in_space(site, "num_stages", kernels)] = STAGES
    words = ", ".join(f"{name} {list(values)}" for name, values in space.items())
    notes = [f"no SPACE and no @triton.autotune: the space is inferred: {words}"]
    if sizes:
        notes.append(
            f"not tuned: {', '.join(sizes)}, which may be a size of the problem: if it is a tile, name it in SPACE"
        )
    if computed:
        notes.append(
            f"not tuned: {', '.join(computed)}, which the launcher computes from the shape: "
            "if the kernel is right with any tile there, name it in SPACE"
        )
    if fixed:
        notes.append(
            f"not tuned: {', '.join(fixed)}, because the launcher's grid is a tuple that is not seen to follow it: "
            "write `grid = lambda meta: (...)`, or name it in SPACE if no grid depends on it"
        )
    return space, notes


def _follows(grid: str, uses: TileUses, name: str) -> bool:
    """Whether a grid that follows tiles does so on each axis that a tile divides; empty: the launcher's tuple."""
    axes = (uses.list_axes(name) if grid else None) or set()
    parts = cast(ast.Tuple, parse_python(grid, "eval").body).elts if axes else ()
    return bool(axes) and all(axis >= 0 and name in names_in(ast.unparse(parts[axis])) for axis in axes)


def list_shared(seed: Kernel, kernels: Mapping[str, Any], launches: Sequence[LaunchFact]) -> dict[str, int]:
    """Tiles by which several kernels share out a buffer, whose size along an axis they are; 0 where names differ."""
    shared = {}
    tensors = [(f.site, a) for f in launches for a in f.args.values() if isinstance(a, TensorFact)]
    for name in dict.fromkeys(c for site in kernels for c in seed.function(site).constexprs):
        users = {site for site in kernels if name in seed.function(site).constexprs}
        value = common_value(name, [f for f in launches if f.site in users])
        of = [{site for site, b in tensors if a == b} for site, a in tensors if value in a.shape and site in users]
        readers = set().union(*(sites for sites in of if len(sites) > 1))
        if is_tunable(name, value) and value > 1 and readers:
            is_lanes = any(f"arange(0, {name})" in seed.function(site).text for site in users)
            if readers <= users or not is_lanes:
                shared[name] = value if readers <= users else 0
    return shared


def is_tunable(name: str, value: Any, uses: TileUses | None = None) -> bool:
    """True if a constexpr of this name, value and use is a size that the search may choose: no flag, no dimension."""
    known = _is_power(value) and not NOT_TILE.search(name)
    return known and bool(TILE.search(name) or (value > 1 and uses and uses.is_tile(name)))


def powers_around(value: int, least: int) -> tuple[int, ...]:
    """Powers of two from a quarter of value to four times it."""
    low, high = min(least, value), max(MAX_TILE, value)
    return tuple(v for v in (value // 4, value // 2, value, value * 2, value * 4) if low <= v <= high and v > 0)


def find_seed_config(
    space: Mapping[str, Any], tuned: Mapping[str, Tuned], launches: list[LaunchFact], timed: list[LaunchFact]
) -> dict[str, Value]:
    """The seed's own values for the space's names: from its autotuner's first config, else from the launcher.

    timed are the launches at the first timed shape: theirs is the value where the launcher computes it from the shape.
    """
    config: dict[str, Value] = {}
    for name in space:
        dotted, _, plain = name.rpartition(".")
        first = [rows[0] for s in tuned if dotted in ("", s) for rows in tuned[s][:1]]
        passed = [row[plain] for row in first if plain in row]
        if passed:
            config[name] = passed[0]
            continue
        for facts in (launches, timed):
            passed = _list_passed(plain, [f for f in facts if not dotted or f.site == dotted])
            if passed and len(set(passed)) == 1:
                config[name] = passed[0]
                break
    return config


def _list_passed(name: str, launches: list[LaunchFact]) -> list[Value]:
    """The values of an option or parameter in these launches."""
    if name in LAUNCH_OPTIONS:
        return [f.options.get(name, TRITON_DEFAULTS.get(name)) for f in launches]
    return [cast(Value, f.args[name]) for f in launches if name in f.args]


def _find_kept(site: str, launches: list[LaunchFact], timed: list[LaunchFact]) -> set[int]:
    """The places of the configs that `early_config_prune` keeps at all shapes, else at the first timed; empty: all."""
    for facts in (launches, timed):
        kept = [set(f.kept) for f in facts if f.site == site and f.kept is not None]
        if kept and (common := set.intersection(*kept)):
            return common
    return set()


def _list_tuned(kernel: Any, kept: Collection[int] = ()) -> Tuned:
    """The configs of each `@triton.autotune` of a kernel, the outermost first, without what its heuristics overrule.

    Of the outermost only those at the places `kept`, if there are any.
    """
    ruled = _list_ruled(kernel)

    def read(config: Any) -> dict[str, Value]:
        options = {name: getattr(config, name, None) for name in LAUNCH_OPTIONS if name not in ruled}
        return {**config.kwargs, **{k: v for k, v in options.items() if v is not None}}

    lists = [[read(c) for c in w.configs] for w in list_decorators(kernel) if isinstance(w, Autotuner)]
    return [[row for i, row in enumerate(rows) if n or not kept or i in kept] for n, rows in enumerate(lists)]


def _list_ruled(kernel: Any) -> set[str]:
    """The names that a kernel's `@triton.heuristics` compute."""
    return {n for w in list_decorators(kernel) if isinstance(w, Heuristics) for n in w.values}


def _name_in_space(site: str, name: str, kernels: Mapping[str, Any]) -> str:
    return name if len(kernels) == 1 else f"{site}.{name}"


def _sort_values(values: tuple[Value, ...]) -> tuple[Value, ...]:
    numeric = all(type(v) in (int, float) for v in values)
    return tuple(sorted(cast(tuple[float, ...], values))) if numeric else values


def _with_values(space: Mapping[str, tuple[Value, ...]], config: Mapping[str, Value]) -> dict[str, tuple[Value, ...]]:
    """The space with the seed's own values added: the seed is a point of its space."""
    whole = dict(space)
    for name, value in config.items():
        if name in whole and value not in whole[name]:
            whole[name] = _sort_values((*whole[name], value))
    return whole


def _read_or_refuse(read: Any, value: Any, where: str) -> dict[str, Any]:
    try:
        return read(value, where)
    except KernelSyntaxError as error:
        raise SpaceError(str(error)) from None
