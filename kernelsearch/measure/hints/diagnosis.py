"""What can be wrong with a launch, one function a fault: each gives a finding, or nothing.

A finding's `lost` is the share of the launch's time that the fault costs, by the arithmetic of one resource at a
time: bytes over bandwidth, Little's law, the occupancy rules, waves of programs. The shares rank findings and decide
which are worth saying; they are estimates, and a measured time overrules them (`hints.diagnose`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kernelsearch.compile.code import Access
from kernelsearch.core.types import Hint, TensorFact
from kernelsearch.measure.hints.changes import suggestion
from kernelsearch.measure.static_model.launched import Launched

BOTTLENECKS = (
    "memory bandwidth",
    "memory latency",
    "occupancy",
    "issue",
    "tensor core",
    "shared-memory banks",
    "launch",
    "tail wave",
    "spills",
)

SPILL_BYTES = 32
"""Stack bytes a thread from which spills are worth a word."""
NARROW_LOSS = {1: 0.25, 2: 0.12, 4: 0.05}
"""Share of the time that loads of 1, 2 or 4 bytes a thread are taken to cost where 16 were possible. For 2 bytes: rows of
8191 bfloat16 against 8192 on an H100 cost 3 to 14 % (studies/hints/findings.md); the others are assumptions. A measured
time overrules them."""
OPERAND_BYTES_PER_CLOCK = 64
"""What an SM can take from L2 in a clock, on Volta to Hopper."""
OPERAND_RATE = 0.6
"""The share of it that matrix kernels are taken to reach: an assumption, by which 128 x 256 tiles are large enough."""
ISSUE_BUSY = 75.0
"""From this percentage of busy issue slots on, warps do not wait for memory: they wait for each other."""
MMA_SHARE = 0.62
"""Rate of `mma.sync` over that of `wgmma` on Hopper: a round number."""


@dataclass(frozen=True)
class Finding:
    """A hint and the share of the time that its fault costs."""

    lost: float
    hint: Hint


Detector = Callable[[Launched], Finding | None]


def finding(lost: float, bottleneck: str, word: str, sentence: str = "", **evidence: float) -> Finding:
    """A finding; evidence is at most four numbers, rounded for people."""
    if bottleneck not in BOTTLENECKS or len(evidence) > 4:
        raise ValueError(f"no such finding: {bottleneck!r} with {len(evidence)} numbers")
    return Finding(lost, Hint(bottleneck, {k: tidy(v) for k, v in evidence.items()}, suggestion(word, sentence)))


def tidy(value: float) -> float:
    """Three significant digits, whole numbers kept whole."""
    if value == 0 or not math.isfinite(value):
        return value
    if float(value).is_integer():
        return int(value)
    return float(f"{value:.3g}")


# ---------------------------------------------------------------- memory


def strided(launch: Launched) -> Finding | None:
    """Lanes whose elements lie apart use a part of each 32-byte sector that they fetch."""
    moved = sum(map(launch.moved, launch.main))
    fetched = sum(launch.moved(a) * launch.sectors(a) for a in launch.main)
    if not moved or fetched < 1.5 * moved:
        return None
    worst = max(launch.main, key=lambda a: launch.moved(a) * launch.sectors(a))
    steps = [abs(n) for s in worst.strides if (n := launch.number(s))]
    return finding(
        1 - moved / fetched,
        "memory bandwidth",
        "rows_2d",
        sectors_fetched_over_used=launch.sectors(worst),
        stride_bytes=min(steps, default=0) * worst.width,
        used_gb=moved / 1e9,
        fetched_gb=fetched / 1e9,
    )


def narrow(launch: Launched) -> Finding | None:
    """Loads of fewer bytes a thread than its part of the tile: more instructions and fewer bytes under way."""
    loads = [a for a in launch.main if a.kind == "load" and not a.descriptor and launch.sectors(a) < 1.5]
    if not loads or launch.machine.mix["tma"]:
        return None
    main = max(loads, key=launch.moved)
    threads = 32 * launch.machine.num_warps
    each = launch.tile_bytes(main) / threads
    actual = _mean_load_bytes(launch)
    possible = min(16.0, each)
    if actual >= 8 or not actual:
        return None
    lost = NARROW_LOSS.get(2 ** round(math.log2(max(1.0, actual))), 0.1)
    if possible >= 2 * actual:
        word = _alignment_word(launch, main)
        return finding(lost, "issue", word, load_bytes_per_thread=actual, possible_bytes_per_thread=possible)
    if thin(launch):
        lost = max(lost, min(0.8, 1 - launch.flying / launch.needed_in_flight))
        fewer = max(1, 2 ** int(math.log2(max(1, launch.tile_bytes(main) / (32 * 16)))))
        bytes_then = launch.tile_bytes(main) // (32 * fewer)
        sentence = f"fewer threads for this tile (num_warps={fewer} gives each thread {bytes_then} bytes)"
        return finding(
            lost,
            "issue",
            "num_warps",
            sentence,
            load_bytes_per_thread=actual,
            tile_bytes=launch.tile_bytes(main),
            num_warps=launch.machine.num_warps,
        )
    return None


def thin(launch: Launched) -> bool:
    """Whether a tile gives each thread less than four bytes."""
    loads = [a for a in launch.main if a.kind == "load"]
    threads = 32 * launch.machine.num_warps
    return launch.machine.num_warps > 1 and bool(loads) and max(map(launch.tile_bytes, loads)) < 4 * threads


def second_read(launch: Launched) -> Finding | None:
    """The same addresses are loaded at several places of one program, or after it stored them (in place is no fault)."""
    loads = [a for a in launch.main if a.kind == "load"]
    places = Counter((a.base, a.address) for a in loads)
    again = {key: n for key, n in places.items() if n > 1}
    first = {(a.base, a.address): n for n, a in reversed([*enumerate(launch.main)]) if a.kind == "store"}
    # Accesses are in the order of the source: an update in place loads first, and is no fault.
    reloaded = [a for n, a in enumerate(launch.main) if a.kind == "load" and n > first.get((a.base, a.address), n)]
    extra = sum(launch.moved(a) for a in loads if (a.base, a.address) in again)
    extra -= sum(launch.moved(next(a for a in loads if (a.base, a.address) == key)) for key in again)
    extra += sum(map(launch.moved, reloaded))
    total = sum(map(launch.moved, launch.main))
    if not extra or not total:
        return None
    times = max([2, *again.values()])
    # What all resident programs read for the first time and is still in L2 costs less than a trip to memory.
    live = (total - extra) / launch.programs * launch.resident * launch.target.num_sms
    share = extra / total * (1.0 if live > 0.6 * launch.target.l2_bytes else 0.45)
    if launch.counters is not None:  # what came from memory a second time was counted; what came from L2 cost less
        again_bytes = min(extra, max(0.0, launch.counters.dram_bytes - launch.footprint))
        share = (again_bytes + 0.45 * (extra - again_bytes)) / total
    word, sentence = _once_word(launch, bool(reloaded and not again))
    return finding(
        share,
        "memory bandwidth",
        word,
        sentence,
        times_read=times,
        read_again_gb=extra / 1e9,
        needed_gb=(total - extra) / 1e9,
        live_over_l2=live / launch.target.l2_bytes,
    )


def latency(launch: Launched) -> Finding | None:
    """Too few bytes under way to fill the memory's pipe, though every SM has programs."""
    if launch.tensor_us > launch.dram_us or launch.programs < launch.target.num_sms or thin(launch):
        return None
    if launch.counters is not None and launch.counters.issue_percent > ISSUE_BUSY:
        return None
    ratio = launch.flying / launch.needed_in_flight
    if ratio >= 0.8 or launch.dram_us < 0.5 * max(launch.issue_us, launch.special_us):
        return None
    warps = launch.resident * launch.machine.num_warps
    body = max((a for a in launch.main if a.kind == "load"), key=launch.moved).loops
    waits = bool(body) and launch.synchronised(body) and not launch.code.dots
    held = launch.occupancy * launch.machine.num_warps
    evidence = dict(
        warps_per_sm=warps, bytes_in_flight_per_sm=launch.flying, bytes_needed_per_sm=launch.needed_in_flight
    )
    if waits and any(loops[: len(body)] == body for loops in launch.code.reduced):
        return finding(1 - ratio, "memory latency", "lane_accumulator", **evidence)
    if held <= launch.target.warps_per_sm / 2:
        limit, word, sentence = _limiter(launch)
        possible = launch.target.warps_per_sm
        return finding(1 - ratio, "occupancy", word, sentence, warps_possible=possible, **evidence)
    word, sentence = "loop_stages", ""
    if not any(a.loops for a in launch.main):
        flat = all(len(a.shape) < 2 for a in launch.args.values() if isinstance(a, TensorFact))
        word = "tile size" if flat else "rows_2d"
        sentence = "larger tiles" if flat else "several rows a program"
        sentence += ", so that each program has more bytes under way"
    return finding(1 - ratio, "memory latency", word, sentence, **evidence)


