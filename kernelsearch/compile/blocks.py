"""Reads from a kernel's PTX what each of its loops executes: instructions by kind, and the longest dependent chain.

LLVM writes the loop that a basic block belongs to beside its label; Triton's loops keep their order and nesting down
to the PTX, so that the n-th loop there is the n-th `scf.for` of the TTGIR, whose bounds are known. The chain is the
longest path through the instructions' registers at nominal latencies; a barrier waits for the shared accesses before
it and holds up the memory accesses behind it, and a load stays behind the stores before it, which it might read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field

from kernelsearch.compile.code import Block, Loop
from kernelsearch.compile.ir import Op, Walk, element_of, shape_of, width_of

_LABEL = re.compile(r"^(?:\$L__(BB\d+_\d+):|// %bb\.)")
_HEADER = re.compile(r"=>\s*This (?:Inner )?Loop Header: Depth=(\d+)")
_INSIDE = re.compile(r"in Loop: Header=(BB\d+_\d+) Depth=(\d+)")
_PARENT = re.compile(r"Parent Loop (BB\d+_\d+) Depth=(\d+)")
_INSTRUCTION = re.compile(r"^(?:@!?(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*)$")
_TILE = re.compile(r"tensor<((?:\d+x)+)(b?f\d+)[,>]")
_REGISTER = re.compile(r"%[a-z]+\d+")
_WIDTH = re.compile(r"\.(?:(v[248])\.)?[bfsu](8|16|32|64|128)$")
_MATRIX = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_MANY = re.compile(r"\.x([124])\b")
_SIZE = re.compile(r"\],\s*(?:0x)?([0-9a-f]+)")

LATENCY = {
    "load": 600,
    "shared_load": 30,
    "shared_store": 10,
    "barrier": 30,
    "shuffle": 24,
    "special": 24,
    "divide": 60,
    "mma": 34,
    "wgmma": 64,
    "wait": 0,
    "arith": 5,
    "wide": 8,
    "atomic": 600,
}
"""Nominal cycles, by which the longest path is chosen; what the kinds on it cost is the static model's business."""

_FREE = ("mov", "ld.param", "cvta", "bra", "ret", "wgmma.fence", "wgmma.commit_group", "cp.async.commit_group", "nop")
_APPROX = ("ex2.", "lg2.", "rcp.", "rsqrt.", "sqrt.", "sin.", "cos.", "tanh.")


def read(ptx: str, ttgir: str, names: tuple[str, ...] = ()) -> tuple[Block, ...]:
    """The blocks of a kernel with these parameters; empty where its loops in the two texts do not agree."""
    outside, *inner = regions(ptx)
    found, apart = _loops(ttgir, names)
    for region, ops in zip((outside, *inner), (apart, *(ops for _, ops in found)), strict=False):
        _bulk(region, ops, ttgir)
    if not inner:  # loops that the compiler laid out flat are code like any other
        return (_block((), outside),)
    if [len(loops) - 1 for loops, _ in found] != [region.depth - 1 for region in inner]:
        return ()
    blocks = [_block((), outside)]
    for region, (loops, ops), carried in zip(inner, found, _carried(ttgir), strict=True):
        blocks.append(_block(loops, region, carried, *_ahead(ops, ttgir)))
    return tuple(blocks)


def _block(
    loops: tuple[Loop, ...], region: Region, carried: float = 0.0, ahead: int = -1, early: bool = False
) -> Block:
    return Block(loops, dict(region.counts), dict(region.chain), ahead, early, carried)


def _carried(ttgir: str) -> list[float]:
    """Bytes of registers per thread that hold tiles from one iteration to the next, for each loop in order."""
    threads, found = _threads(ttgir), []
    for line in ttgir.splitlines():
        if "scf.for " in line or "scf.while " in line:
            tiles = _TILE.findall(line.partition("->")[2])
            sizes = (math.prod(map(int, shape.split("x")[:-1])) * max(4, width_of(kind)) for shape, kind in tiles)
            found.append(sum(sizes) / threads)
    return found


