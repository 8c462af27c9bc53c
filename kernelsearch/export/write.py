"""Writes an export's folder, in a place that is free or that an earlier export took."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernelsearch.core import files as whole
from kernelsearch.export.errors import ExportError


def write_folder(out: Path, files: Mapping[str, bytes], force: bool = False) -> None:
    """Writes files by relative path into a new folder, wholly or not at all.

    Raises ExportError where it is there already and not force.
    """
    refuse_existing(out, force)
    try:
        whole.write_folder(out, files)
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
        raise ExportError(
            f"{out} was not written by an export, so that --force does not replace it: remove it, or name another"
        )


MARK = ".kernelsearch-export"
"""The file by which an export knows its own folders."""