# ---------------------------------------------------------------- the machine's width


def idle(launch: Launched) -> Finding | None:
    """Fewer programs than SMs."""
    sms = launch.target.num_sms
    if launch.programs >= 0.9 * sms:
        return None
    looped = any(a.loops for a in launch.main) or any(d.loops for d in launch.code.dots)
    word = "split_reduction" if looped else "tile size"
    sentence = "" if looped else "smaller tiles, so that there are more programs than SMs"
    return finding(
        1 - launch.programs / sms,
        "occupancy",
        word,
        sentence,
        programs=launch.programs,
        num_sms=sms,
        num_warps=launch.machine.num_warps,
    )


def tail(launch: Launched) -> Finding | None:
    """A last round of programs that leaves most SMs idle."""
    sms, programs = launch.target.num_sms, launch.programs
    if programs < 0.9 * sms:
        return None
    bound = launch.tensor_us > launch.dram_us
    unit = sms if bound or launch.occupancy == 1 else sms * launch.occupancy
    waves = programs / unit
    if waves <= 1:
        return None
    lost = 1 - waves / math.ceil(waves)
    if unit != sms:  # programs of the last wave have the memory to themselves: they take as long as their own loads
        rounds = math.ceil(programs / (sms * launch.occupancy))
        lost = min(lost, launch.chain_us / rounds / max(launch.expected_us, launch.chain_us))
    word = "split_reduction" if launch.code.dots else "tile size"
    sentence = "" if word == "split_reduction" else "another tile size, so that the programs fill whole waves"
    if word == "split_reduction":
        sentence = "smaller shares of work a program, so that the last wave is short"
    return finding(lost, "tail wave", word, sentence, waves=waves, programs=programs, programs_per_wave=unit)


