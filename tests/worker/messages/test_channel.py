"""What crosses between driver and workers is data: hostile bytes are refused, and nothing of theirs is called."""

import contextlib
import io
import os
import pickle
import resource
import socket
import struct
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.core.types import Evidence, ProposalKind, TensorFact, Verdict, Word
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.messages.channel import (
    Array,
    Channel,
    ChannelClosed,
    ChannelTimeout,
    Hello,
    pack,
    unpack,
    unpack_trusted,
)
from kernelsearch.worker.messages.ipc import open_shared, share
from kernelsearch.worker.messages.jobs import CandidateJob, Ran
from kernelsearch.worker.processes.workers import WorkerSource


def test_dtypes_go_by_their_names_and_an_empty_tensor_without_memory():
    given = [torch.bfloat16, [torch.int8, 3], torch.channels_last, 0.5, None, "tanh"]
    sent = unpack(pack(list(map(share, given))))
    assert list(map(open_shared, sent)) == given
    empty = unpack(pack(share(torch.empty(0, 4, dtype=torch.int32))))
    assert (empty.shape, empty.dtype, empty.handle) == ((0, 4), "int32", ())


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield Channel(ours), theirs
    ours.close()
    theirs.close()


def deliver(ends, data, size=None):
    """What the driver makes of raw bytes."""
    channel, raw = ends
    length, end = struct.pack("<Q", len(data) if size is None else size), struct.pack("<Q", 0)
    writer = threading.Thread(target=raw.sendall, args=(length + data + end * bool(data),))
    writer.start()
    try:
        return channel.receive(2)
    finally:
        writer.join()


class Calls:
    """Pickles as a call of any function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


MARK = "/tmp/kernelsearch-hostile-pickle"
KERNEL = Kernel.parse("@triton.jit\ndef k(x, N: tl.constexpr): pass\n")


@pytest.mark.parametrize("message", [
    Calls(os.system, f"touch {MARK}"), Calls(eval, f"open({MARK!r}, 'w')"), Calls(exec, "import os"),
    Calls(getattr, "a", "upper"), Calls(Kernel.parse, "x"), np.zeros(3), np.float64(1.0), os.getcwd,
    Calls(__import__, "os"),
    Calls(open, MARK, "w"), {"a": [Calls(os.system, f"touch {MARK}")]}, Hello(1, (Calls(os.system, f"touch {MARK}"),)),
    threading.Thread, Calls(io.open, MARK, "w"), Exception("no"), {1, 2}.__class__, Calls(type, "A", (), {}),
], ids=lambda m: type(m).__name__)  # fmt: skip
def test_hostile_pickles_are_refused(ends, message):
    for protocol in (0, 2, 5):
        with pytest.raises(ChannelClosed, match="not data"):
            deliver(ends, pickle.dumps(message, protocol=protocol))
    assert not os.path.exists(MARK)


@pytest.mark.parametrize("module, name", [
    ("os", "system"), ("builtins", "eval"), ("posix", "system"), ("subprocess", "Popen"),
    ("kernelsearch.core.types", "hashlib.sha256"),  # dotted names do not walk into modules
    ("kernelsearch.core.types", "content_digest"),  # a function of a known module is no data class
    ("kernelsearch.compile.build", "load_functions"), ("kernelsearch.compile.build", "hashlib"),
    ("kernelsearch.worker.messages.channel", "socket"), ("kernelsearch.worker.messages.channel", "Array.__init__"),
    (WorkerSource.__module__, WorkerSource.__name__), ("kernelsearch.worker.child", "main"),
])  # fmt: skip
def test_globals_that_are_no_data_are_not_found(ends, module, name):
    data = (
        b"\x80\x04"
        + b"\x8c"
        + bytes([len(module)])
        + module.encode()
        + b"\x8c"
        + bytes([len(name)])
        + name.encode()
        + b"\x93."
    )
    with pytest.raises(ChannelClosed, match="not data"):
        deliver(ends, data)


def test_classes_that_only_happen_to_be_imported_are_not_data(ends):
    """A whitelisted module's imports are no way in: only what is defined there may be built."""
    for module, name in (("kernelsearch.worker.messages.channel", "Channel"),
                         ("kernelsearch.worker.messages.channel", "_Unpickler"),
                         ("kernelsearch.kernel.source", "_Parser"),
                         ("kernelsearch.worker.messages.jobs", "Any")):  # fmt: skip
        data = f"c{module}\n{name}\n.".encode()
        with pytest.raises(ChannelClosed, match="not data"):
            deliver(ends, data)


