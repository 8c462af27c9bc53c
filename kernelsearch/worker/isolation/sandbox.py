"""What a worker gives up before it serves: its environment, descriptors, privileges, limits, network and files.

No privilege is needed for any of it. Each layer is applied, then tried: it is named in the worker's `Hello`
only if the forbidden act failed. A layer that the system refuses is named with the reason and nothing
else changes. Roles that run candidate code get every layer; the judge and the run worker, which run the
user's code only, keep files and network, which that code may need.
"""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import site
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from kernelsearch.worker.isolation import landlock, namespace, probes, seccomp, syscalls

_SET_NO_NEW_PRIVS = 38
_KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "CC",
)
_SET = (
    "HOME",
    "TMPDIR",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "CUDA_CACHE_DISABLE",
    "OMP_NUM_THREADS",
    "PYTHONDONTWRITEBYTECODE",
    "TRITON_INTERPRET",
    "LC_CTYPE",
)
_SMALLEST_SHARE = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Limits of one worker.

    cpu_s: CPU seconds of one job, beyond any wall clock that the driver sets. file_bytes: of any one file.
    descriptors: open at once. memory_bytes: address space beyond what it has at the start; for roles that run
    candidate code this machine's whole memory when None, since a task's inputs may be mapped and never touched.
    nice: how far it steps back for other processes, as `nice` counts; who waits for a GPU must not wait for a processor.
    """

    cpu_s: int | None = None
    file_bytes: int | None = 1 << 30
    descriptors: int | None = 256
    memory_bytes: int | None = None
    nice: int = 0


@dataclass(frozen=True)
class Policy:
    """What a role gives up beyond the common layers: network and files, running programs, groups of system calls."""

    confined: bool
    programs: bool
    denied: tuple[str, ...]


POLICIES = {
    "interpret": Policy(True, False, seccomp.GROUPS),
    "compile": Policy(True, True, ("system", "neighbours", "sockets")),  # it starts ptxas
    "judge": Policy(False, True, ("system",)),
    "run": Policy(False, True, ("system",)),
    "confirm": Policy(False, True, ("system",)),
}


@dataclass(frozen=True)
class Place:
    """Where a worker lives: the workers' common folder, folders that it must be able to read though they lie in a
    hidden place (the task's), and the port of a listener outside to try the network on."""

    cache: str
    readable: tuple[str, ...] = ()
    port: int | None = None


@dataclass(frozen=True)
class Entered:
    """The layers that hold, and (layer, reason) of each that was asked for and does not."""

    layers: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]


def scrubbed_environment(extra: dict[str, str], cache: str) -> dict[str, str]:
    """The environment of a worker: what is needed to find libraries and compilers, and nothing that could be a secret."""
    everything = {**os.environ, probes.PLANTED: "seen"}
    clean = {name: everything[name] for name in _KEPT if name in everything}
    fixed = {"CUDA_CACHE_DISABLE": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**clean, **_folders(cache), **fixed, **extra}


def private_folder(cache: str, role: str, process: int) -> str:
    """The folder that a worker writes in: one a process where candidate code runs, one a role where it does not."""
    return os.path.join(cache, f"{role}-{process}" if POLICIES[role].confined else role)


