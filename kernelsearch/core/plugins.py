"""A user's own modules, loaded from a path.

They run with the driver's rights: they are the user's code, as trusted as the task file.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from kernelsearch.core.errors import KernelsearchError


@contextmanager
def blame(
    file: str | os.PathLike[str],
    refuse: type[Exception],
    what: str = "fails",
    cure: str = "",
    passes: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """A context for code of a user's module: what it raises becomes `refuse`, one sentence on the file.

    cure ends the sentence. Exceptions of `passes` go through: they are the module's answers.
    """
    try:
        yield
    except passes:
        raise
    except (Exception, SystemExit) as error:
        raise refuse(f"{file} {what}: {describe_error(error, Path(file))}{cure}") from error


def describe_error(error: BaseException, path: Path) -> str:
    """An exception of the user's code in one line, with the last line of the user's file in its traceback."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name]
    message = " ".join(str(error).split())[:300]
    if isinstance(error, SyntaxError) and Path(error.filename or "").name == path.name:
        lines, message = [error.lineno], error.msg
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}{message and ': '}{message}{where}"


def execute_file(path: Path, name: str, refuse: type[KernelsearchError]) -> ModuleType:
    """The module of a file, under a name in `sys.modules`. Raises `refuse` where it cannot be loaded."""
    if not path.is_file():
        raise refuse(f"no file {path}")
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # where dataclasses look up annotations
    try:
        with blame(path, refuse, "cannot be loaded"):
            code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
            exec(code, vars(module))  # not a loader's: a bytecode file of a moment ago may have the same time and size
    except refuse:
        del sys.modules[name]
        raise
    return module