@pytest.mark.parametrize("state", [(None, {"accepted": True}), {"accepted": True}, (None, {"__eq__": None})])
def test_a_message_cannot_change_the_drivers_own_classes(ends, state):
    """A pickle may set attributes of what it builds: of an instance, never of a class, or all were accepted."""
    head = b"ckernelsearch.core.types\nVerdict\n"
    data = b"\x80\x04" + head + pickle.dumps(state, protocol=4).removeprefix(b"\x80\x04")
    data = data.replace(b"\x95" + data.partition(b"\x95")[2][:8], b"")[:-1] + b"b."
    with pytest.raises(ChannelClosed, match="a state for a type is not data"):
        deliver(ends, data)
    assert not Verdict(Word.WRONG, "judge", "a reason").accepted


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_close_the_channel(data):
    ours, theirs = socket.socketpair()
    with ours, theirs, contextlib.suppress(ChannelClosed):
        deliver((Channel(ours), theirs), data)
    assert not os.path.exists(MARK)


def test_impossible_lengths_and_ends(ends):
    with pytest.raises(ChannelClosed, match="impossible length"):
        deliver(ends, b"", size=1 << 60)
    channel, raw = ends
    with pytest.raises(ChannelTimeout):
        channel.receive(0.05)
    raw.sendall(struct.pack("<Q", 100) + b"half of it")
    with pytest.raises(ChannelTimeout):
        channel.receive(0.05)
    raw.close()
    with pytest.raises(ChannelClosed):
        channel.receive(1)
    with pytest.raises(ChannelClosed):
        for _ in range(50):  # the first send may still fit the buffer
            channel.send(b"x" * 100000)


def test_a_claimed_length_alone_takes_no_memory(ends):
    """A worker that announces gigabytes and sends nothing must not cost the driver gigabytes."""
    channel, raw = ends
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    raw.sendall(struct.pack("<Q", 6 << 30) + b"x" * 1000)
    with pytest.raises(ChannelTimeout):
        channel.receive(0.2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


@pytest.mark.parametrize("message", [
    Array("float32", (2, 2), b"\0" * 16, (2, 1)), Hello(5, ("limits",)),
    Ran(verdict=Verdict(Word.CRASH, "run", "because")),
    CandidateJob(KERNEL, {"N": 4}, KERNEL, {}, ("k",), target_by_name("h100")), TensorFact("fp32", (1,), (1,)), None, 5,
    "text", (1, {"a": [2.5]}), Specialisation("k", (("x", "*fp32"),), (("N", 4),), (), (("num_warps", 4),)),
    Array("float32", (1 << 20,), bytes(4 << 20)),
], ids=lambda m: type(m).__name__)  # fmt: skip
def test_the_projects_own_messages_come_through(ends, message):
    channel, raw = ends
    sender = threading.Thread(target=Channel(raw).send, args=(message,))
    sender.start()
    assert channel.receive(5) == message
    sender.join()


def test_large_tensors_lie_behind_the_pickle_and_are_sent_on_as_they_came(ends):
    channel, raw = ends
    sent = tuple(Array("uint8", (size,), bytes([size % 251]) * size) for size in (0, 5, 1 << 16, 5 << 20))
    sender = threading.Thread(target=Channel(raw).send, args=(sent,))
    sender.start()
    came = channel.receive(5)
    sender.join()
    assert came == sent and [type(a.data) for a in came] == [bytes, bytes, memoryview, memoryview]
    sender = threading.Thread(target=channel.send, args=(came,))
    sender.start()
    assert Channel(raw, unpack_trusted).receive(5) == sent
    sender.join()


def test_buffers_of_impossible_length_are_refused(ends):
    channel, raw = ends
    raw.sendall(struct.pack("<Q", 4) + b"some" + struct.pack("<Q", 8 << 30))
    with pytest.raises(ChannelClosed, match="impossible length"):
        channel.receive(2)


def test_a_pickle_that_names_a_buffer_which_did_not_come_is_not_data(ends):
    with pytest.raises(ChannelClosed, match="not data"):
        deliver(ends, pickle.dumps(pickle.PickleBuffer(b"x"), protocol=5, buffer_callback=[].append))


@pytest.mark.parametrize("word", [Word.ACCEPT, Evidence.MEASURED, ProposalKind.SEED])
def test_a_word_is_sent_as_its_value_by_every_python(word):
    assert unpack(pack(word)) is word
    assert b"getattr" not in pack(word)  # so Python 3.11.2 (Debian 12) packs an enum that has no say in it
