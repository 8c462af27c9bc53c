"""The sandbox that a worker enters before it serves: environment, descriptors, privileges, limits, network, files.

No layer needs a privilege. Each is applied, then tried: the worker's `Hello` names it only if the forbidden act failed.
A layer that the system refuses is reported with the reason, and the other layers still apply. Roles that run candidate
code get every layer. The judge and the run worker run the user's code only; they keep files and network, which that
code may need.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import shutil
import signal
import site
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelsearch.worker.isolation import landlock, namespace, probes, seccomp, syscalls

_SET_PARENT_DEATH_SIGNAL, _SET_NO_NEW_PRIVS = 1, 38
_INHERITED = (
    "PATH LANG LC_ALL TZ LD_LIBRARY_PATH PYTHONPATH PYTHONPYCACHEPREFIX PYTHONDONTWRITEBYTECODE VIRTUAL_ENV "
    "CUDA_VISIBLE_DEVICES CUDA_HOME CC"
).split()
_SET = (
    "HOME TMPDIR TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR CUDA_CACHE_DISABLE OMP_NUM_THREADS PYTORCH_ALLOC_CONF "
    "LC_CTYPE"
).split()
_SMALLEST_SHARE = 1 << 30


@dataclass(frozen=True)
class WorkerLimits:
    """Limits of one worker.

    cpu_s: CPU seconds of one job, besides the driver's wall clock. file_bytes: size of any one file. descriptors: open
    at once. memory_bytes: address space beyond that at the start; None means, for roles that run candidate code, four
    times this machine's memory, since a task's inputs and outputs may be mapped and never touched. nice: added to the
    niceness, so that processes which wait for a GPU need not wait for a processor.
    """

    cpu_s: int | None = None
    file_bytes: int | None = 1 << 30
    descriptors: int | None = 256
    memory_bytes: int | None = None
    nice: int = 0


@dataclass(frozen=True)
class Policy:
    """Layers of a role beyond the common ones.

    confined: no network, and only granted files. programs: may run installed programs. denied: groups of system calls.
    timed_by_cpu: its timeouts are CPU seconds of its own and of what it has started, which a busy machine does not use
    up. That is for roles which compute all the time, on one processor.
    keeps_apart: a worker executes the code of one candidate only; the next one gets a process that is forked anew from
    the nursery, which has executed none. So nothing that a candidate did to its process reaches another's answers.
    """

    confined: bool
    programs: bool
    denied: tuple[str, ...]
    timed_by_cpu: bool = False
    keeps_apart: bool = False


POLICIES = {
    "evaluate": Policy(True, False, seccomp.GROUPS, timed_by_cpu=True),
    "compile": Policy(
        True, True, ("system", "neighbours", "sockets", "attributes"), timed_by_cpu=True, keeps_apart=True
    ),  # ptxas
    "judge": Policy(False, True, ("system",)),
    "seed": Policy(False, True, ("system",)),
    "run": Policy(False, True, ("system",)),
    "confirm": Policy(False, True, ("system",)),
}


@dataclass(frozen=True)
class WorkerPlace:
    """Where a worker lives.

    cache: the workers' common folder. readable: folders to grant although a parent is hidden (the task's folder).
    port: of a listener outside, to try the network on.
    """

    cache: str
    readable: tuple[str, ...] = ()
    port: int | None = None


@dataclass(frozen=True)
class SandboxLayers:
    """The layers that hold, and (layer, reason) of each that was wanted and does not."""

    layers: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]


def scrub_environment(cache: str) -> dict[str, str]:
    """The environment of a worker: what finds libraries and compilers, and nothing that could be a secret.

    Bytecode may be kept: some installers leave torch without any, and each worker would compile it, ten seconds.
    """
    everything = {**os.environ, probes.PLANTED: "seen"}
    clean = {name: everything[name] for name in _INHERITED if name in everything}
    if "PYTHONPATH" in clean:  # an empty place in it is the current folder
        clean["PYTHONPATH"] = os.pathsep.join(filter(os.path.isabs, clean["PYTHONPATH"].split(os.pathsep)))
    fixed = {"CUDA_CACHE_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    return {**clean, **_folder_variables(cache), **fixed}


def run_module(name: str) -> list[str]:
    """The command of a process that runs a module of this package, and finds no other in the current folder."""
    package = str(Path(__file__).parents[3])
    start = f"import runpy, sys; sys.path.append({package!r}); runpy.run_module({name!r}, run_name='__main__')"
    return [sys.executable, "-P", "-c", start]


def private_folder(cache: str, role: str, process: int) -> str:
    """The folder that a worker writes to: one per process where candidate code runs, else one per role."""
    return os.path.join(cache, f"{role}-{process}" if POLICIES[role].confined else role)


def resident_limit(role: str) -> int | None:
    """Bytes of resident memory at which the driver kills a worker; None for trusted roles.

    A quarter of this machine's memory, at least 1 GiB. RLIMIT_AS cannot do this: it also counts memory that is mapped
    and never touched, such as the inputs of timed shapes.
    """
    return max(_SMALLEST_SHARE, read_machine_memory() // 4) if POLICIES[role].confined else None


def resident_bytes(process: int) -> int:
    """Bytes of memory that a process and all that it has started use now; 0 if it has ended."""
    try:
        return _statm_bytes(process, 1) + sum(map(resident_bytes, _children(process)))
    except (OSError, IndexError):
        return 0


def cpu_seconds(process: int) -> float:
    """CPU seconds that a process and all that it has started have used since their starts; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    own_and_reaped = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own_and_reaped + sum(map(cpu_seconds, _children(process)))