def _threads(ttgir: str) -> int:
    warps = re.search(r'"ttg.num-warps" = (\d+)', ttgir)
    return 32 * int(warps.group(1)) if warps else 128


def _bulk(region: Region, ops: list[Op], ttgir: str) -> None:
    """Counts what copies of whole tiles load, which one thread starts: their bytes are in no instruction of the PTX."""
    for op in ops:
        if "tma_copy_global_to_local" in op.name:
            size = math.prod(shape_of(op.rest)) * width_of(element_of(op.rest))
            region.counts["load_bytes"] += size // _threads(ttgir)


def _loops(ttgir: str, names: tuple[str, ...]) -> tuple[list[tuple[tuple[Loop, ...], list[Op]]], list[Op]]:
    """Every loop of the text in order, with the loops around it, and its own operations on copies; then those in none."""
    found: dict[tuple[int, ...], tuple[tuple[Loop, ...], list[Op]]] = {}
    apart = []
    for op in Walk(names).ops(ttgir):
        for depth in range(1, len(op.loops) + 1):
            found.setdefault(tuple(map(id, op.loops[:depth])), (op.loops[:depth], []))
        if "async" in op.name:
            (found[tuple(map(id, op.loops))][1] if op.loops else apart).append(op)
    return list(found.values()), apart


def _ahead(ops: list[Op], ttgir: str) -> tuple[int, bool]:
    """(Iterations whose copies are under way at the wait, whether there is a buffer more than those need); -1: no copies."""
    copies = [op for op in ops if "copy" in op.name and "global_to_local" in op.name]
    if not copies:
        return -1, False
    waits = [int(n) for op in ops if op.name.endswith("async_wait") for n in re.findall(r"num = (\d+)", op.rest)]
    tile = re.escape("x".join(map(str, shape_of(copies[0].rest.partition(" : ")[2]))))
    buffers = [int(n) for n in re.findall(rf"local_alloc : \(\) -> !ttg\.memdesc<(\d+)x{tile}x", ttgir)]
    most = max(buffers, default=2)
    ahead = waits[0] // len(copies) if waits else max(0, most - 2)
    return ahead, most > ahead + 1


@dataclass
class Region:
    """One loop's own instructions, those of inner loops left out, or what is in no loop (depth 0).

    counts has instructions by kind and, under `load_bytes`, `store_bytes`, `shared_bytes`, bytes per thread, under
    `mma_macs` and `wgmma_macs` multiply-adds per warp and per four warps; chain counts the longest path by kind.
    """

    depth: int
    counts: Counter[str] = field(default_factory=Counter)
    chain: Counter[str] = field(default_factory=Counter)


def regions(ptx: str) -> list[Region]:
    """What is in no loop, then each loop in the order of the text."""
    bodies: dict[str, list[str]] = {"": []}
    depths = {"": 0}
    label, here, fresh = "", "", False
    for line in ptx.partition(".entry")[2].splitlines():
        found = _LABEL.match(line)
        if found:
            label, here, fresh = found.group(1) or "", "", True
        elif fresh and not line.lstrip().startswith("//"):
            fresh = False
        if fresh:
            header, inside = _HEADER.search(line), _INSIDE.search(line)
            if header:
                here = label
                depths[label] = int(header.group(1))
                bodies.setdefault(label, [])
            elif inside:
                here = inside.group(1)
        elif ";" in line and not found:
            bodies.setdefault(here, []).append(line.strip())
    return [_region(depths.get(name, 1), body) for name, body in bodies.items()]


