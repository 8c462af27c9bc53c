"""A process that can be ended safely: by a descriptor, which never means a stranger that got the same id later."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

_PROCESS_GROUP = 4
"""PIDFD_SIGNAL_PROCESS_GROUP of linux/pidfd.h, since Linux 6.9."""


class ProcessHandle:
    """A running process and its group. Several threads may use it."""

    def __init__(self, process: int) -> None:
        self.process, self._lock = process, threading.Lock()
        self._descriptor: int | None = None
        with contextlib.suppress(ProcessLookupError):  # raised if it has ended
            self._descriptor = os.pidfd_open(process)

    def kill(self) -> None:
        """Ends the process and all of its group, if they still run."""
        with self._lock:
            if (descriptor := self._descriptor) is None:
                return
            try:
                _signal(descriptor, _PROCESS_GROUP)
            except ProcessLookupError:
                pass
            except OSError:  # an older Linux
                self._kill_group_by_id(descriptor)
            with contextlib.suppress(ProcessLookupError):
                _signal(descriptor)

    def close(self) -> None:
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None

    def _kill_group_by_id(self, descriptor: int) -> None:
        """A group keeps its leader's id from being given anew, so that whoever bears it now is the leader or alone."""
        try:
            _signal(descriptor, number=0)
        except ProcessLookupError:
            if os.path.exists(f"/proc/{self.process}"):
                return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, signal.SIGKILL)


def _signal(descriptor: int, flags: int = 0, number: int = signal.SIGKILL) -> None:
    signal.pidfd_send_signal(descriptor, number, None, flags)
