"""Loads a task file: imports it once and gives it to the first form that recognises it."""

from __future__ import annotations

import os
from pathlib import Path

from kernelsearch.core.errors import TaskError
from kernelsearch.tasks import bare, kernelbench, native
from kernelsearch.tasks.bare import explain_missing_reference
from kernelsearch.tasks.forms import TaskSource
from kernelsearch.tasks.module import compute_digest, import_file
from kernelsearch.tasks.task import Task

FORMS = (kernelbench, native, bare)
"""The forms, in the order in which they are tried: modules with `matches(source)` and `adapt(source, need_kernel)`."""


def load(path: str | os.PathLike[str], need_kernel: bool = True) -> Task:
    """The task of a file. Runs the file's top level, never its `__main__` block.

    need_kernel=False accepts a file with a reference and no kernel, so that TorchInductor can write the first one.
    Raises TaskError, one sentence and the lines to add, when something is missing.
    """
    path = Path(path)
    digest = compute_digest(path)
    module = import_file(path, f"kernelsearch_task_{digest}")
    source = TaskSource(path, digest, module)
    for form in FORMS:
        if form.matches(source):
            return form.adapt(source, need_kernel)
    raise TaskError(explain_missing_reference(source))