class _Paths:
    """Ready times of registers, each with the node that made it."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, int]] = []  # (kind, the node before, or -1)
        self.ready: dict[str, tuple[float, int]] = {}
        self.shared = self.gate = self.stored = (0.0, -1)
        self.last = (0.0, -1)

    def add(self, kind: str, sources: list[str], results: list[str], memory: bool, shared: bool) -> None:
        start = max((self.ready[r] for r in sources if r in self.ready), default=(0.0, -1))
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
        found: Counter[str] = Counter()
        node = self.last[1]
        while node >= 0:
            kind, node = self.nodes[node]
            found[kind] += 1
        return found


def _region(depth: int, body: list[str]) -> Region:
    region, paths = Region(depth), _Paths()
    for line in body:
        for text in line.split(";"):  # inline assembly may stand in one line
            found = _INSTRUCTION.match(text.strip(" \t{}"))
            if found:
                _instruction(region, paths, *found.groups())
    region.chain = paths.longest()
    return region


def _instruction(region: Region, paths: _Paths, predicate: str | None, name: str, operands: str) -> None:
    kind = _kind(name)
    if kind is None:
        return
    results, sources = _operands(name, kind, operands)
    if predicate:
        sources.append(predicate)
    counts = region.counts
    if kind == "free":
        if name.startswith("mov"):  # a copy: the result is ready when its source is
            known = max((paths.ready[r] for r in sources if r in paths.ready), default=(0.0, -1))
            for result in results:
                paths.ready[result] = known
        return
    counts["instructions"] += 1
    counts[kind] += 1
    _measured(counts, kind, name, operands)
    memory = kind in ("load", "store", "copy", "shared_load", "shared_store", "atomic", "bulk")
    paths.add(kind, sources, results, memory, kind in ("shared_load", "shared_store", "wgmma"))


def _kind(name: str) -> str | None:
    if name.startswith(_FREE):
        return "free" if not name.startswith("ret") else None
    op, _, rest = name.partition(".")
    if op == "ld":
        return "shared_load" if rest.startswith("shared") else "load"
    if op == "st":
        return "shared_store" if rest.startswith("shared") else "store"
    match op:
        case "ldmatrix":
            return "shared_load"
        case "stmatrix":
            return "shared_store"
        case "bar" | "barrier":
            return "barrier"
        case "mbarrier":  # one thread sets it and arrives; all wait for what arrives in it
            return "wait" if "wait" in rest else "arith"
        case "shfl" | "redux":
            return "shuffle"
        case "atom" | "red":
            return "atomic"
        case "mma":
            return "mma"
        case "wgmma":
            return "wgmma" if rest.startswith("mma_async") else "wait"
        case "div":
            return "divide"
        case "cp":
            return "bulk" if "bulk" in rest else "wait" if "wait" in rest else "copy"
    if name.startswith(_APPROX):
        return "special"
    return "wide" if name.endswith(("64", "wide.s32", "wide.u32")) else "arith"


def _measured(counts: Counter[str], kind: str, name: str, operands: str) -> None:
    if kind in ("load", "store", "shared_load", "shared_store"):
        many = _MANY.search(name)
        width = _WIDTH.search(name)
        size = 4 * int(many.group(1)) if many else 4
        if width and not many:
            size = int(width.group(2)) // 8 * int(width.group(1)[1:] if width.group(1) else 1)
        counts[{"load": "load_bytes", "store": "store_bytes"}.get(kind, "shared_bytes")] += size
    elif kind == "copy":
        size = _SIZE.search(operands)
        counts["load_bytes"] += int(size.group(1), 16) if size else 16
    elif kind in ("mma", "wgmma"):
        shape = _MATRIX.search(name)
        if shape:
            m, n, k = (int(v) for v in shape.groups())
            counts[f"{kind}_macs"] += m * n * k
            counts[f"{kind}_n"] += n


def _operands(name: str, kind: str, operands: str) -> tuple[list[str], list[str]]:
    """(Registers written, registers read)."""
    if kind in ("store", "shared_store", "barrier", "copy", "bulk", "wait"):
        return [], _REGISTER.findall(operands)
    if operands.startswith("{"):
        first, _, rest = operands.partition("}")
    else:
        first, _, rest = operands.partition(",")
    results = _REGISTER.findall(first)
    sources = _REGISTER.findall(rest)
    if kind == "wgmma":  # accumulates; the warps do not wait for it here
        return [], sources
    return results, sources
