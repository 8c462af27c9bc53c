"""A user's own modules: loaded from a path, or named by an installed package's entry points.

They run with the driver's rights: they are the user's code, as trusted as the task file.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelsearch.core.errors import KernelsearchError

BROKEN = (SyntaxError, ImportError, NameError, AttributeError, TypeError, ValueError)
"""What a module of a user's raises at its top."""


def execute_file(path: Path, name: str, refuse: type[KernelsearchError]) -> ModuleType:
    """The module of a file, under a name in `sys.modules`. Raises `refuse` where it cannot be loaded."""
    if not path.is_file():
        raise refuse(f"no file {path}")
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # where dataclasses look up annotations
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        exec(code, vars(module))  # not a loader's: a bytecode file of a moment ago may have the same time and size
    except BROKEN as error:
        del sys.modules[name]
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise refuse(f"{path} cannot be loaded{line}: {type(error).__name__}: {error}") from error
    return module


def load_entry_points(group: str) -> dict[str, Any]:
    """What installed packages offer under `kernelsearch.GROUP`, by name. Raises KernelsearchError for a broken one."""
    found = {}
    for point in entry_points(group=f"kernelsearch.{group}"):
        try:
            found[point.name] = point.load()
        except BROKEN as error:
            package = point.dist.name if point.dist else point.value
            raise KernelsearchError(
                f"{package} offers {point.name}, which cannot be loaded: uninstall or mend it: {error}"
            ) from error
    return found
