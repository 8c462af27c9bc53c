"""Writes a file or a folder completely or not at all, even when the process is killed in the middle.

Everything is first written under a hidden name beside its place. A killed process may leave that behind.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernelsearch.core.errors import KernelsearchError

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""From linux/fcntl.h and linux/fs.h."""


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file in UTF-8; the old one stays until the new one is complete. Raises OSError.

    A terminal or a pipe is written to directly; a link's target is replaced, not the link.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        Path(path).write_text(text, encoding="utf-8")
        return
    place = Path(os.path.realpath(path))
    new = place.with_name(f".{place.name}-{secrets.token_hex(4)}")
    try:
        with open(new, "x", encoding="utf-8") as file:  # its mode follows the umask
            file.write(text)
        if place.exists():
            os.chmod(new, stat.S_IMODE(place.stat().st_mode))
        os.replace(new, place)
    finally:
        new.unlink(missing_ok=True)


def write_user_file(path: str | Path, text: str) -> None:
    """`write_text` for a path that the user gave. Raises KernelsearchError, one sentence."""
    try:
        write_text(path, text)
    except OSError as error:
        raise KernelsearchError(f"{path} cannot be written: {error.strerror}") from None


def refuse_unwritable(path: str | Path) -> None:
    """Raises KernelsearchError if `write_text` could not write this path: better before the work than after it."""
    place = Path(os.path.realpath(path))
    try:
        if place.is_dir():
            raise KernelsearchError(f"{path} cannot be written: it is a folder")
        if place.exists() and not place.is_file():  # a terminal or a pipe
            if not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        elif not place.parent.is_dir():
            raise KernelsearchError(f"{path} cannot be written: its folder does not exist")
        else:
            tempfile.TemporaryFile(dir=place.parent).close()
    except OSError as error:
        raise KernelsearchError(f"{path} cannot be written: {error.strerror}") from None


def write_folder(place: Path, files: Mapping[str, bytes]) -> None:
    """Replaces a folder by one with exactly these files, by relative path. Raises OSError."""
    place.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{place.name}-unfinished-", dir=place.parent))
    try:
        for path, data in files.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            (new / path).write_bytes(data)
        new.chmod(0o755)
        _swap(new, place)
    finally:
        shutil.rmtree(new, ignore_errors=True)  # the old folder, or an unfinished new one


def _swap(new: Path, place: Path) -> None:
    """Moves the new folder to its place; an old one takes the new one's name, or is removed."""
    if not place.exists():
        os.rename(new, place)
    elif not _exchange(new, place):
        aside = Path(tempfile.mkdtemp(prefix=f".{place.name}-old-", dir=place.parent)) / "was"
        os.rename(place, aside)
        try:
            os.rename(new, place)
        except BaseException:
            os.rename(aside, place)
            raise
        shutil.rmtree(aside.parent, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two names in one step by Linux' `renameat2`; False where the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(other))
