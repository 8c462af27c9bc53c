"""A private network for a worker: a new user and network namespace with nothing but a loopback device that is down."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from kernelsearch.worker.isolation import syscalls

_NEWUSER = 0x10000000
_NEWNET = 0x40000000
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522


def leave_network() -> str:
    """Cuts this process, which must have one thread, off every network. Returns "", or why that failed.

    The new user namespace maps the user to itself, so files look as before. The process gives up all capabilities that
    come with it. Where only user namespaces are forbidden, root enters a network namespace alone.
    """
    user, group = os.geteuid(), os.getegid()
    refused = syscalls.unshare(_NEWUSER | _NEWNET)
    if refused:
        return f"unshare: {syscalls.errno_name(refused)}" if syscalls.unshare(_NEWNET) else ""
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        return f"identity maps: {error.strerror}"
    return _drop_capabilities()


def _drop_capabilities() -> str:
    number = _CAPSET.get(os.uname().machine)
    if number is None:
        return ""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _, refused = syscalls.syscall(number, ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    return f"capset: {syscalls.errno_name(refused)}" if refused else ""
