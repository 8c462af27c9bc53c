"""A task's space of configs: what its file says, else the union of its autotuner's configs, else inferred.

Inference changes only what cannot make a kernel wrong on purpose: `num_warps`, `num_stages`, and
powers of two around constexprs named like a tile, where the launcher gives the same value at every
shape, and its grid is a function that follows the value or cannot depend on it (`steps`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from triton.runtime.autotuner import Autotuner, Heuristics

from kernelsearch.core.errors import KernelSyntaxError, SpaceError
from kernelsearch.core.types import LAUNCH_OPTIONS, LaunchFact, Trace, Value
from kernelsearch.kernel.source import Kernel, flat_config, flat_space
from kernelsearch.kernel.space import MAX_WARPS
from kernelsearch.tasks.reach import layers
from kernelsearch.tasks.steps import is_step

TILE = re.compile(r"BLOCK|TILE|GROUP|SPLIT|ROWS", re.IGNORECASE)
"""A constexpr with such a name is a size that the search may choose."""

NOT_TILE = re.compile(r"DMODEL|HEAD|DIM|(^|_)D[KV]?$", re.IGNORECASE)
"""A constexpr with such a name is a size of the problem, though it may also say BLOCK."""

WARPS = (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4, 5)
TRITON_DEFAULTS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
MAX_TILE = 16384


@dataclass(frozen=True)
class Numbers:
    """The space, the seed's own config in it, and sentences for the user."""

    space: Mapping[str, tuple[Value, ...]]
    config: Mapping[str, Value]
    notes: tuple[str, ...] = ()


def numbers(declared: Any, config: Any, kernels: Mapping[str, Any], seed: Kernel, traces: Iterable[Trace]) -> Numbers:
    """The space and the seed's config.

    declared and config are the file's SPACE and CONFIG, or None; kernels are the live ones by site,
    traces those of all shapes. A name whose value the launcher computes from the shape is in the
    config only when the file's CONFIG says so. Raises SpaceError for a SPACE or CONFIG that is none.
    """
    launches = [launch for trace in traces for launch in trace.launches]
    notes: list[str] = []
    if declared is not None:
        space = _checked(flat_space, declared, "SPACE")
        _must_exist(space, seed, kernels)
        _must_be_possible(space)
    else:
        space = autotuned(kernels)
        if not space:
            space = inferred(seed, kernels, launches)
            words = ", ".join(f"{name} {list(values)}" for name, values in space.items())
            notes.append(f"no SPACE and no @triton.autotune: the space is inferred: {words}")
            notes += left_alone(space, seed, kernels, launches)
    own = seed_config(space, kernels, launches)
    if config is not None:
        own = {**own, **_checked(flat_config, config, "CONFIG")}
    return Numbers(_with_values(space, own), own, tuple(notes))


def _must_be_possible(space: Mapping[str, tuple[Value, ...]]) -> None:
    """Raises SpaceError when no value of a num_warps is one that Triton takes."""
    for name, values in space.items():
        if name.rpartition(".")[2] == "num_warps" and not any(_is_warps(v) for v in values):
            raise SpaceError(
                f"SPACE is impossible: {name} is a power of two from 1 to {MAX_WARPS}, not one of {list(values)}"
            )


def _is_warps(value: Value) -> bool:
    if isinstance(value, str):
        return True  # an expression, which only a launch can evaluate
    return _is_power(value) and value <= MAX_WARPS


def _is_power(value: Any) -> bool:
    """Whether this is a power of two: 1, 2, 4, ..."""
    return type(value) is int and value > 0 and value & (value - 1) == 0


def _passed(name: str, facts: list[LaunchFact]) -> Any:
    """What all launches pass as a constexpr, None where they differ."""
    values = {f.args.get(name) for f in facts}
    return next(iter(values)) if len(values) == 1 else None


