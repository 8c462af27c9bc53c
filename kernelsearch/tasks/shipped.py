"""The tasks that come with the project, for `kernelsearch new NAME`: found in a checkout or in the wheel."""

from __future__ import annotations

import re
from pathlib import Path

from kernelsearch.core.errors import TaskError
from kernelsearch.tasks.module import find_forward, read_text

_PACKAGE = Path(__file__).resolve().parents[1]
_PLACES = (_PACKAGE / "_studies", _PACKAGE.parent / "studies")
"""The wheel's copy, then the checkout's folder."""


def names() -> tuple[str, ...]:
    """The shipped tasks, sorted."""
    return tuple(sorted(path.stem for path in _files()))


def path(name: str) -> Path:
    """The file of a shipped task. Raises TaskError, which lists the known ones."""
    files = {file.stem: file for file in _files()}
    if name not in files:
        raise TaskError(f"no shipped task is called {name!r}; there are {', '.join(names()) or 'none'}")
    return files[name]


def text(name: str) -> str:
    """The text of a shipped task."""
    return path(name).read_text(encoding="utf-8")


GRADIENT = '''"""The gradient of {file}: its reference is autograd of that file's."""

GRADIENT_OF = "{file}"
# GRADIENTS = ("x",)  # by these inputs alone, not by all that have one
# SAVED = {{"y": 0}}  # results of the forward, by their numbers, that the launcher may read

# A launcher takes the forward's inputs, what SAVED names, and grad_out (of several results grad_out0, grad_out1).
'''


def write_gradient(forward: str) -> tuple[str, Path]:
    """(The text of the task of a task file's gradient, its path beside that file). Raises TaskError."""
    file = Path(forward)
    if find_forward(file) is not None:
        raise TaskError(f"{file.name} is a gradient itself: name the task of a forward")
    if re.search(r"^class Model\b", read_text(file), re.MULTILINE):
        raise TaskError(f"{file.name} has a module: make its reference a function that takes the weights too")
    return GRADIENT.format(file=file.name), file.with_name(f"{file.stem}_gradient.py")


def _files() -> list[Path]:
    for place in _PLACES:
        if place.is_dir():
            folders = (folder for folder in sorted(place.iterdir()) if folder.is_dir())
            return [file for folder in folders if (file := folder / f"{folder.name}.py").is_file()]
    return []
