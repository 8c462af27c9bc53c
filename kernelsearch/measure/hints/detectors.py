"""Faults of a launch, one detector each, which gives a finding or None.

A finding's `lost` is the share of the launch's time that the fault costs, by the arithmetic of one resource at a
time: bytes over bandwidth, Little's law, the occupancy rules, waves of programs. The shares rank findings and decide
which are shown; they are estimates, and a measured time overrules them (`findings.diagnose`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from kernelsearch.compile.code import Access, mean_width
from kernelsearch.core.types import Hint, TensorFact
from kernelsearch.measure.hints.changes import format_suggestion
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.occupancy import SHARED_RESERVED

BOTTLENECKS = tuple(
    "memory bandwidth/memory latency/occupancy/issue/tensor core/shared-memory banks/launch/tail wave/spills".split("/")
)

SPILL_BYTES = 32
"""Stack bytes per thread from which on spills are a fault."""
NARROW_LOSS = {1: 0.25, 2: 0.12, 4: 0.05}
"""Assumed share of the time that loads of 1, 2 or 4 bytes per thread cost where 16 are possible. For 2 bytes: rows of
8191 bfloat16 against 8192 on an H100 cost 3 to 14 % (studies/hints/findings.md). A measured time overrules them."""
OPERAND_BYTES_PER_CLOCK = 64
"""Bytes per clock that an SM can take from L2, on Volta to Hopper."""
OPERAND_RATE = 0.6
"""The assumed share of it that matrix kernels reach; by it, 128 x 256 tiles are large enough."""
ISSUE_BUSY = 75.0
"""From this percentage of busy issue slots on, warps wait for each other, not for memory."""
MORE_IN_FLIGHT = ("loop_stages", "loop_unroll", "tile size: larger tiles, so that more bytes are under way")
LARGER = ("rows_2d: several rows a program", "tile size: larger tiles")
WIDEST_ROW = 64 * 1024
"""The most bytes of a row that the registers of one program hold as one tile: a quarter of an SM's."""
MMA_SHARE = 0.62
"""Rate of `mma.sync` over that of `wgmma` on Hopper: a round number."""


@dataclass(frozen=True)
class Finding:
    """A hint and the share of the time that its fault costs.

    others are the suggestions to make instead, in order, where the hint's own edit does not apply to the kernel.
    """

    lost: float
    hint: Hint
    others: tuple[str, ...] = ()


def make_finding(lost: float, bottleneck: str, *advice: str, **evidence: float) -> Finding:
    """A finding; advice is words of `changes.CHANGES`, or `word: sentence`, the best first; at most four numbers."""
    if bottleneck not in BOTTLENECKS or len(evidence) > 4:
        raise ValueError(f"no such finding: {bottleneck!r} with {len(evidence)} numbers")
    parts = (text.partition(": ") for text in advice)
    first, *others = (format_suggestion(word, sentence) for word, _, sentence in parts)
    return Finding(lost, Hint(bottleneck, {k: round_for_people(v) for k, v in evidence.items()}, first), tuple(others))


def round_for_people(value: float) -> float:
    """Three significant digits, whole numbers kept whole."""
    if value == 0 or not math.isfinite(value):
        return value
    if float(value).is_integer():
        return int(value)
    return float(f"{value:.3g}")


# ---------------------------------------------------------------- memory


def detect_strided_access(launch: DeviceLaunch) -> Finding | None:
    """Lanes whose elements lie apart use a part of each 32-byte sector that they fetch."""
    moved = sum(map(launch.moved_bytes_of, launch.main_accesses))
    fetched = sum(launch.moved_bytes_of(a) * launch.sector_ratio_of(a) for a in launch.main_accesses)
    if not moved or fetched < 1.5 * moved:
        return None
    worst = max(launch.main_accesses, key=lambda a: launch.moved_bytes_of(a) * launch.sector_ratio_of(a))
    steps = [abs(n) for s in worst.strides if (n := launch.evaluate(s))]
    return make_finding(
        1 - moved / fetched,
        "memory bandwidth",
        "rows_2d",
        sectors_fetched_over_used=launch.sector_ratio_of(worst),
        stride_bytes=min(steps, default=0) * worst.width,
        used_gb=moved / 1e9,
        fetched_gb=fetched / 1e9,
    )