def resident_limit(role: str) -> int | None:
    """Bytes of memory that a worker may really use before the driver ends it; None for trusted roles.

    A quarter of this machine's, at least 1 GiB. (RLIMIT_AS cannot say this: it counts what is mapped and
    never touched, and the inputs of the timed shapes are.)
    """
    return max(_SMALLEST_SHARE, _machine_memory() // 4) if POLICIES[role].confined else None


def resident_bytes(process: int) -> int:
    """What a process uses of the memory now; 0 when it is gone."""
    try:
        with open(f"/proc/{process}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def enter(role: str, limits: Limits, keep: tuple[int, ...], place: Place) -> Entered:
    """Applies every layer of the role to this process, which must have one thread, and tries each."""
    policy = POLICIES[role]
    folder = private_folder(place.cache, role, os.getpid())
    memory = limits.memory_bytes if limits.memory_bytes or not policy.confined else _machine_memory()
    steps: list[tuple[str, Callable[[], str]]] = [
        ("environment", lambda: probes.environment((*_KEPT, *_SET))),
        ("session", _own_session),
        ("no_new_privs", _no_new_privileges),
        ("private_folder", lambda: _own_folder(folder)),
        ("descriptors", lambda: _close_descriptors(keep)),
        ("limits", lambda: _limited(limits, memory, folder)),
    ]
    if policy.confined:
        steps += [
            ("network", lambda: namespace.leave_network() or probes.network(place.port)),
            ("landlock", lambda: _files(policy, place, folder) or probes.writing(place.cache)),
            ("landlock_read", lambda: probes.reading(log_path(place.cache, role))),
        ]
    steps.append(("seccomp", lambda: seccomp.restrict(policy.denied) or probes.system_calls(policy.denied)))
    reasons = [(name, apply()) for name, apply in steps]
    _end_with_parent()  # a thread, so only now: layers hold for the thread that enters them and for later ones
    return Entered(tuple(n for n, why in reasons if not why), tuple((n, why) for n, why in reasons if why))


def begin_job(limits: Limits) -> None:
    """Gives the next job its CPU seconds."""
    if limits.cpu_s is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + limits.cpu_s + 1)


def log_path(cache: str, role: str) -> str:
    """Where the workers of a role write their complaints: hidden from those that run candidate code."""
    return os.path.join(cache, f"{role}.log")


# ---------------------------------------------------------------- layers


def _own_session() -> str:
    try:
        os.setsid()
    except PermissionError:
        pass  # started as the leader of its own
    return probes.session()


def _no_new_privileges() -> str:
    syscalls.prctl(_SET_NO_NEW_PRIVS, 1)
    return probes.privileges()


def _own_folder(folder: str) -> str:
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError as error:
        return f"cannot be made: {error.strerror}"
    os.environ.update(_folders(folder))
    tempfile.tempdir = None
    return probes.private_folder(folder)


def _close_descriptors(keep: tuple[int, ...]) -> str:
    kept = (0, 1, 2, *keep)
    planted = os.open("/dev/null", os.O_RDONLY)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of this listing
    return probes.descriptors(planted, kept)


def _limited(limits: Limits, memory: int | None, folder: str) -> str:
    space = None if memory is None else _address_space() + memory
    refused = [
        name
        for name, kind, value in (
            ("file size", resource.RLIMIT_FSIZE, limits.file_bytes),
            ("descriptors", resource.RLIMIT_NOFILE, limits.descriptors),
            ("address space", resource.RLIMIT_AS, space),
            ("core", resource.RLIMIT_CORE, 0),
        )
        if not _limit(kind, value)
    ]
    if memory is not None:
        _first_to_go()
    os.nice(limits.nice)
    if refused:
        return f"refused: {', '.join(refused)}"
    return probes.limits(folder, limits.file_bytes, limits.descriptors, memory)


def _files(policy: Policy, place: Place, folder: str) -> str:
    """Landlock: reads everything but what people keep secret, writes its own folder and /dev/null, runs what is installed."""
    read = landlock.entries(("/", *place.readable, *_libraries()), _hidden(place.cache))
    programs = landlock.entries(("/usr", "/bin", "/lib", "/lib64", "/opt", "/nix", *_libraries()), ())
    return landlock.restrict(landlock.Grants(read, (folder, "/dev/null"), programs if policy.programs else ()))


def _hidden(cache: str) -> tuple[str, ...]:
    """The dot files of the user's home, the folder of temporary files, and the workers' common folder."""
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
        dots = [entry.path for entry in os.scandir(home) if entry.name.startswith(".")] if home != "/" else []
    except (KeyError, OSError):
        dots = []
    return (*dots, os.path.dirname(cache), cache)


def _libraries() -> tuple[str, ...]:
    """Where Python's own files and packages lie, which may be below a hidden folder."""
    folders = (
        sys.prefix,
        sys.base_prefix,
        os.path.dirname(os.path.realpath(sys.executable)),
        site.getusersitepackages(),
    )
    return tuple(f for f in dict.fromkeys((*folders, *sys.path)) if f and os.path.exists(f))


# ---------------------------------------------------------------- helpers


def discard(cache: str, role: str, process: int) -> None:
    """Removes what a dead worker wrote, if it was its own."""
    if POLICIES[role].confined:
        shutil.rmtree(private_folder(cache, role, process), ignore_errors=True)


def _folders(folder: str) -> dict[str, str]:
    return {
        "HOME": folder,
        "TMPDIR": folder,
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
    }


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


def _first_to_go() -> None:
    """Should the machine run out of memory, this process ends before the driver does."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        return  # nothing depends on it: the driver watches what its workers use


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(kind: int, value: int | None) -> bool:
    if value is None:
        return True
    _, hard = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    except (OSError, ValueError):
        return False
    return True