def _children(process: int) -> list[int]:
    """The running processes that a process has started; none where the system does not list them."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            pids += map(int, (thread / "children").read_text().split())
    return pids


def enter(role: str, limits: WorkerLimits, keep: tuple[int, ...], place: WorkerPlace) -> SandboxLayers:
    """Applies every layer of the role to this process, which must have one thread, and tries each."""
    policy = POLICIES[role]
    folder = private_folder(place.cache, role, os.getpid())
    memory = limits.memory_bytes if limits.memory_bytes or not policy.confined else 4 * read_machine_memory()
    steps: list[tuple[str, Callable[[], str]]] = [
        ("environment", lambda: probes.try_environment((*_INHERITED, *_SET))),
        ("session", _start_session),
        ("no_new_privs", _forbid_new_privileges),
        ("private_folder", lambda: _make_folder(folder)),
        ("descriptors", lambda: _close_descriptors(keep)),
        ("limits", lambda: _apply_limits(limits, memory, folder)),
    ]
    if policy.confined:
        sys.dont_write_bytecode = True
        steps += [
            ("network", lambda: namespace.leave_network() or probes.try_network(place.port)),
            ("landlock", lambda: _restrict_files(policy, place, folder) or probes.try_writing(place.cache)),
            ("landlock_read", lambda: probes.try_reading(log_path(place.cache, role))),
        ]
    steps.append(("seccomp", lambda: seccomp.restrict(policy.denied) or probes.try_system_calls(policy.denied)))
    reasons = [(name, apply()) for name, apply in steps]
    end_with_parent()  # last, because a process that gives up rights loses this
    return SandboxLayers(tuple(n for n, why in reasons if not why), tuple((n, why) for n, why in reasons if why))


def begin_job(limits: WorkerLimits) -> None:
    """Gives the next job its CPU seconds."""
    if limits.cpu_s is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + limits.cpu_s + 1)


def log_path(cache: str, role: str) -> str:
    """The file that holds the stderr of a role's workers: hidden from workers that run candidate code."""
    return os.path.join(cache, f"{role}.log")


# ---------------------------------------------------------------- layers