def detect_narrow_loads(launch: DeviceLaunch) -> Finding | None:
    """Loads of fewer bytes than a thread's part of the tile: more instructions and fewer bytes in flight."""
    loads = [a for a in launch.main_loads if not a.descriptor and launch.sector_ratio_of(a) < 1.5]
    if not loads or launch.machine.mix["tma"]:
        return None
    main = max(loads, key=launch.moved_bytes_of)
    tile_bytes, warps = launch.tile_bytes_of(main), launch.machine.num_warps
    actual, possible = _mean_load_bytes_of(launch), min(16.0, tile_bytes / (32 * warps))
    if actual >= 8 or not actual:
        return None
    lost = NARROW_LOSS.get(2 ** round(math.log2(max(1.0, actual))), 0.1)
    if possible >= 2 * actual:
        first = "tile_loop: loop over tiles of a row, whose starts align_rows and peel_tail can then align"
        words = [_choose_alignment_word(launch, main), first, "align_rows", "peel_tail", "contiguity_hint"]
        return make_finding(lost, "issue", *words, load_bytes_per_thread=actual, possible_bytes_per_thread=possible)
    if has_thin_tiles(launch):
        lost = max(lost, min(0.8, 1 - launch.bytes_in_flight / launch.bytes_needed_in_flight))
        fewer = max(1, 2 ** int(math.log2(max(1, tile_bytes / (32 * 16)))))
        each = f"num_warps={fewer} gives each thread {tile_bytes // (32 * fewer)} bytes"
        advice = f"num_warps: fewer threads for this tile ({each})"
        return make_finding(lost, "issue", advice, load_bytes_per_thread=actual, tile_bytes=tile_bytes, num_warps=warps)
    return None


def has_thin_tiles(launch: DeviceLaunch) -> bool:
    """Whether a tile gives each thread less than four bytes."""
    warps, tiles = launch.machine.num_warps, [launch.tile_bytes_of(a) for a in launch.main_loads]
    return warps > 1 and bool(tiles) and max(tiles) < 4 * 32 * warps


def detect_second_read(launch: DeviceLaunch) -> Finding | None:
    """A program loads the same addresses at several places, or after it stored them."""
    loads = launch.main_loads
    places = Counter((a.base, a.address) for a in loads)
    again = {key: n for key, n in places.items() if n > 1}
    first = {(a.base, a.address): n for n, a in reversed([*enumerate(launch.main_accesses)]) if a.kind == "store"}
    # Accesses are in the order of the source: an update in place loads first, and is no fault.
    reloaded = [
        a for n, a in enumerate(launch.main_accesses) if a.kind == "load" and n > first.get((a.base, a.address), n)
    ]
    extra = sum(launch.moved_bytes_of(a) for a in loads if (a.base, a.address) in again)
    extra -= sum(launch.moved_bytes_of(next(a for a in loads if (a.base, a.address) == key)) for key in again)
    extra += sum(map(launch.moved_bytes_of, reloaded))
    total = sum(map(launch.moved_bytes_of, launch.main_accesses))
    if not extra or not total:
        return None
    times = max([2, *again.values()])
    # A second load costs less where the first loads of all resident programs fit L2.
    live = (total - extra) / launch.programs * launch.resident * launch.target.num_sms
    share = extra / total * (1.0 if live > 0.6 * launch.target.l2_bytes else 0.45)
    if launch.counters is not None:  # the hardware counted the bytes from memory; the rest came from L2 and cost less
        again_bytes = min(extra, max(0.0, launch.counters.dram_bytes - launch.footprint))
        share = (again_bytes + 0.45 * (extra - again_bytes)) / total
    return make_finding(
        share,
        "memory bandwidth",
        *_advise_to_load_once(launch, bool(reloaded and not again)),
        times_read=times,
        read_again_gb=extra / 1e9,
        needed_gb=(total - extra) / 1e9,
        live_over_l2=live / launch.target.l2_bytes,
    )


