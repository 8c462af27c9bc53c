"""Fits a task to the machine that its candidates are compiled for: its launch options, its lanes, its 8-bit floats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernelsearch.core.types import AMD_OPTIONS, TaskFacts, TensorFact
from kernelsearch.kernel.launch import TRITON_DTYPES
from kernelsearch.kernel.targets import Target

VALUES = {"waves_per_eu": (0, 1, 2, 4), "matrix_instr_nonkdim": (0, 16, 32)}
"""What Triton's own configs for AMD cards choose from; 0 is the compiler's choice."""


def fit_to_target(facts: TaskFacts, target: Target) -> TaskFacts:
    """The task with what is tuned on this target, and notes on what differs from other targets."""
    space, config = _without(facts.space, target), _without(facts.config, target)
    launches = [f for trace in facts.traces.values() for f in trace.launches]
    left_out = ", ".join(sorted(facts.space.keys() - space.keys()))
    notes = [f"not tuned: {left_out}, which Triton does not read for {target.name}"] * bool(left_out)
    for site in facts.sites if target.gfx else ():
        given = {n: v for f in launches if f.site == site for n, v in f.options.items()}
        for name in ("num_stages", f"{site}.num_stages"):  # 3 is what a launch without any has elsewhere
            if config.get(name) == 3 and "num_stages" not in given and target.num_stages in space[name]:
                config[name] = target.num_stages
        for option in VALUES:
            name = option if len(facts.sites) == 1 else f"{site}.{option}"
            is_read = option == "waves_per_eu" or re.search(r"\bdot(_scaled)?\(", facts.seed)
            if is_read and not space.keys() & {name, option}:
                config[name] = given.get(option, 0)
                space[name] = tuple(sorted({*VALUES[option], config[name]}))
                notes.append(f"tuned too: {name} {list(space[name])}")
    passed = {a.dtype for f in launches for a in f.args.values() if isinstance(a, TensorFact)}
    small = (name for name, short in TRITON_DTYPES.items() if short in passed and name.startswith("float8"))
    has = " and ".join(target.fp8) or "no 8-bit floats"
    how = "converts it in software" if target.gfx else "converts float8_e5m2 in software and refuses all others"
    notes += [f"{target.name} has {has} in hardware: Triton {how} ({n})" for n in small if n not in target.fp8]
    own = tuple(tuple(_without(config, target) for config in configs) for configs in facts.own_configs)
    facts = replace(facts, space=space, config=config, own_configs=own, notes=(*facts.notes, *notes))
    return replace(facts, lanes=target.warp_size, copy_engine=target.has_copy_engine)


def _without(values: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """The names that mean something to the target's compiler."""
    foreign = ("num_ctas", "maxnreg") if target.gfx else AMD_OPTIONS
    return {name: v for name, v in values.items() if name.rpartition(".")[2] not in foreign}
