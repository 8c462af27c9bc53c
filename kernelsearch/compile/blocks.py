"""Reads the loops of a kernel's PTX: each one's instructions by kind, and its longest dependent chain.

LLVM writes the loop of a basic block beside its label. Triton's loops keep their order and nesting down to the PTX:
the n-th loop there is the n-th `scf.for` of the TTGIR, whose bounds are known, but for those that LLVM unrolled. The
chain is the longest path through the instructions' registers at nominal latencies. A barrier waits for the shared
accesses before it and delays the memory accesses after it. A load stays behind the stores before it, because it might
read what they wrote.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations, islice

from kernelsearch.compile.code import Block, Loop
from kernelsearch.compile.ir import Op, TextWalk, element_of, shape_of, width_of

_LABEL = re.compile(r"^(?:\$L__(BB\d+_\d+):|// %bb\.)")
_HEADER = re.compile(r"=>\s*This (?:Inner )?Loop Header: Depth=(\d+)")
_INSIDE = re.compile(r"in Loop: Header=(BB\d+_\d+) Depth=(\d+)")
_INSTRUCTION = re.compile(r"^(?:@!?(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*)$")
_TILE = re.compile(r"tensor<((?:\d+x)+)(b?f\d+)[,>]")
_REGISTER = re.compile(r"%[a-z]+\d+")
_WIDTH = re.compile(r"\.(?:(v[248])\.)?[bfsu](8|16|32|64|128)$")
_MATRIX = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_MANY = re.compile(r"\.x([124])\b")
_SIZE = re.compile(r"\],\s*(?:0x)?([0-9a-f]+)")

LATENCY = {
    "load": 600, "shared_load": 30, "shared_store": 10, "barrier": 30, "shuffle": 24, "special": 24, "divide": 60,
    "mma": 34, "wgmma": 64, "wait": 0, "arith": 5, "wide": 8, "atomic": 600,
}  # fmt: skip
"""Nominal cycles that choose the longest path. The static model decides what the kinds on that path cost."""

_KINDS = {
    "ldmatrix": "shared_load", "stmatrix": "shared_store", "bar": "barrier", "barrier": "barrier", "shfl": "shuffle",
    "redux": "shuffle", "atom": "atomic", "red": "atomic", "mma": "mma", "div": "divide",
}  # fmt: skip
Nest = tuple[tuple[Loop, ...], list[Op], float]
"""A loop with those around it, the copy operations of its own body, and `Block.carried`."""
MOST_CHOICES = 1000
MEMORY = frozenset("load store copy shared_load shared_store atomic bulk".split())
_FREE = ("mov", "ld.param", "cvta", "bra", "ret", "wgmma.fence", "wgmma.commit_group", "cp.async.commit_group", "nop")
_APPROX = ("ex2.", "lg2.", "rcp.", "rsqrt.", "sqrt.", "sin.", "cos.", "tanh.")


def read(regions: list[Region], ttgir: str, names: tuple[str, ...] = ()) -> tuple[Block, ...]:
    """The blocks of a kernel with these parameters; `guessed` where its loops in the two texts do not agree."""
    outside, *inner = regions
    loops, apart = _find_loops(ttgir, names)
    unrolled = _find_unrolled(loops, [region.depth for region in inner])
    if unrolled is None:
        deepest: tuple[Loop, ...] = max((nest for nest, _, _ in loops), key=len, default=())
        return tuple(Block(deepest[: r.depth], dict(r.counts), dict(r.chain), guessed=True) for r in regions)
    kept = [loop for loop in loops if id(loop[0][-1]) not in unrolled]
    copies = [list(apart), *(list(ops) for _, ops, _ in kept)]
    for nest, ops, _ in loops:  # the code of an unrolled loop stands in the one around it, once for each turn
        if id(nest[-1]) in unrolled:
            around = [id(one) for one in nest if id(one) not in unrolled]
            place = [id(own[-1]) for own, _, _ in kept].index(around[-1]) + 1 if around else 0
            copies[place] += ops * math.prod(_trips(one) or 1 for one in nest if id(one) in unrolled)
    for region, ops in zip((outside, *inner), copies, strict=True):
        _count_bulk_loads(region, ops, ttgir)
    blocks = [Block((), dict(outside.counts), dict(outside.chain))]
    for region, (own, ops, size) in zip(inner, kept, strict=True):
        nest = tuple(one for one in own if id(one) not in unrolled)
        blocks.append(Block(nest, dict(region.counts), dict(region.chain), _copies_ahead(ops, ttgir), size))
    return tuple(blocks)


def _find_unrolled(loops: list[Nest], depths: list[int]) -> set[int] | None:
    """The loops (by id) that the compiler unrolled, if the others have these depths; None if no choice fits.

    Only a loop of a known number of turns is unrolled as a whole, the shortest first, and only with all loops in it.
    """
    if not depths:
        return {id(nest[-1]) for nest, _, _ in loops}
    fixed = sorted((n for n, _, _ in loops if _trips(n[-1]) is not None), key=lambda n: _trips(n[-1]) or 0)
    for gone in islice(combinations(fixed, max(0, len(loops) - len(depths))), MOST_CHOICES):
        ids = {id(nest[-1]) for nest in gone}
        kept = [nest for nest, _, _ in loops if id(nest[-1]) not in ids]
        if [len(nest) for nest in kept] == depths and not any(id(one) in ids for nest in kept for one in nest):
            return ids
    return None


def _trips(loop: Loop) -> int | None:
    """The number of a loop's turns, None unless it is the same in every launch."""
    first, last, step = loop.first, loop.last, loop.step
    if not (isinstance(first, int) and isinstance(last, int) and isinstance(step, int)) or step <= 0:
        return None
    return max(0, -((first - last) // step))


def _carried_bytes(ttgir: str) -> list[float]:
    """Bytes of registers per thread that hold tiles from one iteration to the next, for each loop in order."""
    carried = []
    for line in ttgir.splitlines():
        if "scf.for " in line or "scf.while " in line:
            tiles = _TILE.findall(line.partition("->")[2])
            sizes = (math.prod(map(int, shape.split("x")[:-1])) * max(4, width_of(kind)) for shape, kind in tiles)
            carried.append(sum(sizes) / _threads(ttgir))
    return carried


def _threads(ttgir: str) -> int:
    sizes = [re.search(rf'"ttg.{name}" = (\d+)', ttgir) for name in ("num-warps", "threads-per-warp")]
    warps, lanes = (int(found.group(1)) if found else usual for found, usual in zip(sizes, (4, 32), strict=True))
    return warps * lanes


def _count_bulk_loads(region: Region, ops: list[Op], ttgir: str) -> None:
    """Adds the bytes that copies of whole tiles load: one thread starts each, so no instruction of the PTX has them."""
    for op in ops:
        if "tma_copy_global_to_local" in op.name:
            size = math.prod(shape_of(op.rest)) * width_of(element_of(op.rest))
            region.counts["load_bytes"] += size // _threads(ttgir)


def _find_loops(ttgir: str, names: tuple[str, ...]) -> tuple[list[Nest], list[Op]]:
    """(Each loop in order, the copy operations in no loop)."""
    loops: dict[tuple[int, ...], tuple[tuple[Loop, ...], list[Op]]] = {}
    apart: list[Op] = []
    for op in TextWalk(names).walk_ops(ttgir):
        for depth in range(1, len(op.loops) + 1):
            loops.setdefault(tuple(map(id, op.loops[:depth])), (op.loops[:depth], []))
        if "async" in op.name:
            (loops[tuple(map(id, op.loops))][1] if op.loops else apart).append(op)
    sizes = _carried_bytes(ttgir)
    return [(*loop, size) for loop, size in zip(loops.values(), sizes, strict=True)], apart


def _copies_ahead(ops: list[Op], ttgir: str) -> int:
    """The number of iterations whose copies are under way at the wait; -1 without copies."""
    copies = [op for op in ops if "copy" in op.name and "global_to_local" in op.name]
    if not copies:
        return -1
    waits = [int(n) for op in ops if op.name.endswith("async_wait") for n in re.findall(r"num = (\d+)", op.rest)]
    if waits:
        return waits[0] // len(copies)
    tile = re.escape("x".join(map(str, shape_of(copies[0].rest.partition(" : ")[2]))))
    buffers = [int(n) for n in re.findall(rf"local_alloc : \(\) -> !ttg\.memdesc<(\d+)x{tile}x", ttgir)]
    return max(0, max(buffers, default=2) - 2)


@dataclass
class Region:
    """One loop's own instructions without those of inner loops, or the code outside all loops (depth 0).

    counts has instructions by kind. Its `load_bytes`, `store_bytes` and `shared_bytes` are bytes per thread, its
    `mma_macs` and `wgmma_macs` multiply-adds per warp and per four warps. chain counts the longest path by kind.
    """

    depth: int
    counts: Counter[str] = field(default_factory=Counter)
    chain: Counter[str] = field(default_factory=Counter)


def split_regions(ptx: str) -> list[Region]:
    """The code outside all loops, then each loop in the order of the text."""
    bodies = split_bodies(ptx.partition(".entry")[2], _LABEL, "//", re.compile(";"))
    return [_read_region(depth, body) for depth, body in bodies]


def split_bodies(text: str, starts: re.Pattern, comment: str, code: re.Pattern) -> list[tuple[int, list[str]]]:
    """The depth and lines of the code outside all loops, then of each loop; starts matches a basic block's label."""
    bodies: dict[str, list[str]] = {"": []}
    depths = {"": 0}
    label, here, in_header = "", "", False
    for line in text.splitlines():
        start = starts.match(line)
        if start:
            label, here, in_header = start.group(1) or "", "", True
        elif in_header and not line.lstrip().startswith(comment):
            in_header = False
        if in_header:
            header, inside = _HEADER.search(line), _INSIDE.search(line)
            if header:
                here = label
                depths[label] = int(header.group(1))
                bodies.setdefault(label, [])
            elif inside:
                here = inside.group(1)
        elif code.search(line):
            bodies.setdefault(here, []).append(line)
    return [(depths.get(name, 1), body) for name, body in bodies.items()]


class Paths:
    """Ready times of registers, each with the node that made it."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, int]] = []  # (kind, the node before, or -1)
        self.ready: dict[str, tuple[float, int]] = {}
        self.shared = self.gate = self.stored = self.last = (0.0, -1)

    def ready_time(self, registers: list[str]) -> tuple[float, int]:
        return max((self.ready[r] for r in registers if r in self.ready), default=(0.0, -1))

    def add(self, kind: str, sources: list[str], results: list[str], memory: bool, shared: bool) -> None:
        start = self.ready_time(sources)
        if kind in ("barrier", "wait"):
            start = max(start, self.shared, self.gate)
        elif memory:
            start = max(start, self.gate, self.stored if kind in ("load", "copy") else self.gate)
        done = (start[0] + LATENCY.get(kind, 5), len(self.nodes))
        self.nodes.append((kind, start[1]))
        for name in results:
            self.ready[name] = done
        if kind in ("barrier", "wait"):
            self.gate = done
        elif shared:
            self.shared = max(self.shared, done)
        elif kind == "store":
            self.stored = max(self.stored, done)
        self.last = max(self.last, done)

    def longest(self) -> Counter[str]:
        """The instructions of the longest path by kind."""
        kinds: Counter[str] = Counter()
        node = self.last[1]
        while node >= 0:
            kind, node = self.nodes[node]
            kinds[kind] += 1
        return kinds


def _read_region(depth: int, body: list[str]) -> Region:
    region, paths = Region(depth), Paths()
    for line in body:
        for text in line.split(";"):  # inline assembly may stand in one line
            instruction = _INSTRUCTION.match(text.strip(" \t{}"))
            if instruction:
                _add_instruction(region.counts, paths, *instruction.groups())
    region.chain = paths.longest()
    return region


def _add_instruction(counts: Counter[str], paths: Paths, predicate: str | None, name: str, operands: str) -> None:
    kind = _kind_of(name)
    results, sources = _registers(kind, operands)
    if predicate:
        sources.append(predicate)
    if kind == "free":
        if name.startswith("mov"):  # a copy: the result is ready when its source is
            paths.ready |= dict.fromkeys(results, paths.ready_time(sources))
        return
    counts["instructions"] += 1
    counts[kind] += 1
    _count_sizes(counts, kind, name, operands)
    paths.add(kind, sources, results, kind in MEMORY, kind in ("shared_load", "shared_store", "wgmma"))


def _kind_of(name: str) -> str:
    op, _, rest = name.partition(".")
    if name.startswith(_FREE):
        return "free"
    if op in _KINDS:
        return _KINDS[op]
    if op in ("ld", "st"):
        kind = "load" if op == "ld" else "store"
        return f"shared_{kind}" if rest.startswith("shared") else kind
    if op == "mbarrier":  # one thread sets it and arrives; all wait for what arrives in it
        return "wait" if "wait" in rest else "arith"
    if op == "wgmma":
        return "wgmma" if rest.startswith("mma_async") else "wait"
    if op == "cp":
        return "bulk" if "bulk" in rest else "wait" if "wait" in rest else "copy"
    if name.startswith(_APPROX):
        return "special"
    return "wide" if name.endswith(("64", "wide.s32", "wide.u32")) else "arith"


def _count_sizes(counts: Counter[str], kind: str, name: str, operands: str) -> None:
    """Adds the bytes that a memory access moves, or the multiply-adds of a matrix instruction."""
    if kind in ("load", "store", "shared_load", "shared_store"):
        many, width = _MANY.search(name), _WIDTH.search(name)
        size = 4 * int(many.group(1)) if many else 4
        if width and not many:
            size = int(width.group(2)) // 8 * int(width.group(1)[1:] if width.group(1) else 1)
        counts[{"load": "load_bytes", "store": "store_bytes"}.get(kind, "shared_bytes")] += size
    elif kind == "copy":
        given = _SIZE.search(operands)
        counts["load_bytes"] += int(given.group(1), 16) if given else 16
    elif kind in ("mma", "wgmma") and (shape := _MATRIX.search(name)):
        m, n, k = map(int, shape.groups())
        counts[f"{kind}_macs"] += m * n * k
        counts[f"{kind}_n"] += n


def _registers(kind: str, operands: str) -> tuple[list[str], list[str]]:
    """(Registers written, registers read)."""
    if kind in ("store", "shared_store", "barrier", "copy", "bulk", "wait"):
        return [], _REGISTER.findall(operands)
    first, _, rest = operands.partition("}" if operands.startswith("{") else ",")
    results = [] if kind == "wgmma" else _REGISTER.findall(first)  # accumulates; the warps do not wait for it here
    return results, _REGISTER.findall(rest)
