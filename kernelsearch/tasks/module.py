"""Imports a user's file under a name of its own: its `__main__` block never runs."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from kernelsearch.core.errors import TaskError
from kernelsearch.core.plugins import describe_error
from kernelsearch.core.types import content_digest

SEED_LAUNCHER = "launch_seed"
"""The launcher in a file that `kernelsearch seed` wrote."""

USER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""The exceptions of a user's own code that are reported as a sentence about the user's file.

Interrupts and the project's own errors are not among them.
"""

SLOW_REFERENCE = (
    "the reference is slow there (its Python loops, or the programs of a kernel that is its own reference, which are "
    "evaluated): give smaller TEST_SHAPES, or with --call a script that calls with smaller sizes"
)


def read_text(path: Path | str) -> str:
    """The text of a task or kernel file. Raises TaskError, one sentence, when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TaskError(explain_missing_file(path)) from None
    except IsADirectoryError:
        raise TaskError(f"{path} is a folder: name one Python file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None


def explain_missing_file(path: Path | str) -> str:
    """What is said of a file that is not there; of `FILE.py:NAME`, which file to name, and how it is made."""
    file, name = Path(str(path).rpartition(":")[0]), str(path).rpartition(":")[2]
    if file.suffix != ".py" or not file.exists():
        return f"no such file: {path}"
    seeded = file.with_name(f"{file.stem}_{name}_seeded.py")
    how = "" if seeded.exists() else f", after `kernelsearch seed {path} -o {seeded}`"
    return f"{path} is no file with a kernel: name {seeded}{how}"


def find_companion(path: Path) -> Path:
    """The place of the file that may hold a bare file's reference."""
    return path.with_name(f"{path.stem}_reference.py")


def find_forward(path: Path) -> Path | None:
    """The file beside a task file whose gradient that is (GRADIENT_OF), None for another task. Raises TaskError."""
    found = re.search(r"""^GRADIENT_OF *= *(["'])([^"'/]+)\1""", read_text(path), re.MULTILINE)
    return path.with_name(found[2]) if found else None


def compute_digest(path: Path, form: str = "") -> str:
    """The digest of a task file's text, in the bare form with that of a companion beside it. Raises TaskError.

    That of a gradient has the forward's in it.
    """
    digest, beside = content_digest(read_text(path)), [find_companion(path)] * (form == "bare")
    beside += [forward, find_companion(forward)] if (forward := find_forward(path)) else []
    texts = [read_text(file) for file in beside if file.exists()]
    return content_digest(digest, *texts) if texts else digest


def import_file(path: Path, name: str) -> ModuleType:
    """Runs the file as module `name`, with its folder on the search path for its imports.

    In a package (folders with `__init__.py`) it is a module of that, and may import relatively.

    Raises TaskError with the line of this file that failed.
    """
    text = read_text(path)
    try:
        code = compile(text, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise TaskError(f"{path} is not Python: {getattr(error, 'msg', None) or error}{where}") from None
    root = path.resolve().parent
    name, folders = name.rpartition(".")[2], [str(root)]
    while (root / "__init__.py").exists():
        name, root = f"{root.name}.{name}", root.parent
        folders[1:] = [str(root)]
    sys.path += [folder for folder in folders if folder not in sys.path]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise TaskError(f"{path} is no task file: the name of one ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    keeps_no_bytecode = sys.dont_write_bytecode
    advice = 'what only a script should do belongs under `if __name__ == "__main__":`'
    try:
        sys.dont_write_bytecode = True  # what it imports beside itself: the folder is the user's
        exec(code, vars(module))  # not the loader's: a bytecode file of a moment ago may have the same time and size
    except SystemExit as error:
        del sys.modules[name]
        status = "" if error.code is None else f" (exit {error.code})"
        raise TaskError(f"{path.name} ends the program when it is imported{status}; {advice}") from None
    except USER_ERRORS as error:
        del sys.modules[name]
        own_fault = isinstance(error, (ImportError, NameError, SyntaxError))
        hint = "" if own_fault else f"; {advice}"
        raise TaskError(f"{path.name} cannot be imported: {describe_error(error, path)}{hint}") from None
    finally:
        sys.dont_write_bytecode = keeps_no_bytecode
    return module
