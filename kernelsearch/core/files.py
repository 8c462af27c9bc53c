"""Puts a file or a folder in its place wholly or not at all, also when the process is killed in the middle.

Everything is written beside its place under a hidden name first. A killed process may leave such a hidden name behind; a
folder's is swept away the next time the same place is written.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kernelsearch.core.errors import KernelsearchError

YOUNG_S = 60.0
"""A folder as new as this may be another process's, which has not locked it yet."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""Of linux/fcntl.h and linux/fs.h."""


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file in UTF-8, the old one being whole until the new one is. Raises OSError.

    What is no regular file (a terminal, a pipe) is written to; a link's target is replaced, not the link.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        Path(path).write_text(text, encoding="utf-8")
        return
    place = Path(os.path.realpath(path))
    made = place.with_name(f".{place.name}-{secrets.token_hex(4)}")
    try:
        with open(made, "x", encoding="utf-8") as file:  # its mode follows the umask
            file.write(text)
        if place.exists():
            os.chmod(made, stat.S_IMODE(place.stat().st_mode))
        os.replace(made, place)
    finally:
        made.unlink(missing_ok=True)


def write_user_file(path: str | Path, text: str) -> None:
    """`write_text` of a file that the user named. Raises KernelsearchError, one sentence."""
    try:
        write_text(path, text)
    except OSError as error:
        raise KernelsearchError(f"{path} cannot be written: {error.strerror}") from None


def write_folder(place: Path, files: Mapping[str, bytes]) -> None:
    """Writes files by relative path as the whole of a folder, in place of the one that is there. Raises OSError."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _sweep(place)
    made = Path(tempfile.mkdtemp(prefix=_prefix(place), dir=place.parent))
    try:
        with _locked(made):
            for path, data in files.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_bytes(data)
            made.chmod(0o755)
            _swap(made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)  # what is there now: the old folder, or a new one that came to nothing


def _prefix(place: Path) -> str:
    return f".{place.name}-unfinished-"


def _swap(made: Path, place: Path) -> None:
    """The new folder in its place; the old one, if there is one, under the new one's name."""
    if not place.exists():
        os.rename(made, place)
    elif not _exchanged(made, place):
        aside = Path(tempfile.mkdtemp(prefix=f".{place.name}-old-", dir=place.parent)) / "was"
        os.rename(place, aside)
        try:
            os.rename(made, place)
        except BaseException:
            os.rename(aside, place)
            raise
        shutil.rmtree(aside.parent, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the two names were exchanged in one step, for which Linux has `renameat2`; not every file system has it."""
    try:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if exchange(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(other))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds a folder as its writer's own, for as long as the process lives."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _sweep(place: Path) -> None:
    """Removes what killed writers of this place left: hidden folders whose lock nobody holds."""
    for left in place.parent.glob(f"{_prefix(place)}????????"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime < YOUNG_S:
                continue
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)