def _start_session() -> str:
    with contextlib.suppress(PermissionError):  # raised when it already leads a session
        os.setsid()
    return probes.try_session()


def _forbid_new_privileges() -> str:
    syscalls.prctl(_SET_NO_NEW_PRIVS, 1)
    return probes.try_privileges()


def _make_folder(folder: str) -> str:
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError as error:
        return f"cannot be made: {error.strerror}"
    os.environ.update(_folder_variables(folder))
    tempfile.tempdir = None
    return probes.try_private_folder(folder)


def _close_descriptors(keep: tuple[int, ...]) -> str:
    keep = (0, 1, 2, *keep)
    planted = os.open("/dev/null", os.O_RDONLY)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # raised for the descriptor of this listing
                os.close(int(name))
    return probes.try_descriptors(planted, keep)


def _apply_limits(limits: WorkerLimits, memory: int | None, folder: str) -> str:
    wanted = {
        "file size": (resource.RLIMIT_FSIZE, limits.file_bytes),
        "descriptors": (resource.RLIMIT_NOFILE, limits.descriptors),
        "address space": (resource.RLIMIT_AS, None if memory is None else _statm_bytes("self", 0) + memory),
        "core": (resource.RLIMIT_CORE, 0),
    }
    refused = [name for name, (kind, value) in wanted.items() if not _limit(kind, value)]
    if memory is not None:
        # Out of memory, the system kills this process before the driver, which watches what its workers use anyway.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
    os.nice(limits.nice)
    if refused:
        return f"refused: {', '.join(refused)}"
    return probes.try_limits(folder, limits.file_bytes, limits.descriptors, memory)


def _restrict_files(policy: Policy, place: WorkerPlace, folder: str) -> str:
    """Reads all but hidden folders; writes to its own folder and /dev/null; runs what is installed, if programs may."""
    read = landlock.list_entries(("/", *place.readable, *_library_folders()), _hidden_folders(place.cache))
    programs = landlock.list_entries(("/usr", "/bin", "/lib", "/lib64", "/opt", "/nix", *_library_folders()), ())
    return landlock.restrict(landlock.Grants(read, (folder, "/dev/null"), programs if policy.programs else ()))


def _hidden_folders(cache: str) -> tuple[str, ...]:
    """The dot files of the user's home, the folder of temporary files, and the workers' common folder."""
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
        dots = [entry.path for entry in os.scandir(home) if entry.name.startswith(".")] if home != "/" else []
    except (KeyError, OSError):
        dots = []
    return (*dots, os.path.dirname(cache), cache)


def _library_folders() -> tuple[str, ...]:
    """The folders of Python's own files and packages, which may lie below a hidden folder."""
    programs = os.path.dirname(os.path.realpath(sys.executable))
    folders = (sys.prefix, sys.base_prefix, programs, site.getusersitepackages(), *sys.path)
    return tuple(f for f in dict.fromkeys(folders) if f and os.path.exists(f))


# ---------------------------------------------------------------- helpers


def discard(cache: str, role: str, process: int) -> None:
    """Removes a dead worker's private folder; a folder that its role shares stays."""
    if POLICIES[role].confined:
        shutil.rmtree(private_folder(cache, role, process), ignore_errors=True)


def _folder_variables(folder: str) -> dict[str, str]:
    return {
        "HOME": folder,
        "TMPDIR": folder,
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
    }


def end_with_parent() -> None:
    """Lets the system kill this process when its parent ends, whatever it does then.

    That follows the parent's thread: whoever forks workers has one, and so has the worker that starts programs.
    """
    syscalls.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def read_machine_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()


def _statm_bytes(process: int | str, field: int) -> int:
    """Bytes of a process's address space (field 0) or resident memory (field 1)."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[field]) * resource.getpagesize()


def _limit(kind: int, value: int | None) -> bool:
    if value is None:
        return True
    _, hard = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    except (OSError, ValueError):
        return False
    return True
