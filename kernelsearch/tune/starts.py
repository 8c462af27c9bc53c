"""Where tuning starts: the first config of a seed, and the space and first config of a rewritten kernel."""

from __future__ import annotations

from collections.abc import Mapping

from kernelsearch.core.types import Config, TaskFacts, Value
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import is_name_of, is_number


def seed_start_of(task: TaskFacts) -> dict[str, Value]:
    """The config where tuning of the task's seed starts: the task's own, first values for names that it leaves out."""
    return {**{name: values[0] for name, values in task.space.items()}, **task.config}


def space_of(kernel: Kernel, inherited: Mapping[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    """A kernel's space: its own SPACE over what it inherits from its parent or task, where the names still exist."""
    return {**{name: values for name, values in inherited.items() if is_name_of(name, kernel)}, **kernel.space}


def start_of(
    kernel: Kernel, inherited: Config, space: Mapping[str, tuple[Value, ...]], base: Config | None = None
) -> dict[str, Value]:
    """A kernel's first config: its own CONFIG over its parent's best, where names still exist, else first values.

    inherited is the parent's best config. base is the config that the rewrite was written over (the parent's CONFIG,
    else the task's): a value that only repeats base is not the rewrite's own, and gives way to the parent's best. An
    inherited value that is not in the kernel's space gives way to the nearest one that is.
    """
    own_names = {*kernel.config, *kernel.space}
    known = {name: value for name, value in inherited.items() if name in own_names or is_name_of(name, kernel)}
    own = {name: value for name, value in kernel.config.items() if base is None or base.get(name) != value}
    start = {**{name: values[0] for name, values in space.items()}, **kernel.config, **known}
    return {**{name: nearest_value(space.get(name, ()), value) for name, value in start.items()}, **own}


def nearest_value(values: tuple[Value, ...], value: Value) -> Value:
    """The value itself if values has it or is empty; else the number nearest by ratio, else the first."""
    if not values or value in values:
        return value
    numbers = [v for v in values if is_number(v) and v > 0]
    if is_number(value) and value > 0 and numbers:
        return min(numbers, key=lambda v: max(v / value, value / v))
    return values[0]
