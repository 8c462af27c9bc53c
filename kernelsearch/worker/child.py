"""The main of every worker process: preload the role, then serve jobs, or fork servers on request.

`python -m kernelsearch.worker.child ROLE FD serve|nursery`. A nursery imports what its role needs
(seconds), then forks a ready worker for each socket that it is sent (hundredths of a second). Workers
that touch a GPU are not forked: they are started with `serve`.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import traceback
from types import ModuleType

from kernelsearch.worker import jobs, sandbox
from kernelsearch.worker.channel import Channel, ChannelClosed

ROLES = {
    "compile": "kernelsearch.worker.compiler",
    "judge": "kernelsearch.worker.judging",
    "interpret": "kernelsearch.worker.interpreter",
    "run": "kernelsearch.worker.gpu",
}


def main(role: str, descriptor: int, mode: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module = importlib.import_module(ROLES[role])
    control = socket.socket(fileno=descriptor)
    if mode == "serve":
        serve(module, control)
        return
    module.preload()
    nursery(module, control)


def nursery(module: ModuleType, control: socket.socket) -> None:
    """Forks a worker for every descriptor received, answers with its process id, and waits for the dead."""
    control.send(b"ready")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            serve(module, socket.socket(fileno=descriptors[0]))
            os._exit(0)
        os.close(descriptors[0])
        control.send(str(pid).encode())


def serve(module: ModuleType, sock: socket.socket) -> None:
    """Answers jobs until the driver closes the socket."""
    layers = sandbox.enter(module.LIMITS, (sock.fileno(),))
    channel = Channel(sock)
    channel.send(jobs.Hello(os.getpid(), layers))
    while True:
        try:
            job = channel.receive()
        except ChannelClosed:
            return
        channel.send(answer(module, job))


def answer(module: ModuleType, job: object) -> object:
    """One job's answer. This is the worker's child: one of the two places that catch broadly, because user code and
    candidates raise what they like."""
    try:
        return module.handle(job)
    except MemoryError:
        return module.failed(job, "out of memory", "")
    except Exception as error:
        return module.failed(job, f"{type(error).__name__}: {error}"[:500], traceback.format_exc()[-3000:])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
