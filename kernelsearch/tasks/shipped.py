"""The tasks that come with the project, for `kernelsearch new NAME`: found in a checkout or in the wheel."""

from __future__ import annotations

from pathlib import Path

from kernelsearch.core.errors import TaskError
from kernelsearch.core.files import write_user_file
from kernelsearch.tasks.module import find_forward

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


GRADIENT = '''"""The gradient of {file}: its reference is autograd of that file's.

A launcher takes the inputs of the forward, what SAVED names, and the gradient of each result (`grad_out`; of several
`grad_out0`, `grad_out1`), and returns the gradients by the inputs, all in their order.
"""

GRADIENT_OF = "{file}"
# GRADIENTS = ("x",)  # by these inputs alone, not by all that have one
# SAVED = {{"y": 0}}  # results of the forward, by their numbers, that the launcher may read
# MUTATES = ("x",)  # inputs whose gradients take their places
'''


def write_gradient_task(forward: str, force: bool) -> Path:
    """Writes the task of the gradient of a task file beside it. Raises TaskError."""
    file = Path(forward)
    if find_forward(file) is not None:
        raise TaskError(f"{file.name} is a gradient itself: name the task of a forward")
    path = file.with_name(f"{file.stem}_gradient.py")
    if path.exists() and not force:
        raise TaskError(f"{path} exists already; give --force to overwrite it")
    write_user_file(str(path), GRADIENT.format(file=file.name))
    return path


def _files() -> list[Path]:
    for place in _PLACES:
        if place.is_dir():
            folders = (folder for folder in sorted(place.iterdir()) if folder.is_dir())
            return [file for folder in folders if (file := folder / f"{folder.name}.py").is_file()]
    return []
