"""Software pipelines with fewer stages, for test shapes of wider types than the timed ones.

A config that fills the shared memory with bfloat16 tiles cannot hold as many of float32. A user's autotuner would skip
it there; here the kernel must still be judged there. The number of stages does not change what a kernel computes, and
an exported package runs the config with the timed types only.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TypeVar, cast

from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.source import Kernel

T = TypeVar("T")
TRITONS_STAGES = 3
"""The num_stages of a launch without one."""


def lower_stages(kernel: Kernel, spec: Specialisation) -> Specialisation | None:
    """The specialisation with one stage less wherever it has several; None where it has one everywhere."""
    names = _names_of_stages(kernel.code)
    whole = replace(spec, options=tuple({"num_stages": TRITONS_STAGES, **dict(spec.options)}.items()))
    fewer = replace(
        whole,
        constexprs=tuple((n, _lower(v) if n in names else v) for n, v in whole.constexprs),
        options=tuple((n, _lower(v) if n == "num_stages" else v) for n, v in whole.options),
    )
    return fewer if fewer != whole else None


def _lower(value: T) -> T:
    return cast(T, value - 1) if isinstance(value, int) and type(value) is int and value > 1 else value


def _names_of_stages(code: str) -> frozenset[str]:
    """The names that loops take as `num_stages`."""
    keywords = (node for node in ast.walk(parse_python(code)) if isinstance(node, ast.keyword))
    return frozenset(k.value.id for k in keywords if k.arg == "num_stages" and isinstance(k.value, ast.Name))
