"""Collects a task file and the modules beside it that it imports, for the folder that travels to every node."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import content_digest
from kernelsearch.tasks.module import find_companion, find_forward, read_text


def stage_task(task: str, folder: Path) -> str:
    """Copies a task file with what it needs of its folder into a folder; returns its path there. Raises TaskError."""
    source = Path(os.path.realpath(task))
    place = folder / f"{source.parent.name}-{content_digest(str(source.parent))[:8]}"
    for file in list_files(source):
        target = place / file.relative_to(source.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    return str((place / source.name).relative_to(folder))


def list_files(task: Path) -> list[Path]:
    """A task file, its companion, and the modules of its folder that they import, one through another."""
    found: dict[Path, None] = {}
    todo = [task, find_companion(task)]
    todo += [forward, find_companion(forward)] if (forward := find_forward(task)) else []
    while todo:
        file = todo.pop()
        if file in found or not file.is_file():
            continue
        found[file] = None
        try:
            tree = parse_python(read_text(file))
        except SyntaxError:
            continue  # the actor says what is wrong with it, as a bench does here
        for name in _imported(tree):
            module = task.parent.joinpath(*name.split("."))
            parents = [p / "__init__.py" for p in module.parents if task.parent in p.parents]
            todo += [module.with_suffix(".py"), module / "__init__.py", *parents]
    return list(found)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
