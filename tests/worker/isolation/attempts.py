"""Enters a role's sandbox, tries what it forbids, prints JSON: `python attempts.py ROLE CACHE PORT [BROKEN...]`.

Written without the project's own probes, so that they are judged and not believed. BROKEN names layers whose system
call is made to claim success and do nothing, or (`refused:`) to be refused.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from kernelsearch.worker.isolation import landlock, namespace, sandbox, seccomp, syscalls


def broken(name: str) -> None:
    match name:
        case "network":
            namespace.leave_network = lambda: ""
        case "landlock":
            landlock.restrict = lambda grants: ""
        case "seccomp":
            seccomp.restrict = lambda groups: ""
        case "descriptors":
            os.close = lambda descriptor: None
        case "limits":
            sandbox._limit = lambda kind, value: True
        case "session":
            os.setsid = lambda: None
        case "no_new_privs":
            real = syscalls.prctl
            syscalls.prctl = lambda option, *args: (0, 0) if option == 38 else real(option, *args)
        case "refused:network":
            syscalls.unshare = lambda flags: errno.EPERM
        case "refused:landlock":
            landlock.version = lambda: (0, errno.ENOSYS)
        case _:
            raise ValueError(name)


def tried(act: Callable[[], object]) -> str:
    """`done`, or the errno's name."""
    try:
        act()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


def forked() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def written(path: str) -> None:
    with open(path, "wb") as file:
        file.write(b"x")


def read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def connected(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as outward:
        outward.connect(path)


def sent(path: str) -> None:
    with socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0] as outward:
        outward.sendto(b"x", path)


def own_program(folder: str) -> None:
    path = os.path.join(folder, "program")
    shutil.copy("/bin/true", path)
    os.chmod(path, 0o700)
    subprocess.run([path], check=True)


def moved(folder: str) -> None:
    os.makedirs(os.path.join(folder, "one", "two"))
    written(os.path.join(folder, "one", "two", "file"))
    os.replace(os.path.join(folder, "one", "two", "file"), os.path.join(folder, "file"))


def attempts(role: str, cache: str, port: int, before: int) -> dict[str, str]:
    own = os.environ["HOME"]
    return {
        "secret": "done" if "PLANTED_BY_THE_TEST" in os.environ else "absent",
        "tcp": tried(lambda: socket.create_connection(("127.0.0.1", port), timeout=2).close()),
        "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()),
        "path_socket": tried(lambda: connected(os.path.join(cache, "listener"))),
        "path_datagram": tried(lambda: sent(os.path.join(cache, "datagrams"))),
        "chmod": tried(lambda: os.chmod(sandbox.log_path(cache, role), 0o600)),
        "chmod_open": tried(lambda: os.fchmod(0, os.fstat(0).st_mode & 0o777)),
        "chown": tried(lambda: os.chown(sandbox.log_path(cache, role), os.getuid(), -1)),
        "utime": tried(lambda: os.utime(sandbox.log_path(cache, role))),
        "xattr": tried(lambda: os.setxattr(sandbox.log_path(cache, role), "user.name", b"x")),
        "socketpair": tried(lambda: [s.close() for s in socket.socketpair()]),
        "write_outside": tried(lambda: written(os.path.join(cache, "outside"))),
        "write_own": tried(lambda: written(os.path.join(own, "inside"))),
        "move_own": tried(lambda: moved(own)),
        "read_hidden": tried(lambda: read(sandbox.log_path(cache, role))),
        "read_library": tried(lambda: read(json.__file__)),
        "import_late": "done" if importlib.import_module("csv") else "",
        "read_parent": tried(lambda: read(f"/proc/{os.getppid()}/environ")),
        "signal_parent": tried(lambda: os.kill(os.getppid(), 0)),
        "signal_self": tried(lambda: os.kill(os.getpid(), signal.SIGCONT)),
        "old_descriptor": tried(lambda: os.fstat(before)),
        "fork": tried(forked),
        "run_installed": tried(lambda: subprocess.run(["/bin/true"], check=True)),
        "run_own": tried(lambda: own_program(own)),
        "large_file": tried(lambda: os.truncate(os.path.join(own, "inside"), (1 << 30) + 1)),
        "many_descriptors": tried(lambda: os.close(os.dup2(0, 3000))),
    }


def main() -> None:
    role, cache, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for name in sys.argv[4:]:
        broken(name)
    before = os.dup(0)
    place = sandbox.WorkerPlace(cache, port=port)
    entered = sandbox.enter(role, sandbox.WorkerLimits(), (), place)
    result = {"layers": entered.layers, "missing": dict(entered.missing)}
    print(json.dumps({**result, "attempts": attempts(role, cache, port, before)}))


if __name__ == "__main__":
    main()
