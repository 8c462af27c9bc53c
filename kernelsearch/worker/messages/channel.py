"""A channel between the driver and a worker: pickles over a socket, read with a whitelist.

A worker that ran a candidate may be hostile, so the unpickler knows the project's own data classes and nothing else: no
function, no module of the standard library, no numpy. Tensors travel as `Array`s, the elements of large ones behind the
pickle and uncopied. A message is the pickle and these buffers, each after its length, and a length of 0.
"""

from __future__ import annotations

import importlib
import io
import mmap
import pickle
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any

_HEADER = struct.Struct("<Q")
MAX_MESSAGE = 8 << 30
_PIECE_BYTES = 1 << 22
_OWN_MEMORY = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_LARGE = 1 << 16
"""Bytes from which a tensor's elements are a buffer of their own."""

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
    """A tensor as data: torch's name of its dtype, shape, elements as bytes, stride in elements (None: contiguous).

    The elements of a large one that was received are a view of memory.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview
    stride: tuple[int, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        data = pickle.PickleBuffer(self.data) if len(self.data) >= _LARGE else self.data
        return {**vars(self), "data": data}


@dataclass(frozen=True)
class Named:
    """A value that is not sent: what torch has under this name, a dtype or a layout."""

    name: str


@dataclass(frozen=True)
class Unchanged:
    """An input after a run that has changed none of its bits."""


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


def pack(message: Any, take_buffer: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """A message as bytes; take_buffer is given the elements of large tensors, which are not among them then."""
    return pickle.dumps(message, protocol=5, buffer_callback=take_buffer)


def unpack(data: bytes | memoryview, buffers: Sequence[memoryview] = ()) -> Any:
    """A message from untrusted bytes. Raises ChannelClosed if they are not data."""
    try:
        return _Unpickler(io.BytesIO(data), buffers=buffers).load()
    except (*_FORMAT_ERRORS, *_VALUE_ERRORS) as error:  # all that the unpickler raises on bytes that are no pickle
        raise ChannelClosed(f"a message that is not data: {error}") from None


def unpack_trusted(data: bytes | memoryview, buffers: Sequence[memoryview] = ()) -> Any:
    """A message from bytes that the driver wrote."""
    return pickle.loads(data, buffers=buffers)


class Channel:
    """One end of a socket. A worker trusts its driver and reads with `unpack_trusted`, ten times as fast."""

    def __init__(self, sock: socket.socket, read: Callable[..., Any] = unpack) -> None:
        self.sock, self.read = sock, read

    def send(self, message: Any, timeout: float | None = None) -> None:
        """Sends a message.

        Raises ChannelClosed if the other end is gone, ChannelTimeout if it does not take the message within timeout
        seconds.
        """
        buffers: list[Any] = []
        data = pack(message, buffers.append)
        self.sock.settimeout(timeout)
        try:
            for part in (data, *buffers):
                view = memoryview(part)
                self.sock.sendall(_HEADER.pack(view.nbytes))
                self.sock.sendall(view)
            self.sock.sendall(_HEADER.pack(0))
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
        parts: list[memoryview] = []
        while size := self._receive_length(deadline):
            if size + sum(part.nbytes for part in parts) > MAX_MESSAGE:
                raise ChannelClosed("a message of impossible length")
            parts.append(self._receive_bytes(size, deadline))
        return self.read(parts[0] if parts else b"", parts[1:])

    def close(self) -> None:
        self.sock.close()

    def _receive_length(self, deadline: float | None) -> int:
        return _HEADER.unpack(self._receive_bytes(_HEADER.size, deadline))[0]

    def _receive_bytes(self, size: int, deadline: float | None) -> memoryview:
        try:  # memory of the system comes with the bytes, not with the length that was announced
            view = memoryview(bytearray(size) if size <= _PIECE_BYTES else mmap.mmap(-1, size, flags=_OWN_MEMORY))
            done = 0
            while done < size:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if left is not None and not select.select([self.sock], [], [], left)[0]:
                    raise ChannelTimeout()
                if not (count := self.sock.recv_into(view[done:])):
                    raise ChannelClosed("the other end closed")
                done += count
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        return view
