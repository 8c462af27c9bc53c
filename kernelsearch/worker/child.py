"""The main program of every worker process: it serves the jobs of a role, or forks workers that do.

`python -m kernelsearch.worker.child ROLE FD serve|nursery CACHE [READABLE...]`. A nursery imports what its role needs
(seconds), then forks a ready worker for each socket that it receives (hundredths of a second). It never touches a GPU,
because a process that has must not fork. `serve` starts a worker that computes before it serves. `torch FD trunk CACHE
[READABLE...]` imports torch once, and forks both for any role.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from inspect import getclosurevars
from types import FunctionType, ModuleType
from typing import Any

from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.messages.channel import Channel, ChannelClosed, Hello, Last, unpack_trusted

ROLES = {
    role: f"kernelsearch.worker.roles.{role}" for role in ("compile", "judge", "seed", "evaluate", "run", "confirm")
}
_WHOLE_BLOCKS = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:1024"}
"""A freed block of 1 GiB or more is not cut for smaller tensors: two processes share the GPU's memory."""
_NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
_ENVIRONMENT = {
    **dict.fromkeys(("compile", "seed", "evaluate"), _NO_GPU),
    **dict.fromkeys(("torch", "judge", "run", "confirm"), _WHOLE_BLOCKS),
}
_LEAST_MAPPED, _LEAST_TRIMMED = 1 << 28, 1 << 29
"""Bytes of a block that is mapped by itself, and of free memory that goes back to the kernel."""
_EXHAUSTED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def main(role: str, descriptor: int, mode: str, place: sandbox.WorkerPlace) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(_ENVIRONMENT.get(role, {}))  # before anything that looks at it is imported
    if (role, mode) == ("judge", "nursery"):
        os.environ.update(_NO_GPU)  # a judge that uses a GPU is never forked
    control = socket.socket(fileno=descriptor)
    if mode == "trunk":
        run_trunk(control, place)
        return
    module = importlib.import_module(ROLES[role])
    if mode == "serve":
        serve(role, module, control, place, preload=True)
        return
    module.preload()
    run_nursery(role, module, control, place)


def run_trunk(control: socket.socket, place: sandbox.WorkerPlace) -> None:
    """Imports torch, then forks `nursery ROLE` or `serve ROLE` for every descriptor that it receives."""
    from torch.fx.experimental import symbolic_shapes  # noqa: F401  (half a second, at the first meta tensor)

    keep_freed_memory()
    postpone_compiler()
    gc.freeze()  # a collector would else copy what the forked processes share

    def become(act: str, own: int) -> None:
        mode, role = act.split()
        os.setsid()
        log = os.open(sandbox.log_path(place.cache, role), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        main(role, own, mode, place)

    fork_on_request(control, become)


def keep_freed_memory() -> None:
    """Lets the C library keep the memory of freed tensors for the next ones.

    It would map each larger one anew, and the kernel would clear its pages: two thirds of the time in which the right
    answer for four million elements is made.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # that of glibc
    if set_option is not None:
        set_option(-3, _LEAST_MAPPED)  # M_MMAP_THRESHOLD of malloc.h
        set_option(-1, _LEAST_TRIMMED)  # M_TRIM_THRESHOLD


def postpone_compiler() -> None:
    """Lets torch's functions that must not be compiled run as they are until somebody else imports the compiler.

    Each of them (a comparison of meta tensors) would import it at its first call, most of a second, to say so.
    """
    import torch

    marker = torch._disable_dynamo(lambda: None).__code__
    for kept in gc.get_objects():
        if type(kept) is FunctionType and kept.__code__ is marker:
            plain = getclosurevars(kept).nonlocals["fn"]
            plain.__dynamo_disable = _until_compiler_is_there(kept, plain)


def _until_compiler_is_there(kept: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return plain(*args, **kwargs)
        vars(plain).pop("__dynamo_disable", None)  # torch makes its own
        return kept(*args, **kwargs)

    return call


def run_nursery(role: str, module: ModuleType, control: socket.socket, place: sandbox.WorkerPlace) -> None:
    """Forks a worker for every descriptor that it receives.

    For `standby` it forks another nursery, which has all imports and replaces this one if somebody kills it: importing
    torch again would take seconds.
    """
    listener = _open_listener()
    place = replace(place, port=listener.getsockname()[1] if listener else None)

    def become(act: str, own: int) -> None:
        if act == "standby":
            os.setsid()
            if listener is not None:
                listener.close()
            run_nursery(role, module, socket.socket(fileno=own), place)
        else:
            serve(role, module, socket.socket(fileno=own), place)

    fork_on_request(control, become)


def fork_on_request(control: socket.socket, become: Callable[[str, int], None]) -> None:
    """Forks a process for every message with a descriptor, and answers with its process id, until control is closed."""
    control.send(b"ready")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 32, 1)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            become(message.decode(), descriptors[0])
            os._exit(0)
        os.close(descriptors[0])
        control.send(str(pid).encode())


def _open_listener() -> socket.socket | None:
    """A listener on 127.0.0.1 that this process can reach and a worker without a network cannot."""
    try:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        socket.create_connection(listener.getsockname(), timeout=1.0).close()
        listener.accept()[0].close()
    except OSError:
        return None
    return listener


def serve(
    role: str, module: ModuleType, sock: socket.socket, place: sandbox.WorkerPlace, *, preload: bool = False
) -> None:
    """Answers jobs until the driver closes the socket. It preloads inside the sandbox: imports may start threads."""
    entered = sandbox.enter(role, module.LIMITS, (sock.fileno(),), place)
    if preload:
        module.preload()
    channel = Channel(sock, unpack_trusted)
    channel.send(Hello(os.getpid(), entered.layers, entered.missing))
    while True:
        try:
            job = channel.receive()
        except ChannelClosed:
            return
        sandbox.begin_job(module.LIMITS)
        channel.send(answer(module, job))


def answer(module: ModuleType, job: object) -> object:
    """The answer to one job. One of two places that catch broadly: user code and candidates raise what they like."""
    try:
        return module.handle(job)
    except MemoryError:
        return Last(module.answer_failure(job, "out of memory", ""))
    except Exception as error:
        failure = module.answer_failure(job, f"{type(error).__name__}: {error}"[:500], traceback.format_exc()[-3000:])
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            return failure
        return Last(failure, full=error.errno in (errno.ENOSPC, errno.EDQUOT))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sandbox.WorkerPlace(sys.argv[4], tuple(sys.argv[5:])))
