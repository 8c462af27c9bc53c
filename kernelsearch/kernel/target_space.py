"""Fits a task to the machine that its candidates are compiled for: its launch options, its lanes, its 8-bit floats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernelsearch.core.types import AMD_OPTIONS, TaskFacts, TensorFact
from kernelsearch.kernel.launch import TRITON_DTYPES
from kernelsearch.kernel.targets import Target

VALUES: Mapping[str, tuple[int, ...]] = {"waves_per_eu": (0, 1, 2, 4), "matrix_instr_nonkdim": (0, 16, 32)}
"""What Triton's own configs for AMD cards choose from; 0 is the compiler's choice."""
TRITONS_STAGES = 3
"""The `num_stages` that a seed's config has where nothing gives one."""


def fit_to_target(facts: TaskFacts, target: Target) -> TaskFacts:
    """The task with what is tuned on this target, and notes on what differs from other targets."""
    space, config = _without(facts.space, target), _without(facts.config, target)
    notes = list(facts.notes)
    if left_out := ", ".join(sorted(facts.space.keys() - space.keys())):
        notes.append(f"not tuned: {left_out}, which Triton does not read for {target.name}")
    for site in facts.sites:
        given = {
            n: v for t in facts.traces.values() for f in t.launches if f.site == site for n, v in f.options.items()
        }
        for name in ("num_stages", f"{site}.num_stages"):
            if config.get(name) == TRITONS_STAGES and "num_stages" not in given and target.num_stages in space[name]:
                config[name] = target.num_stages
        for option in AMD_OPTIONS if target.gfx else ():
            name = option if len(facts.sites) == 1 else f"{site}.{option}"
            is_used = option == "waves_per_eu" or re.search(r"\bdot(_scaled)?\(", facts.seed)
            if is_used and not space.keys() & {name, option}:
                config[name] = given.get(option, 0)
                space[name] = tuple(sorted({*VALUES[option], config[name]}))
                notes.append(f"tuned too: {name} {list(space[name])}")
    return replace(
        facts,
        space=space,
        config=config,
        own_configs=tuple(tuple(_without(c, target) for c in configs) for configs in facts.own_configs),
        notes=(*notes, *_describe_small_floats(facts, target)),
        lanes=target.warp_size,
        copy_engine=target.has_copy_engine,
    )


def _without(values: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """The names that mean something to the target's compiler."""
    return {name: v for name, v in values.items() if name.rpartition(".")[2] not in target.foreign_options}


def _describe_small_floats(facts: TaskFacts, target: Target) -> list[str]:
    """A note for each 8-bit float of the task that the target's matrix units do not take."""
    passed = {
        a.dtype for t in facts.traces.values() for f in t.launches for a in f.args.values() if isinstance(a, TensorFact)
    }
    small = (name for name, short in TRITON_DTYPES.items() if short in passed and name.startswith("float8"))
    has = " and ".join(target.fp8) or "no 8-bit floats"
    how = "converts it in software" if target.gfx else "converts float8_e5m2 in software and refuses all others"
    return [f"{target.name} has {has} in hardware: Triton {how} ({name})" for name in small if name not in target.fp8]