def spills(launch: Launched) -> Finding | None:
    """Registers that do not fit live in memory."""
    stack, warps = launch.machine.stack_bytes, launch.machine.num_warps
    if stack < SPILL_BYTES:
        return None
    traffic_us = 2.0 * stack * 32 * warps * launch.programs / (launch.target.l2_bandwidth_gbps * 1e3)
    lost = min(0.9, max(0.15, traffic_us / (traffic_us + launch.expected_us)))
    if launch.options.get("maxnreg"):
        word, sentence = "maxnreg", "allow more registers a thread"
    elif warps < 16:
        word, sentence = "num_warps", f"{2 * warps} warps or more, so that each thread holds less of the tile"
    else:
        word, sentence = "tile_loop", ""
    return finding(
        lost,
        "spills",
        word,
        sentence,
        stack_bytes_per_thread=stack,
        registers_per_thread=launch.machine.registers,
        num_warps=warps,
    )


def banks(launch: Launched) -> Finding | None:
    """Lanes of a warp that meet in one bank of shared memory take turns."""
    with_them, without = launch.shared_us(True), launch.shared_us(False)
    if with_them <= 1.5 * without:
        return None
    rest = max(without, launch.roofline_us, launch.l2_us)
    worst = max(launch.code.exchanges, key=lambda e: e.ways * e.size_bytes)
    word, sentence = "tile size", "another tile shape"
    if launch.pipelined:
        word, sentence = "num_stages", "1, so that the tile passes through shared memory with the compiler's swizzle"
    return finding(
        max(0.0, 1 - rest / max(rest, with_them)),
        "shared-memory banks",
        word,
        sentence,
        ways=worst.ways,
        tile_bytes=worst.size_bytes,
        shared_us=with_them,
        shared_us_without_conflicts=without,
    )


# ---------------------------------------------------------------- arithmetic


def tensor_cores(launch: Launched) -> Finding | None:
    """Matrix products without matrix instructions, or with the older of the two kinds."""
    dots, mix, target = launch.code.dots, launch.machine.mix, launch.target
    if not dots or not launch.flops:
        return None
    if not launch.matrix_instructions:
        slow = launch.flops / (target.fp32_tflops * 1e6)
        rest = max(launch.tensor_us, launch.dram_us)
        widened, narrow_kinds = any(d.widened for d in dots), any(d.dtype != "f32" for d in dots)
        word = "dot_precision" if not (widened or narrow_kinds) else "tile size"
        sentence = "" if word == "dot_precision" else "at least 16 on every axis, which matrix instructions take"
        if widened:
            word, sentence = "none", "no edit does it: give tl.dot the 16-bit operands as they were loaded, not widened"
        return finding(
            1 - rest / max(rest, slow),
            "tensor core",
            word,
            sentence,
            matrix_instructions=0,
            tflop=launch.flops / 1e12,
            fp32_peak_tflops=target.fp32_tflops,
            tensor_peak_tflops=launch.rate_tflops(dots),
        )
    if target.capability == 90 and not mix["wgmma"] and any(d.dtype in ("bf16", "f16") for d in dots):
        rest = max(launch.tensor_us, launch.dram_us)
        lost = max(0.0, 1 - rest / max(rest, launch.tensor_us / MMA_SHARE))
        few = launch.machine.num_warps < 4
        word = "num_warps" if few else "tile size"
        sentence = f"at least {'4 warps' if few else '64 rows of the product a tile'}, which wgmma needs"
        return finding(
            lost,
            "tensor core",
            word,
            sentence,
            wgmma=0,
            mma=mix["mma"],
            num_warps=launch.machine.num_warps,
            tile_rows=max(d.m for d in dots),
        )
    return None


