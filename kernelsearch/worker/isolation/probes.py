"""Attempts at forbidden acts from inside a sandbox: each returns "" if it failed as it should, else what went wrong.

A worker's `Hello` names a layer only after its attempt. Session, no_new_privs, core size and CPU time are read back
instead: an attempt would need a set-uid program, a crash, or seconds.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import socket
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from kernelsearch.worker.isolation import seccomp, syscalls

PLANTED = "KERNELSEARCH_PLANTED_SECRET"
"""A variable that the driver adds before it scrubs a worker's environment: it must not arrive."""

_GET_NO_NEW_PRIVS = 39
_MAP_NORESERVE = 0x4000
_CONNECT_LIMIT_S = 0.5


def try_environment(allowed: Iterable[str]) -> str:
    """Looks for the planted variable, and for any variable at the start of this process that is not on the list."""
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    initial = {entry.partition(b"=")[0].decode(errors="replace") for entry in entries if entry}
    if PLANTED in {*initial, *os.environ}:
        return "the planted secret is visible"
    strange = sorted(initial - set(allowed))
    return f"variables not on the list: {', '.join(strange)}" if strange else ""


def try_session() -> str:
    """Checks that this process leads its own session and process group."""
    own = os.getpid()
    return "" if os.getsid(0) == own and os.getpgid(0) == own else "shares its session with others"


def try_privileges() -> str:
    """Reads the no_new_privs bit."""
    return "" if syscalls.prctl(_GET_NO_NEW_PRIVS)[0] == 1 else "programs may still raise privileges"


def try_private_folder(folder: str) -> str:
    """Writes to the worker's own folder, and checks that nobody else may read it."""
    probe = Path(folder, "probe")
    try:
        probe.write_bytes(b"")
        probe.unlink()
        others = os.stat(folder).st_mode & 0o077
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    return "others may look into it" if others else ""


def try_descriptors(planted: int, keep: Iterable[int]) -> str:
    """Uses a descriptor that was open before, and lists those that are still open."""
    if _succeeds(lambda: os.fstat(planted)):
        return "a descriptor from before is still open"
    listed = {int(name) for name in os.listdir("/proc/self/fd")}
    left = {d for d in listed - set(keep) if _succeeds(partial(os.fstat, d))}
    return f"still open: {sorted(left)}" if left else ""


def try_limits(folder: str, file_bytes: int | None, open_files: int | None, memory_bytes: int | None) -> str:
    """Tries to make a file, a descriptor and a mapping beyond the limits."""
    if resource.getrlimit(resource.RLIMIT_CORE)[0] != 0:
        return "a crash would dump its memory"
    if file_bytes is not None and _succeeds(lambda: _large_file(os.path.join(folder, "probe"), file_bytes + 1)):
        return "a file grew beyond its limit"
    if open_files is not None and _succeeds(lambda: os.close(os.dup2(0, open_files))):
        return "a descriptor beyond the limit opened"
    if memory_bytes is not None and _succeeds(lambda: _mapping(memory_bytes + (1 << 24))):
        return "a mapping beyond the limit was given"
    return ""


def try_network(port: int | None) -> str:
    """Tries to connect to a listener on 127.0.0.1 that a process outside has reached before."""
    if port is None:
        return "no listener on 127.0.0.1 to try it on"
    with socket.socket() as outward:
        outward.settimeout(_CONNECT_LIMIT_S)
        try:
            outward.connect(("127.0.0.1", port))
        except TimeoutError:
            return "a connection neither failed nor succeeded"
        except OSError:
            return ""
    return "connected to a process outside"


def try_writing(outside: str) -> str:
    """Tries to write to a folder that is not the worker's own, and to read its parent process."""
    path = os.path.join(outside, f"probe-{os.getpid()}")
    if _succeeds(lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))):
        os.unlink(path)
        return "wrote outside its folder"
    if _succeeds(lambda: os.close(os.open(f"/proc/{os.getppid()}/environ", os.O_RDONLY))):
        return "looked into its parent process"
    return ""


def try_reading(hidden: str) -> str:
    """Tries to read a hidden file that exists."""
    refused = _errno(lambda: os.close(os.open(hidden, os.O_RDONLY)))
    if refused == errno.ENOENT:
        return "the hidden file to try it on is not there"
    return "" if refused else "read a hidden file"


def try_system_calls(groups: tuple[str, ...]) -> str:
    """Makes harmless calls of each denied group; all must answer EPERM."""
    attempts = {"system": ("ptrace", "mount", "bpf"), "neighbours": ("process_vm_readv", "perf_event_open")}
    for group in groups:
        for name in attempts.get(group, ()):
            number = seccomp.number_of(name)
            assert number is not None  # each machine that seccomp knows has these calls
            if syscalls.syscall(number, -1, -1, -1, -1, -1)[1] != errno.EPERM:
                return f"{name} was not denied"
    acts: list[tuple[str, str, Callable[[], object]]] = [
        ("sockets", "a network socket opened", lambda: socket.socket(socket.AF_INET).close()),
        (
            "sockets",
            "a socket with a path was looked for",
            lambda: socket.socketpair()[0].connect("/nonexistent/socket"),
        ),
        ("attributes", "the mode of a file was changed", lambda: os.chmod("/nonexistent/file", 0)),
        ("programs", "execve was not denied", lambda: os.execv("/nonexistent/program", ["program"])),
        ("programs", "a process was forked", _fork),
        ("programs", "the parent process took a signal", lambda: os.kill(os.getppid(), 0)),
    ]
    broken = (why for group, why, act in acts if group in groups and _errno(act) != errno.EPERM)
    return next(broken, "")


def _fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _large_file(path: str, size: int) -> None:
    with open(path, "wb") as file:
        os.unlink(path)
        os.ftruncate(file.fileno(), size)


def _mapping(size: int) -> None:
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE).close()


def _errno(act: Callable[[], object]) -> int:
    try:
        act()
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _succeeds(act: Callable[[], object]) -> bool:
    return _errno(act) == 0
