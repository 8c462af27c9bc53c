"""Landlock limits, by folder, what a worker may read, run and write for the rest of its life (Linux ≥ 5.19).

Landlock only grants rights: `entries` turns "everything below these folders except those" into the folders and files to
grant. A process under Landlock also cannot read processes outside (`/proc/PID/environ`, ptrace), connect by TCP
(Linux ≥ 6.7) or signal other processes (Linux ≥ 6.12).
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernelsearch.worker.isolation import syscalls

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

EXECUTE, WRITE, READ = 1 << 0, 1 << 1, 1 << 2
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_FILE_RIGHTS = EXECUTE | WRITE | READ | _TRUNCATE
_TCP_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


@dataclass(frozen=True)
class Grants:
    """Paths by right. Any folder may be listed; any file may be executed if execute is None."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    execute: tuple[str, ...] | None = None


def version() -> tuple[int, int]:
    """(The kernel's Landlock version, 0), or (0, errno)."""
    number, refused = syscalls.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    return (0, refused) if refused else (number, 0)


def restrict(grants: Grants) -> str:
    """Limits this thread and all that it starts to the grants. Returns "", or why that failed; needs no_new_privs."""
    known, refused = version()
    if refused:
        return f"landlock: {syscalls.errno_name(refused)}"
    if known < 2:
        return "landlock: version 1 forbids every rename between folders; Linux 5.19 has version 2"
    writing = WRITE | _REMOVE_AND_MAKE | _REFER | (_TRUNCATE if known >= 3 else 0)
    handled = writing | READ | (0 if grants.execute is None else EXECUTE)
    network = _TCP_BIND_AND_CONNECT if known >= 4 else 0
    scoped = _ABSTRACT_SOCKETS_AND_SIGNALS if known >= 6 else 0
    attributes = (ctypes.c_uint64 * 3)(handled, network, scoped)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset, refused = syscalls.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    if refused:
        return f"landlock_create_ruleset: {syscalls.errno_name(refused)}"
    try:
        granted = ((grants.read, READ), (grants.write, writing | READ), (grants.execute or (), EXECUTE))
        for paths, rights in granted:
            for path in paths:
                _grant(ruleset, path, rights & handled)
        _, refused = syscalls.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return f"landlock_restrict_self: {syscalls.errno_name(refused)}" if refused else ""


def list_entries(roots: Iterable[str], hidden: Iterable[str]) -> tuple[str, ...]:
    """The folders and files that together are everything below the roots except what is hidden.

    A root inside a hidden folder is granted; a hidden path below a root is not. Symbolic links are skipped: what they
    point to has a path of its own.
    """
    real_hidden = {os.path.realpath(h) for h in hidden}
    paths = [path for root in roots for path in _list_visible(os.path.realpath(root), real_hidden)]
    return tuple(dict.fromkeys(paths))


def _list_visible(path: str, hidden: set[str]) -> Iterator[str]:
    """The path if nothing below it is hidden, else what is visible of its contents."""
    below = {h for h in hidden if h != path and h.startswith(path.rstrip("/") + "/")}
    if not below:
        yield path
        return
    try:
        with os.scandir(path) as folder:
            children = [child.path for child in folder if not child.is_symlink()]
    except OSError:
        return
    for child in children:
        if child not in below:
            yield from _list_visible(child, below)


def _grant(ruleset: int, path: str, rights: int) -> None:
    """Grants rights below a path; skips a path that does not exist."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        rule = ctypes.create_string_buffer(rights.to_bytes(8, "little") + descriptor.to_bytes(4, "little"), 12)
        syscalls.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