def operands(launch: Launched) -> Finding | None:
    """Tiles so small that their operands take longer to reach the SMs than to multiply."""
    target = launch.target
    arriving_us = launch.traffic / (OPERAND_RATE * OPERAND_BYTES_PER_CLOCK * target.num_sms * target.clock_ghz * 1e3)
    rest = max(launch.tensor_us, launch.dram_us)
    if not launch.flops or not launch.matrix_instructions or arriving_us < 1.5 * rest:
        return None
    largest = max(launch.code.dots, key=lambda d: d.m * d.n)
    return finding(
        1 - rest / arriving_us,
        "memory bandwidth",
        "tile size",
        "larger tiles of the product, so that each loaded byte is used more often",
        operand_gb=launch.traffic / 1e9,
        operand_us=arriving_us,
        tensor_us=launch.tensor_us,
        tile_elements=largest.m * largest.n,
    )


def arithmetic(launch: Launched) -> Finding | None:
    """Element-wise instructions that take longer than the memory traffic."""
    rest = max(launch.roofline_us, launch.l2_us)
    slowest = max(launch.issue_us, launch.special_us)
    if slowest <= 1.2 * rest or launch.code.dots:
        return None
    kinds = {w.kind for w in launch.code.work}
    special = launch.special_us >= launch.issue_us
    word = "reciprocal" if "divide" in kinds else "exp2" if "special" in kinds else "hoist_invariant"
    return finding(
        1 - rest / slowest,
        "issue",
        word,
        issue_us=launch.issue_us,
        special_us=launch.special_us,
        memory_us=rest,
        special_bound=float(special),
    )


DETECTORS: tuple[Detector, ...] = (
    strided,
    narrow,
    second_read,
    latency,
    idle,
    tail,
    spills,
    banks,
    tensor_cores,
    operands,
    arithmetic,
)


# ---------------------------------------------------------------- words


def _mean_load_bytes(launch: Launched) -> float:
    """Mean bytes a thread and load of tiles: scalar loads, one place each, are taken out of the table."""
    table = dict(launch.machine.mix.loads)
    for a in launch.code.accesses:
        if a.kind == "load" and math.prod(a.shape) == 1 and table.get(a.width):
            table[a.width] -= 1
    count = sum(table.values())
    return sum(width * n for width, n in table.items()) / count if count else 0.0


def _alignment_word(launch: Launched, access: Access) -> str:
    tensor = launch.args.get(access.base)
    if isinstance(tensor, TensorFact):
        apart = [s for s in tensor.stride if s != 1]
        if not tensor.aligned or any(s * access.width % 16 for s in apart):
            return "align_rows"
        if any(n * access.width % 16 for n in tensor.shape[-1:]):
            return "peel_tail"
    return "contiguity_hint"


def _once_word(launch: Launched, only_stored: bool) -> tuple[str, str]:
    if only_stored:
        return "store_forwarding", ""
    reads = max(Counter((a.base, a.address) for a in launch.main if a.kind == "load").values())
    if any(w.kind == "special" and w.loops for w in launch.code.work):
        return "online", ""
    if reads >= 3:
        return "fused_passes", ""
    return "tile size", "one tile as wide as the row, so that it is read once and stays in registers"


def _limiter(launch: Launched) -> tuple[str, str, str]:
    """(What keeps more programs off an SM, the word, the sentence)."""
    machine, target = launch.machine, launch.target
    by_shared = target.shared_per_sm // (machine.shared + 1024)
    by_registers = target.registers_per_sm // (max(16, machine.registers) * 32 * machine.num_warps)
    if by_shared <= min(by_registers, target.programs_per_sm):
        return "shared memory", "num_stages", "fewer stages, so that more programs fit the shared memory of an SM"
    if by_registers < target.programs_per_sm:
        return "registers", "tile_loop", "narrower tiles, so that more programs fit the registers of an SM"
    return "programs", "num_warps", "more warps a program and a larger tile (an SM holds few programs, of any size)"
