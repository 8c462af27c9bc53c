"""A channel between the driver and a worker: length-prefixed pickles over a socket, read with a whitelist.

A worker that ran a candidate may be hostile, so the unpickler knows the project's own data classes and nothing else: no
function, no module of the standard library, no numpy. Tensors travel as `Array`s.
"""

from __future__ import annotations

import importlib
import io
import pickle
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any

_HEADER = struct.Struct("<Q")
MAX_MESSAGE = 8 << 30
_PIECE_BYTES = 1 << 22

_DATA_MODULES = frozenset(
    "kernelsearch." + name
    for name in (
        "core.types kernel.source kernel.launch kernel.targets compile.code compile.tensor_maps compile.build "
        "measure.static_model.counts worker.messages.channel worker.messages.jobs worker.messages.confirm_jobs"
    ).split()
)


class ChannelClosed(Exception):
    """The other end is gone, or it sent something that is not a message."""


class ChannelTimeout(Exception):
    """No complete message came in time."""


@dataclass(frozen=True)
class Array:
    """A tensor as data: torch's name of its dtype, shape, elements as bytes, stride in elements (None: contiguous)."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Hello:
    """A worker's first message: its process id, the layers that hold, and (layer, reason) of each that does not."""

    pid: int
    layers: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Last:
    """A worker's last answer: it ran out of memory, disk or descriptors, and must be replaced.

    full: the disk is full, which is the machine's fault and not the candidate's.
    """

    answer: Any
    full: bool = False


class _Unpickler(pickle._Unpickler):
    """Builds instances of the project's data classes and enums, and changes nothing that exists.

    It extends the standard library's unpickler in Python. The one in C cannot refuse `BUILD` on a class, with which a
    message could change the driver's own classes.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module in _DATA_MODULES and "." not in name:
            kind = getattr(importlib.import_module(module), name, None)
            if isinstance(kind, type) and kind.__module__ == module and (is_dataclass(kind) or issubclass(kind, Enum)):
                return kind
        raise pickle.UnpicklingError(f"{module}.{name} is not data")

    def load_build(self: Any) -> None:
        target, state = self.stack[-2:]
        if not is_dataclass(target) or isinstance(target, type) or not isinstance(state, dict):
            raise pickle.UnpicklingError(f"a state for a {type(target).__name__} is not data")
        super().load_build()  # type: ignore[misc]  # typeshed lacks it

    dispatch = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}  # noqa: RUF012  (pickle's own interface)


_FORMAT_ERRORS = (pickle.UnpicklingError, struct.error, EOFError, AssertionError, MemoryError, RecursionError)
_VALUE_ERRORS = (AttributeError, TypeError, ValueError, LookupError, ImportError, ArithmeticError, NameError)


def pack(message: Any) -> bytes:
    """A message as bytes."""
    return pickle.dumps(message, protocol=5)


def unpack(data: bytes | bytearray) -> Any:
    """A message from untrusted bytes. Raises ChannelClosed if they are not data."""
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except (*_FORMAT_ERRORS, *_VALUE_ERRORS) as error:  # all that the unpickler raises on bytes that are no pickle
        raise ChannelClosed(f"a message that is not data: {error}") from None


unpack_trusted = pickle.loads
"""A message from bytes that the driver wrote."""


class Channel:
    """One end of a socket. A worker trusts its driver and reads with `unpack_trusted`, ten times as fast."""

    def __init__(self, sock: socket.socket, read: Callable[[bytes | bytearray], Any] = unpack) -> None:
        self.sock, self.read = sock, read

    def send(self, message: Any, timeout: float | None = None) -> None:
        """Sends a message.

        Raises ChannelClosed if the other end is gone, ChannelTimeout if it does not take the message within timeout
        seconds.
        """
        data = pack(message)
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

    def is_readable(self, timeout: float = 0.0) -> bool:
        """True if data, or the end, can be read within timeout seconds."""
        return bool(select.select([self.sock], [], [], max(0.0, timeout))[0])

    def receive(self, timeout: float | None = None) -> Any:
        """The next message. Raises ChannelTimeout after timeout seconds, ChannelClosed at the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        (size,) = _HEADER.unpack(self._receive_bytes(_HEADER.size, deadline))
        if size > MAX_MESSAGE:
            raise ChannelClosed("a message of impossible length")
        return self.read(self._receive_bytes(size, deadline))

    def close(self) -> None:
        self.sock.close()

    def _receive_bytes(self, size: int, deadline: float | None) -> bytearray:
        buffer = bytearray(min(size, _PIECE_BYTES))
        done = 0
        while done < size:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self.sock], [], [], left)[0]:
                raise ChannelTimeout()
            if done == len(buffer):  # it grows with the bytes that came, not with the length that was announced
                buffer.extend(bytes(min(done, size - done)))
            try:
                with memoryview(buffer) as view:
                    count = self.sock.recv_into(view[done:], min(len(buffer) - done, _PIECE_BYTES))
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            if count == 0:
                raise ChannelClosed("the other end closed")
            done += count
        return buffer
