"""What a worker gives up before it serves: its environment, its descriptors, its privileges, its limits.

No privilege is needed for any of it. Each layer that took hold is named in the worker's `Hello`;
a layer that the system refuses is left out of that list and nothing else changes. (Namespaces,
Landlock and seccomp are not here yet.)
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
import time
from dataclasses import dataclass

_PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True)
class Limits:
    """Limits of one worker: CPU seconds in all, bytes of any one file, open descriptors, bytes of address space."""

    cpu_s: int | None = None
    file_bytes: int | None = 1 << 30
    descriptors: int | None = 256
    memory_bytes: int | None = None


def scrubbed_environment(extra: dict[str, str], cache: str) -> dict[str, str]:
    """The environment of a worker: what is needed to find libraries and compilers, and nothing that could be a secret."""
    kept = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CC")
    clean = {name: os.environ[name] for name in kept if name in os.environ}
    return {
        **clean,
        "HOME": cache,
        "TMPDIR": cache,
        "TRITON_CACHE_DIR": os.path.join(cache, "triton"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor"),
        "CUDA_CACHE_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **extra,
    }


def enter(limits: Limits, keep: tuple[int, ...]) -> tuple[str, ...]:
    """Applies what can be applied to this process and returns the names of the layers that took hold."""
    layers = ["environment"]
    if _own_session():
        layers.append("session")
    if _prctl(_PR_SET_NO_NEW_PRIVS, 1):
        layers.append("no_new_privs")
    _end_with_parent()
    _close_descriptors(keep)
    layers.append("descriptors")
    if all([
        _limit(resource.RLIMIT_CPU, limits.cpu_s),
        _limit(resource.RLIMIT_FSIZE, limits.file_bytes),
        _limit(resource.RLIMIT_NOFILE, limits.descriptors),
        _limit(resource.RLIMIT_AS, limits.memory_bytes),
        _limit(resource.RLIMIT_CORE, 0),
    ]):  # fmt: skip
        layers.append("limits")
    return tuple(layers)


def _end_with_parent() -> None:
    """Ends this process within a second of its parent's end, even in the middle of a job.

    The kernel's own signal for that (PR_SET_PDEATHSIG) follows the parent's thread, not its process.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _own_session() -> bool:
    try:
        os.setsid()
    except PermissionError:
        return os.getsid(0) == os.getpid()
    return True


def _prctl(option: int, value: int) -> bool:
    return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0


def _close_descriptors(keep: tuple[int, ...]) -> None:
    kept = {0, 1, 2, *keep}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue


def _limit(kind: int, value: int | None) -> bool:
    if value is None:
        return True
    _, hard = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    except (OSError, ValueError):
        return False
    return True
