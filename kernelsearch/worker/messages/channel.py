"""Messages between the driver and its workers: length-prefixed pickles over a socket, read with a whitelist.

A worker that ran a candidate may be hostile, so what it sends is unpickled by an unpickler that knows
the project's own data classes and nothing else: no function, no module of the standard library, no numpy.
Tensors travel as `Array`s.
"""

from __future__ import annotations

import importlib
import io
import pickle
import select
import socket
import struct
import time
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any

_HEADER = struct.Struct("<Q")
MAX_MESSAGE = 8 << 30
_PIECE = 1 << 22

_MODULES = frozenset(
    f"kernelsearch.{name}"
    for name in (
        "core.types",
        "kernel.source",
        "kernel.launch",
        "kernel.targets",
        "compile.code",
        "compile.build",
        "measure.static_model.counts",
        "tasks.outline",
        "worker.messages.channel",
        "worker.messages.jobs",
        "worker.messages.confirm_jobs",
    )
)


class ChannelClosed(Exception):
    """The other end is gone, or sent something that is not a message."""


class ChannelTimeout(Exception):
    """No whole message came in time."""


@dataclass(frozen=True)
class Array:
    """A tensor as data: torch's dtype name, shape, stride in elements (None: contiguous), bytes of its elements."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    stride: tuple[int, ...] | None = None


class _Unpickler(pickle._Unpickler):
    """Builds instances of the project's data classes and of its enums, and changes nothing that exists.

    The standard library's unpickler written in Python, because the one in C cannot be told to refuse
    `BUILD` on a class, with which a message could change what the driver's own classes do.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module in _MODULES and "." not in name:
            found = getattr(importlib.import_module(module), name, None)
            if (
                isinstance(found, type)
                and found.__module__ == module
                and (is_dataclass(found) or issubclass(found, Enum))
            ):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not data")

    def load_build(self) -> None:
        target, state = self.stack[-2:]
        if not is_dataclass(target) or isinstance(target, type) or not isinstance(state, dict):
            raise pickle.UnpicklingError(f"a state for a {type(target).__name__} is not data")
        super().load_build()

    dispatch = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}


_UNREADABLE = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    ImportError,
    ArithmeticError,
    AssertionError,
    MemoryError,
    RecursionError,
    struct.error,
    NameError,
)
"""What the unpickler raises on bytes that are no pickle."""


def packed(message: Any) -> bytes:
    """A message as bytes."""
    return pickle.dumps(message, protocol=5)


def unpacked(data: bytes | bytearray) -> Any:
    """A message from bytes that nobody vouches for. Raises ChannelClosed when they are not data."""
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except _UNREADABLE as error:
        raise ChannelClosed(f"a message that is not data: {error}") from None


class Channel:
    """One end of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, message: Any, timeout: float | None = None) -> None:
        """Raises ChannelClosed when the other end is gone, ChannelTimeout when it does not take the message in time."""
        data = packed(message)
        self.sock.settimeout(timeout)
        try:
            self.sock.sendall(_HEADER.pack(len(data)))
            self.sock.sendall(data)
        except TimeoutError:
            raise ChannelTimeout() from None
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        finally:
            self.sock.settimeout(None)

    def waiting(self, timeout: float = 0.0) -> bool:
        """Whether something, or the end, can be read within timeout seconds."""
        return bool(select.select([self.sock], [], [], max(0.0, timeout))[0])

    def receive(self, timeout: float | None = None) -> Any:
        """The next message. Raises ChannelTimeout after timeout seconds, ChannelClosed at the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        (size,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        if size > MAX_MESSAGE:
            raise ChannelClosed("a message of impossible length")
        return unpacked(self._read(size, deadline))

    def close(self) -> None:
        self.sock.close()

    def _read(self, size: int, deadline: float | None) -> bytearray:
        buffer = bytearray(min(size, _PIECE))
        done = 0
        while done < size:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.sock], [], [], left)
            if not ready:
                raise ChannelTimeout()
            if done == len(buffer):  # grown by what has come, not by what was announced
                buffer.extend(bytes(min(done, size - done)))
            try:
                with memoryview(buffer) as view:
                    count = self.sock.recv_into(view[done:], min(len(buffer) - done, _PIECE))
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            if count == 0:
                raise ChannelClosed("the other end closed")
            done += count
        return buffer
