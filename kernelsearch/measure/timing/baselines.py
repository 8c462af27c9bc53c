"""The baselines by name: what users would run instead of a candidate. They are made in processes with torch.

All take the same input tensors as the candidate, in the task's own dtype and under the tf32 policy that its precision
contract allows. A baseline that cannot be made raises, and its timer reports why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

EAGER, COMPILE, MAX_AUTOTUNE, SEED, SEED_AUTOTUNE = "eager", "compile", "max-autotune", "seed", "seed autotune"

MODES = {COMPILE: None, MAX_AUTOTUNE: "max-autotune-no-cudagraphs"}
"""`torch.compile` modes. CUDA graphs are left out, since graphs copy their inputs to fixed places first."""


def baseline_names(task: Any) -> tuple[str, ...]:
    """The baselines that exist for a task besides its seed: torch's, its own autotuner's, and those it names.

    An autotuner that `kernelsearch seed` wrote is none: nobody runs it, and the seed has the best of its configs.
    """
    own = (SEED_AUTOTUNE,) if is_autotuned(task) and not task.is_seeded else ()
    alone = hasattr(getattr(task.module, "reference", None), "widen")  # a kernel that is its own reference
    common = own if alone else (EAGER, COMPILE, MAX_AUTOTUNE, *own)
    return (*common, *(n for n in task.baselines if n not in common))


def is_autotuned(task: Any) -> bool:
    """Whether one of the seed's kernels is decorated with `@triton.autotune`."""
    return any(_has_autotuner(kernel) for kernel in task.kernels().values())


def make_baseline(name: str, task: Any, case: Any) -> Callable[..., Any]:
    """The baseline as a function of the case's inputs. Raises what the library raises, KeyError for an unknown name."""
    if name in task.baselines:
        return task.baselines[name]
    if name in MODES:
        import torch

        return torch.compile(case.reference, mode=MODES[name], fullgraph=False, dynamic=False)
    return {EAGER: case.reference, SEED_AUTOTUNE: case.launch}[name]


def tf32_policy_of(precision: str) -> str:
    """`torch.set_float32_matmul_precision`'s word for a task's precision contract."""
    return "high" if precision == "tf32" else "highest"


def _has_autotuner(kernel: Any) -> bool:
    while kernel is not None:
        if type(kernel).__name__ == "Autotuner":
            return True
        kernel = getattr(kernel, "fn", None)
    return False
