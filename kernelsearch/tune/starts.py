"""Where tuning starts: a rewritten kernel's space and first config, from its own words and what its parent found."""

from __future__ import annotations

from collections.abc import Mapping

from kernelsearch.core.types import Config, Value
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import present


def space_of(kernel: Kernel, inherited: Mapping[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    """A kernel's space: its own SPACE over what it inherits from its parent or task, where the names still exist."""
    kept = {name: values for name, values in inherited.items() if present(name, kernel)}
    return {**kept, **kernel.space}


def start_of(
    kernel: Kernel, inherited: Config, space: Mapping[str, tuple[Value, ...]], base: Config | None = None
) -> dict[str, Value]:
    """A kernel's first config: its own CONFIG over its parent's best, where names still exist, else first values.

    base is the config that the rewrite was written over (the parent's CONFIG, else the task's): a value that
    only repeats it is not the rewrite's own, and what tuning has found since goes before it. An inherited
    value that the kernel's space does not have gives way to the nearest that it has.
    """
    spoken = {*kernel.config, *kernel.space}
    kept = {name: value for name, value in inherited.items() if name in spoken or present(name, kernel)}
    own = {name: value for name, value in kernel.config.items() if base is None or base.get(name) != value}
    start = {**{name: values[0] for name, values in space.items()}, **kernel.config, **kept}
    return {**{name: nearest(space.get(name, ()), value) for name, value in start.items()}, **own}


def nearest(values: tuple[Value, ...], value: Value) -> Value:
    """The value itself if values has it or is empty; else the number nearest by ratio, else the first."""
    if not values or value in values:
        return value
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 and numbers:
        return min(numbers, key=lambda v: max(v / value, value / v))
    return values[0]
