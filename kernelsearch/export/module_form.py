"""The KernelBench form: a task's `ModelNew` as a class of the package, and the operator that its forward pass calls."""

from __future__ import annotations

import json

from kernelsearch.export.errors import ExportError
from kernelsearch.export.part import Part
from kernelsearch.export.operator import imports, launch_rows, wrapped_names
from kernelsearch.export.texts import class_name
from kernelsearch.export.domain import cases_text, verified_text


def module_files(part: Part) -> str:
    """The text of a task folder's `__init__.py` for a task whose launcher is a module."""
    raise ExportError(f"{part.examined.task.path.name} cannot be shipped yet: {json.dumps(class_name(part.name))}")