def detect_latency(launch: DeviceLaunch) -> Finding | None:
    """Too few bytes in flight to use the memory bandwidth, though every SM has programs."""
    if launch.tensor_us > launch.dram_us or launch.programs < launch.target.num_sms or has_thin_tiles(launch):
        return None
    if launch.counters is not None and launch.counters.issue_percent > ISSUE_BUSY:
        return None
    ratio = launch.bytes_in_flight / launch.bytes_needed_in_flight
    if ratio >= 0.8 or launch.dram_us < 0.5 * max(launch.issue_us, launch.special_us):
        return None
    warps = launch.resident * launch.machine.num_warps
    body = max(launch.main_loads, key=launch.moved_bytes_of).loops
    waits = bool(body) and launch.is_synchronised(body) and not launch.code.dots
    possible_warps = launch.occupancy * launch.machine.num_warps
    evidence = dict(
        warps_per_sm=warps,
        bytes_in_flight_per_sm=launch.bytes_in_flight,
        bytes_needed_per_sm=launch.bytes_needed_in_flight,
    )
    if waits and any(loops[: len(body)] == body for loops in launch.code.reduced):
        return make_finding(1 - ratio, "memory latency", "lane_accumulator", *MORE_IN_FLIGHT, **evidence)
    if possible_warps <= launch.target.warps_per_sm / 2:
        possible = launch.target.warps_per_sm
        advice = (_advise_on_occupancy(launch), "tile size: smaller tiles, so that more programs fit an SM")
        return make_finding(1 - ratio, "occupancy", *advice, warps_possible=possible, **evidence)
    if any(a.loops for a in launch.main_accesses):
        return make_finding(1 - ratio, "memory latency", *MORE_IN_FLIGHT, **evidence)
    advice = [f"{what}, so that each program has more bytes under way" for what in LARGER]
    if all(len(a.shape) < 2 for a in launch.args.values() if isinstance(a, TensorFact)):
        advice = advice[1:]
    return make_finding(1 - ratio, "memory latency", *advice, **evidence)


# ---------------------------------------------------------------- the machine's width


def detect_idle_sms(launch: DeviceLaunch) -> Finding | None:
    """Fewer programs than SMs."""
    sms = launch.target.num_sms
    if launch.programs >= 0.9 * sms:
        return None
    looped = any(a.loops for a in launch.main_accesses) or any(d.loops for d in launch.code.dots)
    advice = ("split_reduction",) if looped else ()
    smaller = "tile size: smaller tiles, so that there are more programs than SMs"
    evidence = {"programs": launch.programs, "num_sms": sms, "num_warps": launch.machine.num_warps}
    return make_finding(1 - launch.programs / sms, "occupancy", *advice, smaller, **evidence)


def detect_tail_wave(launch: DeviceLaunch) -> Finding | None:
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
    if unit != sms:  # the last wave has the memory alone and takes as long as its own loads
        rounds = math.ceil(programs / (sms * launch.occupancy))
        lost = min(lost, launch.chain_us / rounds / max(launch.expected_us, launch.chain_us))
    advice = ["tile size: another tile size, so that the programs fill whole waves"]
    if launch.code.dots:
        advice.insert(0, "split_reduction: smaller shares of work a program, so that the last wave is short")
    return make_finding(lost, "tail wave", *advice, waves=waves, programs=programs, programs_per_wave=unit)


