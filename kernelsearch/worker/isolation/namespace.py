"""A network of its own for a worker: a fresh user and network namespace that holds one loopback device, down."""

from __future__ import annotations

import ctypes
import os

from kernelsearch.worker.isolation import syscalls

_NEWUSER = 0x10000000
_NEWNET = 0x40000000
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522


def leave_network() -> str:
    """Cuts this process, which must have one thread, off every network. Returns "" or why it could not.

    The new user namespace maps the user to itself, so that files look as before, and all capabilities
    that it brings are given up. Where only user namespaces are forbidden, root goes without one.
    """
    user, group = os.geteuid(), os.getegid()
    refused = syscalls.unshare(_NEWUSER | _NEWNET)
    if refused:
        again = syscalls.unshare(_NEWNET)
        return f"unshare: {syscalls.name(refused)}" if again else ""
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    except OSError as error:
        return f"identity maps: {error.strerror}"
    return _drop_capabilities()


def _drop_capabilities() -> str:
    number = _CAPSET.get(os.uname().machine)
    if number is None:
        return ""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _, refused = syscalls.syscall(number, ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    return f"capset: {syscalls.name(refused)}" if refused else ""


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
