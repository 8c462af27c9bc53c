"""The few system calls of Linux that Python does not offer, as functions that return 0 or an errno."""

from __future__ import annotations

import ctypes
import errno
import functools
from typing import Any


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *args: Any) -> tuple[int, int]:
    """(The call's result, 0) or (-1, errno). Integers are passed as 64-bit words; pointers and buffers as they are."""
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    ctypes.set_errno(0)
    result = _libc().syscall(ctypes.c_long(number), *passed)
    return result, (ctypes.get_errno() if result == -1 else 0)


def prctl(option: int, *args: Any) -> tuple[int, int]:
    """`prctl` with its unused arguments zero; the same answer as `syscall`."""
    passed = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*args, 0, 0, 0, 0)[:4]]
    ctypes.set_errno(0)
    result = _libc().prctl(option, *passed)
    return result, (ctypes.get_errno() if result == -1 else 0)


def unshare(flags: int) -> int:
    """Moves this process into new namespaces. Returns 0 or an errno."""
    ctypes.set_errno(0)
    return ctypes.get_errno() if _libc().unshare(flags) else 0


def name(code: int) -> str:
    """`EPERM` for 1, and so on."""
    return errno.errorcode.get(code, f"errno {code}")