def detect_spills(launch: DeviceLaunch) -> Finding | None:
    """Registers that do not fit and live in memory."""
    stack, warps = launch.machine.stack_bytes, launch.machine.num_warps
    if stack < SPILL_BYTES:
        return None
    traffic_us = 2.0 * stack * 32 * warps * launch.programs / (launch.target.l2_bandwidth_gbps * 1e3)
    lost = min(0.9, max(0.15, traffic_us / (traffic_us + launch.expected_us)))
    advice = ["tile_loop", "tile size: smaller tiles, so that each thread holds less"]
    if launch.options.get("maxnreg"):
        advice = ["maxnreg: allow more registers a thread"]
    elif warps < 16:
        advice = [f"num_warps: {2 * warps} warps or more, so that each thread holds less of the tile"]
    registers = launch.machine.registers
    evidence = {"stack_bytes_per_thread": stack, "registers_per_thread": registers, "num_warps": warps}
    return make_finding(lost, "spills", *advice, **evidence)


def detect_bank_conflicts(launch: DeviceLaunch) -> Finding | None:
    """Lanes of a warp that use the same bank of shared memory take turns."""
    actual, without = launch.shared_memory_us(True), launch.shared_memory_us(False)
    if actual <= 1.5 * without:
        return None
    rest = max(without, launch.roofline_us, launch.l2_us)
    worst = max(launch.code.exchanges, key=lambda e: e.ways * e.size_bytes)
    advice = "tile size: another tile shape"
    if launch.is_pipelined:
        advice = "num_stages: 1, so that the tile passes through shared memory with the compiler's swizzle"
    evidence = {"ways": worst.ways, "tile_bytes": worst.size_bytes, "shared_us": actual}
    evidence["shared_us_without_conflicts"] = without
    return make_finding(max(0.0, 1 - rest / max(rest, actual)), "shared-memory banks", advice, **evidence)


# ---------------------------------------------------------------- arithmetic


def detect_missing_tensor_cores(launch: DeviceLaunch) -> Finding | None:
    """Matrix products without matrix instructions, or with the older of the two kinds."""
    dots, mix, target = launch.code.dots, launch.machine.mix, launch.target
    if not dots or not launch.flops:
        return None
    rest = max(launch.tensor_us, launch.dram_us)
    if not launch.has_matrix_instructions:
        slow = launch.flops / (target.fp32_tflops * 1e6)
        advice = "dot_precision"
        if any(d.widened for d in dots):
            advice = "none: no edit does it: give tl.dot the 16-bit operands as they were loaded, not widened"
        elif any(d.dtype != "f32" for d in dots):
            advice = "tile size: at least 16 on every axis, which matrix instructions take"
        return make_finding(
            1 - rest / max(rest, slow),
            "tensor core",
            advice,
            matrix_instructions=0,
            tflop=launch.flops / 1e12,
            fp32_peak_tflops=target.fp32_tflops,
            tensor_peak_tflops=launch.rate_tflops(dots),
        )
    if target.capability == 90 and not mix["wgmma"] and any(d.dtype in ("bf16", "f16") for d in dots):
        lost, warps = max(0.0, 1 - rest / max(rest, launch.tensor_us / MMA_SHARE)), launch.machine.num_warps
        least = "num_warps: at least 4 warps" if warps < 4 else "tile size: at least 64 rows of the product a tile"
        evidence = {"wgmma": 0, "mma": mix["mma"], "num_warps": warps, "tile_rows": max(d.m for d in dots)}
        return make_finding(lost, "tensor core", f"{least}, which wgmma needs", **evidence)
    return None


def detect_small_product_tiles(launch: DeviceLaunch) -> Finding | None:
    """Small tiles, whose operands take longer to reach the SMs than to multiply."""
    target = launch.target
    arriving_us = launch.traffic / (OPERAND_RATE * OPERAND_BYTES_PER_CLOCK * target.num_sms * target.clock_ghz * 1e3)
    rest = max(launch.tensor_us, launch.dram_us)
    if not launch.flops or not launch.has_matrix_instructions or arriving_us < 1.5 * rest:
        return None
    largest = max(launch.code.dots, key=lambda d: d.m * d.n)
    return make_finding(
        1 - rest / arriving_us,
        "memory bandwidth",
        "tile size: larger tiles of the product, so that each loaded byte is used more often",
        operand_gb=launch.traffic / 1e9,
        operand_us=arriving_us,
        tensor_us=launch.tensor_us,
        tile_elements=largest.m * largest.n,
    )


