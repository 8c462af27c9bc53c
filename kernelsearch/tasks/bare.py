"""A bare Triton file: kernels, a launcher, and the PyTorch function to compare with.

The reference is, in this order:
1. a companion file beside it, `softmax_reference.py` for `softmax.py`, in the native form: `reference`,
   and `get_inputs`, SHAPES and the rest where the file itself has none;
2. in the file, the function that tutorials and tests name after the launcher: `softmax_ref`,
   `softmax_reference`, `ref_softmax`, `reference_softmax`, `softmax_torch`, `torch_softmax`,
   `softmax_naive`, `naive_softmax`, `softmax_pytorch`, `pytorch_softmax`;
3. in the file, the only function with such a name (`torch_...`, `..._ref`) and the launcher's parameters.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.tasks.forms import TaskSource, find_own_callables, parameter_names
from kernelsearch.tasks.module import compute_digest, find_companion, import_file
from kernelsearch.tasks.native import from_functions
from kernelsearch.tasks.reach import find_kernels
from kernelsearch.tasks.task import Task

MARK = re.compile(r"^(ref|reference|torch|pytorch|naive)_|_(ref|reference|torch|pytorch|naive)$")


MOST_NAMES = 6
"""Functions and modules of a file without a reference that are named to the user."""


def matches(source: TaskSource) -> bool:
    """Any file that holds a Triton kernel."""
    return bool(find_kernels(vars(source.module).values()))


def adapt(source: TaskSource, need_kernel: bool) -> Task:
    companion = find_companion(source.path)
    if companion.exists():
        return _with_companion(source, companion, need_kernel)
    reference = _find_reference(source)
    if reference is None:
        raise TaskError(explain_missing_reference(source))
    return from_functions(source, "bare", reference, source.get("get_inputs"), need_kernel)


def explain_missing_reference(source: TaskSource) -> str:
    file, functions = source.path, find_own_callables(source)
    launcher = next((f for f in functions.values() if find_kernels([f])), None)
    takes, named = ", ".join(parameter_names(launcher)) if launcher is not None else "x", ""
    modules = {n: v for n, v in vars(source.module).items() if isinstance(v, type) and issubclass(v, torch.nn.Module)}
    own = [n for n, v in {**modules, **functions}.items() if v.__module__ == source.module.__name__ and n[0] != "_"]
    own = [name for name in own if not re.match("get_(init_)?inputs", name)]
    if own and launcher is None:
        more = ", ..." if len(own) > MOST_NAMES else ""
        named = f"name what to make faster, {file.name}:{own[0]} (it has {', '.join(own[:MOST_NAMES])}{more}), or "
    return (
        f"{file.name} has no reference; {named}add to it, or to a file {file.stem}_reference.py,\n"
        f"    def reference({takes}): ...  # the same result with plain torch operations\n"
        "    def get_inputs(rows=4096, cols=1024, dtype=torch.float32): return [torch.randn(rows, cols, dtype=dtype)]"
    )


def _with_companion(source: TaskSource, companion: Path, need_kernel: bool) -> Task:
    other = import_file(companion, f"{source.module.__name__}_reference")
    if not callable(getattr(other, "reference", None)):
        raise TaskError(f"{companion.name} has no function named reference")
    for name, value in vars(other).items():
        optional = name.isupper() or name in ("get_inputs", "bytes_moved", "flops")
        if optional and not hasattr(source.module, name):
            setattr(source.module, name, value)
    both = replace(source, digest=compute_digest(source.path, "bare"))
    return from_functions(both, "bare", other.reference, source.get("get_inputs"), need_kernel)


def _find_reference(source: TaskSource) -> Any:
    """The reference that the file itself holds, None without one."""
    functions = find_own_callables(source)
    launching = {n: f for n, f in functions.items() if find_kernels([f])}
    marked = {n: f for n, f in functions.items() if n not in launching and MARK.search(n)}
    for name in launching:
        for other, function in marked.items():
            if MARK.sub("", other) == name:
                return function
    alike = [f for f in marked.values() if any(parameter_names(f) == parameter_names(g) for g in launching.values())]
    return alike[0] if len(alike) == 1 else None
