"""Values for a shell's completion, read from a database without any heavy import; an unreadable one gives none."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote


def task_names(path: Path) -> list[str]:
    return _column(path, "SELECT DISTINCT name FROM task ORDER BY name")


def device_names(path: Path) -> list[str]:
    return _column(path, "SELECT device FROM trial UNION SELECT device FROM confirmation ORDER BY 1")


def kernel_prefixes(path: Path) -> list[str]:
    """The first 8 digits of accepted kernels' digests, those of the newest run first."""
    return _column(
        path,
        """SELECT substr(kernel, 1, 8) FROM trial WHERE score IS NOT NULL GROUP BY kernel
           ORDER BY max(run) DESC, min(score)""",
    )


def _column(path: Path, query: str) -> list[str]:
    if not path.is_file():
        return []
    name = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
    try:
        with sqlite3.connect(name, uri=True, timeout=0.2) as connection:
            return [row[0] for row in connection.execute(query) if row[0]]
    except sqlite3.Error:
        return []