def detect_slow_arithmetic(launch: DeviceLaunch) -> Finding | None:
    """Element-wise instructions that take longer than the memory traffic."""
    rest = max(launch.roofline_us, launch.l2_us)
    slowest = max(launch.issue_us, launch.special_us)
    if slowest <= 1.2 * rest or launch.code.dots:
        return None
    kinds = {w.kind for w in launch.code.work}
    special = launch.special_us >= launch.issue_us
    words = ["reciprocal"] * ("divide" in kinds) + ["exp2"] * ("special" in kinds) + ["hoist_invariant"]
    return make_finding(
        1 - rest / slowest,
        "issue",
        *words,
        issue_us=launch.issue_us,
        special_us=launch.special_us,
        memory_us=rest,
        special_bound=float(special),
    )


DETECTORS = (
    detect_strided_access,
    detect_narrow_loads,
    detect_second_read,
    detect_latency,
    detect_idle_sms,
    detect_tail_wave,
    detect_spills,
    detect_bank_conflicts,
    detect_missing_tensor_cores,
    detect_small_product_tiles,
    detect_slow_arithmetic,
)


# ---------------------------------------------------------------- words


def _mean_load_bytes_of(launch: DeviceLaunch) -> float:
    """Mean bytes per thread of the loads of tiles; scalar loads are taken out of the table."""
    table = dict(launch.machine.mix.loads)
    for a in launch.code.accesses:
        if a.kind == "load" and math.prod(a.shape) == 1 and table.get(a.width):
            table[a.width] -= 1
    return mean_width(table)


def _choose_alignment_word(launch: DeviceLaunch, access: Access) -> str:
    tensor = launch.args.get(access.base)
    if isinstance(tensor, TensorFact):
        apart = [s for s in tensor.stride if s != 1]
        if not tensor.aligned or any(s * access.width % 16 for s in apart):
            return "align_rows"
        if any(n * access.width % 16 for n in tensor.shape[-1:]):
            return "peel_tail"
    return "contiguity_hint"


def _advise_to_load_once(launch: DeviceLaunch, only_stored: bool) -> list[str]:
    """What to do about a second read, best first: a row is one tile only where a program's registers hold it."""
    if only_stored:
        return ["store_forwarding"]
    places = Counter((a.base, a.address) for a in launch.main_loads)
    base, address = max(places, key=lambda key: places[key])
    again = [a for a in launch.main_loads if (a.base, a.address) == (base, address)]
    row_bytes = max(map(launch.moved_bytes_of, again)) / launch.programs
    special = any(w.kind == "special" and w.loops for w in launch.code.work)
    advice = ["online"] * special + ["fused_passes"] * (len(again) >= 3)
    if row_bytes <= WIDEST_ROW:
        advice.append("tile size: one tile as wide as the row, so that it is read once and stays in registers")
    return [*advice, "fused_passes"]


def _advise_on_occupancy(launch: DeviceLaunch) -> str:
    """Advice by the resource that keeps more programs off an SM."""
    machine, target = launch.machine, launch.target
    by_shared = target.shared_per_sm // (machine.shared + SHARED_RESERVED)
    by_registers = target.registers_per_sm // (max(16, machine.registers) * 32 * machine.num_warps)
    if by_shared <= min(by_registers, target.programs_per_sm):
        return "num_stages: fewer stages, so that more programs fit the shared memory of an SM"
    if by_registers < target.programs_per_sm:
        return "tile_loop: narrower tiles, so that more programs fit the registers of an SM"
    return "num_warps: more warps a program and a larger tile (an SM holds few programs, of any size)"