def autotuned(kernels: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
    """The union of the values of all `@triton.autotune` configs; options only where they vary or a config sets them."""
    space: dict[str, tuple[Value, ...]] = {}
    for site, kernel in kernels.items():
        for tuner in (w for w in layers(kernel) if isinstance(w, Autotuner)):
            rows = [_row(config) for config in tuner.configs]
            for name in dict.fromkeys(n for row in rows for n in row):
                values = tuple(dict.fromkeys(row[name] for row in rows if name in row))
                if not all(isinstance(v, (bool, int, float)) for v in values):
                    continue  # a word or a dtype: the launch takes the first config's (`worker/intercept.py`)
                if name not in LAUNCH_OPTIONS or name in ("num_warps", "num_stages") or len(values) > 1:
                    space[_named(site, name, kernels)] = _ordered(values)
    return space


def inferred(seed: Kernel, kernels: Mapping[str, Any], launches: list[LaunchFact]) -> dict[str, tuple[Value, ...]]:
    """num_warps, num_stages where there is a loop, and tiles as this file's first sentences say."""
    space: dict[str, tuple[Value, ...]] = {}
    for site, kernel in kernels.items():
        facts = [launch for launch in launches if launch.site == site]
        ruled = {n for w in layers(kernel) if isinstance(w, Heuristics) for n in w.values}
        function = seed.function(site)
        dotted = "tl.dot" in seed.code
        follows = all(f.grid is None for f in facts)
        for name in function.constexprs:
            value = _passed(name, facts)
            if name not in ruled and tunable(name, value) and (follows or is_step(function, name)):
                space[_named(site, name, kernels)] = around(value, 16 if dotted and _is_block(name) else 1)
        space[_named(site, "num_warps", kernels)] = WARPS
        if re.search(r"^\s+(for|while)\b", seed.code, re.MULTILINE):
            space[_named(site, "num_stages", kernels)] = STAGES
    return space


def left_alone(
    space: Mapping[str, Any], seed: Kernel, kernels: Mapping[str, Any], launches: list[LaunchFact]
) -> list[str]:
    """A sentence on the constexprs that look like sizes and are not in an inferred space, and how to have them tuned."""
    names, fixed = [], []
    for site in kernels:
        facts = [launch for launch in launches if launch.site == site]
        for name in seed.function(site).constexprs:
            value = _passed(name, facts)
            if value == 1 or not _is_power(value) or _named(site, name, kernels) in space or NOT_TILE.search(name):
                continue
            (fixed if tunable(name, value) else names).append(f"{_named(site, name, kernels)}={value}")
    notes = []
    if names:
        notes.append(
            f"not tuned: {', '.join(names)}, which may be a size of the problem: if it is a tile, name it in SPACE"
        )
    if fixed:
        notes.append(
            f"not tuned: {', '.join(fixed)}, because the launcher's grid is a tuple that does not follow it: "
            "write `grid = lambda meta: (...)`"
        )
    return notes


def tunable(name: str, value: Any) -> bool:
    """Whether a constexpr of this name and value is a size that the search may choose: no flag, no dimension."""
    return _is_power(value) and bool(TILE.search(name)) and not NOT_TILE.search(name)


def around(value: int, least: int) -> tuple[int, ...]:
    """Powers of two from a quarter of value to four times it."""
    low, high = min(least, value), max(MAX_TILE, value)
    return tuple(v for v in (value // 4, value // 2, value, value * 2, value * 4) if low <= v <= high and v > 0)


def seed_config(space: Mapping[str, Any], kernels: Mapping[str, Any], launches: list[LaunchFact]) -> dict[str, Value]:
    """What the seed itself uses for the space's names: its autotuner's first config, else what the launcher passes."""
    config: dict[str, Value] = {}
    for name in space:
        dotted, _, plain = name.rpartition(".")
        facts = [f for f in launches if not dotted or f.site == dotted]
        first: dict[str, Value] = {}
        for site, kernel in kernels.items():
            tuners = [w for w in layers(kernel) if isinstance(w, Autotuner)]
            if tuners and dotted in ("", site):
                first = {**_row(tuners[0].configs[0]), **first}
        if plain in first:
            config[name] = first[plain]
            continue
        if plain in LAUNCH_OPTIONS:
            passed = [f.options.get(plain, TRITON_DEFAULTS.get(plain)) for f in facts]
        else:
            passed = [f.args[plain] for f in facts if plain in f.args]
        if passed and len(set(passed)) == 1:
            config[name] = passed[0]
    return config


def _row(config: Any) -> dict[str, Value]:
    options = {name: getattr(config, name, None) for name in LAUNCH_OPTIONS}
    return {**config.kwargs, **{k: v for k, v in options.items() if v is not None}}


def _named(site: str, name: str, kernels: Mapping[str, Any]) -> str:
    return name if len(kernels) == 1 else f"{site}.{name}"


def _is_block(name: str) -> bool:
    return bool(re.search(r"BLOCK|TILE", name, re.IGNORECASE))


def _ordered(values: tuple[Value, ...]) -> tuple[Value, ...]:
    numeric = all(type(v) in (int, float) for v in values)
    return tuple(sorted(values)) if numeric else values


def _with_values(space: Mapping[str, tuple[Value, ...]], config: Mapping[str, Value]) -> dict[str, tuple[Value, ...]]:
    """The space with the seed's own values in it, so that the seed is a point of its space."""
    whole = dict(space)
    for name, value in config.items():
        if name in whole and value not in whole[name]:
            whole[name] = _ordered((*whole[name], value))
    return whole


def _checked(read: Any, value: Any, where: str) -> dict[str, Any]:
    try:
        return read(value, where)
    except KernelSyntaxError as error:
        raise SpaceError(str(error)) from None


def _must_exist(space: Mapping[str, Any], seed: Kernel, kernels: Mapping[str, Any]) -> None:
    if not space:
        raise SpaceError("SPACE is empty; leave it out to have one inferred")
    for name in space:
        site, _, plain = name.rpartition(".")
        sites = [site] if site else list(kernels)
        known = {c for s in sites if s in seed.names for c in seed.function(s).constexprs} | set(LAUNCH_OPTIONS)
        if plain not in known:
            raise SpaceError(f"SPACE has {name!r}, which is no constexpr of {', '.join(sites)} and no launch option")
