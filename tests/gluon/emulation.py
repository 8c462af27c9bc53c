"""Runs kernels in Gluon on the CPU: partitions are threads, and what is asynchronous happens as late as it may.

A copy into shared memory arrives when somebody waits for its barrier, and its place holds NaN until then; a product is
computed, and a tile read for its store, when somebody waits for it. So a wait that is missing gives wrong results at
once. Numbers are not rounded. It knows what the kernels of these tests use.
"""

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from scipy.special import erf

from kernelsearch.kernel.expressions import Scope, evaluate

STATE = threading.Condition()
MINE = threading.local()
"""Of a partition: products and stores in flight."""


class Tile(np.ndarray):
    type = SimpleNamespace(layout=None)

    def to(self, dtype):
        return self


class Number(int):
    """A scalar of the kernel."""

    def to(self, dtype):
        return self

    def __floordiv__(self, other):
        return Number(int(self) // int(other))

    def __mod__(self, other):
        return Number(int(self) % int(other))


def tile(values):
    return np.asarray(values).view(Tile)


@dataclass
class Pointer:
    array: np.ndarray
    at: object = 0
    dtype = SimpleNamespace(element_ty=SimpleNamespace(primitive_bitwidth=16))

    def __add__(self, more):
        return Pointer(self.array, self.at + more)


@dataclass
class Memory:
    """Shared memory."""

    array: np.ndarray

    def index(self, i):
        return Memory(self.array[int(i)])

    def permute(self, order):
        return Memory(self.array.transpose(order))

    def store(self, value):
        assert self.array.shape == value.shape
        self.array[...] = value

    def load(self, layout):
        return tile(self.array.copy())


@dataclass
class Barrier:
    count: int = 0
    phase: int = 0
    arrived: int = 0
    bytes: int = 0
    copies: list = field(default_factory=list)

    def settle(self):
        assert self.arrived <= self.count, "more arrive than are expected"
        if self.arrived == self.count and self.bytes == 0:
            self.phase, self.arrived = self.phase + 1, 0
            STATE.notify_all()


@dataclass
class Barriers:
    each: list

    def index(self, i):
        return self.each[int(i)]


@dataclass
class Descriptor:
    view: np.ndarray
    block: tuple
    dtype = layout = None

    def find(self, at):
        sizes = zip(at, self.block, self.view.shape)
        return tuple(slice(max(0, int(x)), max(0, min(int(x) + b, n))) for x, b, n in sizes)


class Program:
    """The partitions of one program: who waits for what, and what went wrong."""

    alive, failed = 0, None
    waiting: dict = {}  # noqa: RUF012  (one program runs at a time)

    @classmethod
    def check(cls):
        """Ends the program if all partitions wait for ever."""
        if (
            cls.alive
            and len(cls.waiting) == cls.alive
            and all(b.phase & 1 == p and not b.copies for b, p in cls.waiting.values())
        ):
            cls.failed = cls.failed or RuntimeError("all partitions wait for ever")
            STATE.notify_all()

    @classmethod
    def run(cls, function, args):
        MINE.products, MINE.stores = [], []
        try:
            function(*args)
            assert not MINE.products and not MINE.stores, "something is still in flight at the end"
        except Exception as error:  # a partition's thread: its failure is the program's
            cls.failed = cls.failed or error
        with STATE:
            cls.alive -= 1
            STATE.notify_all()
            cls.check()

    @classmethod
    def specialise(cls, partitions, warps, registers):
        assert len(warps) == len(registers) == len(partitions) - 1
        cls.alive, cls.failed, cls.waiting = len(partitions), None, {}
        threads = [threading.Thread(target=cls.run, args=partition) for partition in partitions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if cls.failed:
            raise cls.failed


def init(barrier, count):
    barrier.count = count


def expect(barrier, bytes):
    with STATE:
        barrier.bytes, barrier.arrived = barrier.bytes + int(bytes), barrier.arrived + 1
        barrier.settle()


def arrive(barrier, count=1, pred=True):
    with STATE:
        barrier.arrived += count * bool(pred)
        barrier.settle()


def wait(barrier, phase, pred=True):
    me = threading.get_ident()
    with STATE:
        while pred and barrier.phase & 1 == int(phase):
            if barrier.copies:
                barrier.copies.pop(0)()
                continue
            Program.waiting[me] = barrier, int(phase)
            Program.check()
            if Program.failed:
                raise Program.failed
            STATE.wait()
            del Program.waiting[me]


def copy_in(descriptor, at, barrier, memory):
    assert memory.array.shape == tuple(descriptor.block)

    def arrive_now():
        part = descriptor.view[descriptor.find(at)]
        memory.array[...] = 0.0
        memory.array[tuple(map(slice, part.shape))] = part
        barrier.bytes -= 2 * memory.array.size
        barrier.settle()

    memory.array[...] = np.nan
    with STATE:
        barrier.copies.append(arrive_now)
        STATE.notify_all()


def copy_out(descriptor, at, memory):
    assert memory.array.shape == tuple(descriptor.block)
    MINE.stores.append((descriptor.view[descriptor.find(at)], memory.array))


def store_wait(pendings):
    while len(MINE.stores) > pendings:
        place, source = MINE.stores.pop(0)
        place[...] = source[tuple(map(slice, place.shape))]


class Product:
    def __init__(self, a, b, acc, use_acc=True, is_async=False):
        self.parts, self.value = (a, b, acc, use_acc), None
        MINE.products.append(self)

    def compute(self):
        a, b, acc, use_acc = (getattr(part, "array", part) for part in self.parts)
        acc = acc.value if isinstance(acc, Product) else acc
        self.value = tile(a @ b + (acc if use_acc else 0.0))


def product_wait(num_outstanding, deps):
    while len(MINE.products) > num_outstanding:
        MINE.products.pop(0).compute()
    (one,) = deps
    return one if getattr(one, "value", None) is None else one.value


def load(pointer, mask=None, other=0.0):
    at = np.asarray(pointer.at)
    inside = np.broadcast_to(True if mask is None else mask, at.shape)
    assert (inside <= ((at >= 0) & (at < pointer.array.size))).all(), "a load out of bounds"
    return tile(np.where(inside, pointer.array.reshape(-1)[np.where(inside, at, 0)], other))


def store(pointer, value, mask):
    at = np.asarray(pointer.at)
    inside = np.broadcast_to(mask, at.shape)
    pointer.array.reshape(-1)[at[inside]] = np.broadcast_to(value, at.shape)[inside]


def allocate(dtype, shape, layout):
    if layout == "barrier":
        return Barriers([Barrier() for _ in range(shape[0])])
    return Memory(np.full([int(n) for n in shape], np.nan))


_LAYOUTS = "NVMMADistributedLayout BlockedLayout SliceLayout DotOperandLayout NVMMASharedLayout SwizzledSharedLayout"
LANGUAGE = {
    **dict.fromkeys(_LAYOUTS.split(), lambda *sizes: None),
    **dict.fromkeys(("constexpr", "float32", "int64", "bfloat16"), float),
    "cdiv": lambda a, b: -(-a // b),
    "minimum": np.minimum,
    "maximum": np.maximum,
    "where": lambda test, a, b: tile(np.where(test, a, b)) if np.ndim(test) else (a if test else b),
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "erf": lambda x: tile(erf(x)),
    "sum": lambda x, axis: tile(np.sum(x, axis)),
    "max": lambda x, axis: tile(np.max(x, axis)),
    "zeros": lambda shape, dtype, layout: tile(np.zeros(shape)),
    "full": lambda shape, value, dtype, layout: tile(np.full(shape, value)),
    "arange": lambda start, end, layout: tile(np.arange(start, end)),
    "reshape": lambda x, shape: x.reshape(shape),
    "permute": lambda x, order: x.transpose(order),
    "split": lambda x: (x[..., 0], x[..., 1]),
    "convert_layout": lambda x, layout: x,
    "static_range": range,
    "load": load,
    "store": store,
    "allocate_shared_memory": allocate,
    "warp_specialize": Program.specialise,
}


def launch(kernel, args, config, programs, plainly=False, heads=1):
    """Runs a kernel's programs one after the other; args are arrays and numbers by parameter.

    plainly: there is no descriptor. heads is the second axis of the launcher's grid.
    """
    numbers = {n: v for n, v in args.items() if not isinstance(v, np.ndarray)} | config
    (name,) = kernel.entries
    known = {**numbers}
    for flag, text in kernel.args.get(name, {}).items():
        known[flag] = evaluate(text, Scope(known, 132, (1, heads)))
    values = {n: Pointer(v) if isinstance(v, np.ndarray) else v for n, v in {**known, **args}.items()}
    values |= {n: Number(v) for n, v in values.items() if type(v) is int}
    for described, spec in kernel.descriptors.items():
        shape, strides, block = (evaluate(text, Scope(known, 132)) for text in spec[1:4])
        steps = [8 * s for s in strides]
        view = np.lib.stride_tricks.as_strided(args[spec[0]], shape, steps)
        values[described] = None if plainly else Descriptor(view, block)
    for number in range(programs):
        places = {"program_id": lambda axis, n=number: n, "num_programs": lambda axis: programs}
        barriers = SimpleNamespace(MBarrierLayout=lambda: "barrier", init=init, expect=expect, arrive=arrive, wait=wait)
        copies = SimpleNamespace(
            async_copy_global_to_shared=copy_in, async_copy_shared_to_global=copy_out, store_wait=store_wait
        )
        scope = {
            "gl": SimpleNamespace(**LANGUAGE, **places),
            "gluon": SimpleNamespace(jit=lambda function: function),
            "mbarrier": barriers,
            "tma": copies,
            "warpgroup_mma": Product,
            "warpgroup_mma_wait": product_wait,
            "fence_async_shared": lambda: None,
            "range": lambda *ends: map(Number, range(*map(int, ends))),
        }
        exec(kernel.code.partition("\n\n\n")[2], scope)
        scope[name](*[values[p] for p in kernel.function(name).params])
