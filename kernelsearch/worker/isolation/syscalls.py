"""System calls of Linux that Python does not offer."""

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
    return _call(_libc().syscall, *(ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *args)))


def prctl(option: int, *args: Any) -> tuple[int, int]:
    """`prctl` with its unused arguments zero; answers as `syscall` does."""
    return _call(
        _libc().prctl, option, *(ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*args, 0, 0, 0, 0)[:4])
    )


def unshare(flags: int) -> int:
    """Moves this process into new namespaces. Returns 0 or an errno."""
    return _call(_libc().unshare, flags)[1]


def _call(function: Any, *args: Any) -> tuple[int, int]:
    ctypes.set_errno(0)
    result = function(*args)
    return result, (ctypes.get_errno() if result == -1 else 0)


def errno_name(code: int) -> str:
    """The name of an errno: `EPERM` for 1."""
    return errno.errorcode.get(code, f"errno {code}")
