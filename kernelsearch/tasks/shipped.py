"""The tasks that come with the project, for `kernelsearch new NAME`: found in a checkout or in the wheel."""

from __future__ import annotations

from pathlib import Path

from kernelsearch.core.errors import TaskError

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


def _files() -> list[Path]:
    for place in _PLACES:
        if place.is_dir():
            folders = (folder for folder in sorted(place.iterdir()) if folder.is_dir())
            return [file for folder in folders if (file := folder / f"{folder.name}.py").is_file()]
    return []
