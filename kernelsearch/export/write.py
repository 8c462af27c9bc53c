"""Puts a folder of files in its place wholly or not at all: written beside it under another name, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernelsearch.export.errors import ExportError


def write_folder(out: Path, files: Mapping[str, bytes], force: bool = False) -> None:
    """Writes files by relative path into a new folder. Raises ExportError where it is there already and not force."""
    refuse_existing(out, force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            for path, data in files.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_bytes(data)
            made.chmod(0o755)
            _swap(made, out)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise ExportError(f"{out} cannot be written: {error.strerror or error}") from None


def refuse_existing(out: Path, force: bool) -> None:
    """Raises ExportError for a place that is taken. force replaces a folder, but only one that an export wrote."""
    if not (out.exists() or out.is_symlink()):
        return
    if not force:
        raise ExportError(f"{out} is there already: name another folder, or say --force to replace it")
    ours = out.is_dir() and not out.is_symlink() and (not any(out.iterdir()) or (out / MARK).is_file())
    if not ours:
        raise ExportError(f"{out} was not written by an export, so that --force does not replace it: remove it, or name another")


MARK = ".kernelsearch-export"
"""The file by which an export knows its own folders."""


def _swap(made: Path, out: Path) -> None:
    old = None
    if out.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{out.name}-old-", dir=out.parent))
        os.rename(out, old / "was")
    try:
        os.rename(made, out)
    except OSError:
        if old is not None:
            os.rename(old / "was", out)
        raise
    finally:
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
