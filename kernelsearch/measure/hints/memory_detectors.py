"""Faults of a launch in how it reads and writes memory; see `detectors`."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

from kernelsearch.compile.code import Access, mean_width
from kernelsearch.core.formats import format_bytes, format_time
from kernelsearch.core.types import TensorFact
from kernelsearch.measure.hints.changes import MEMORY, Finding, make_finding, round_for_people
from kernelsearch.measure.static_model.device_launch import DRAM_LATENCY_NS, DeviceLaunch
from kernelsearch.measure.static_model.fitted import FITTED
from kernelsearch.measure.static_model.occupancy import find_room

NARROW_LOSS = {1: 0.25, 2: 0.12, 4: 0.05}
"""Assumed share of the time that loads of 1, 2 or 4 bytes per thread cost where 16 are possible. For 2 bytes: rows of
8191 bfloat16 against 8192 on an H100 cost 3 to 14 % (studies/hints/findings.md). A measured time overrules them."""
ISSUE_BUSY = 75.0
"""From this percentage of busy issue slots on, warps wait for each other, not for memory."""
MORE_IN_FLIGHT = ("loop_stages", "loop_unroll", "tile size: larger tiles, so that more bytes are under way")
LARGER = ("rows_2d: several rows a program", "tile size: larger tiles")
BY_HAND = {
    "align_rows": "pad the rows to a multiple of 16 bytes, or load whole aligned tiles and mask their edges",
    "peel_tail": "do whole tiles without a mask and one masked tile at the end",
    "none": "let each thread's addresses begin at a multiple of 16 bytes: its rows do, but its tiles do not",
}
"""What a person does about narrow loads where no edit applies, by the edit that would be named first."""
WIDEST_ROW = 64 * 1024
"""The most bytes of a row that the registers of one program hold as one tile: a quarter of an SM's."""
CONTENDED = 16
"""Updates of an address by one launch from which on they wait for each other."""
WINDOW = 3
"""Places of one tensor that a program loads, from which on they may be a window."""


def detect_strided_access(launch: DeviceLaunch) -> Finding | None:
    """Lanes whose elements lie apart use a part of each 32-byte sector that they fetch."""
    moved = sum(map(launch.moved_bytes_of, launch.main_accesses))
    fetched = sum(launch.moved_bytes_of(a) * launch.sector_ratio_of(a) for a in launch.main_accesses)
    if not moved or fetched < 1.5 * moved:
        return None
    worst = max(launch.main_accesses, key=lambda a: launch.moved_bytes_of(a) * launch.sector_ratio_of(a))
    steps = [abs(n) for s in worst.strides if (n := launch.evaluate(s))]
    stride, ratio = min(steps, default=0) * worst.width, launch.sector_ratio_of(worst)
    return make_finding(
        1 - moved / fetched,
        "memory bandwidth",
        "Strided access",
        f"Neighbouring elements of a tile of {worst.base} lie {stride:,} bytes apart. Memory moves whole sectors of 32 "
        f"bytes, so the {worst.kind} moves {round_for_people(ratio)} times the bytes that it uses: "
        f"{format_bytes(fetched)} for {format_bytes(moved)} in all.",
        "rows_2d",
        "none: let the tile run along the axis whose elements lie next to each other",
        sectors_fetched_over_used=ratio,
        stride_bytes=stride,
        used_gb=moved / 1e9,
        fetched_gb=fetched / 1e9,
    )


def detect_narrow_loads(launch: DeviceLaunch) -> Finding | None:
    """Loads of fewer bytes than a thread's part of the tile: more instructions and fewer bytes in flight."""
    loads = [a for a in launch.main_loads if not a.descriptor and launch.sector_ratio_of(a) < 1.5]
    if not loads or launch.machine.mix["tma"]:
        return None
    main = max(loads, key=launch.moved_bytes_of)
    tile_bytes, warps, lanes = launch.tile_bytes_of(main), launch.machine.num_warps, launch.target.warp_size
    actual, possible = _mean_load_bytes_of(launch), min(16.0, tile_bytes / (lanes * warps))
    if actual >= 8 or not actual:
        return None
    lost = NARROW_LOSS.get(2 ** round(math.log2(max(1.0, actual))), 0.1)
    if possible >= 2 * actual:
        name, assuming = ("Narrow loads", "narrow loads cost here what they cost where that was measured")
        why = (
            f"A thread loads {round_for_people(actual)} bytes at a time; its part of the tile is "
            f"{round_for_people(possible)} bytes. It takes {round_for_people(possible / actual)} times as many load "
            f"instructions: wider ones need addresses that are known to be aligned."
        )
        word = _choose_alignment_word(launch, main)
        words = [*(w for w in (word, "align_rows", "peel_tail") if w != "none"), f"none: {BY_HAND[word]}"]
        if len({a.address for a in loads if a.base == main.base}) >= WINDOW:
            words.insert(0, "sliding_columns")
        evidence: dict[str, Any] = {"load_bytes_per_thread": actual, "possible_bytes_per_thread": possible}
        return make_finding(lost, "issue", name, why, *words, assuming=assuming, **evidence)
    if has_thin_tiles(launch):
        lost = max(lost, min(0.8, 1 - launch.bytes_in_flight / launch.bytes_needed_in_flight))
        fewer = max(1, 2 ** int(math.log2(max(1, tile_bytes / (lanes * 16)))))
        each = f"num_warps={fewer} gives each thread {tile_bytes // (lanes * fewer)} bytes"
        advice = f"num_warps: fewer threads for this tile ({each})"
        why = (
            f"A tile of {tile_bytes:,} bytes for {warps} warps leaves a thread {round_for_people(actual)} bytes to "
            "load, and few bytes are under way at a time."
        )
        evidence = {"load_bytes_per_thread": actual, "tile_bytes": tile_bytes, "num_warps": warps}
        return make_finding(lost, "issue", "Thin tiles", why, advice, **evidence)
    return None


def has_thin_tiles(launch: DeviceLaunch) -> bool:
    """Whether a tile gives each thread less than four bytes."""
    warps, tiles = launch.machine.num_warps, [launch.tile_bytes_of(a) for a in launch.main_loads]
    return warps > 1 and bool(tiles) and max(tiles) < 4 * launch.target.warp_size * warps


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

    def bytes_of(a: Access) -> float:  # what all programs load, as a weight, is in L2 but for the first time
        return min(launch.moved_bytes_of(a), launch.tensor_bytes_of(a.base))

    extra = sum(bytes_of(a) for a in loads if (a.base, a.address) in again)
    extra -= sum(bytes_of(next(a for a in loads if (a.base, a.address) == key)) for key in again)
    extra += sum(map(bytes_of, reloaded))
    total = launch.footprint + extra
    handed_on = any(a.kind == "atomic" for a in launch.code.accesses)  # programs may wait for others' first reads
    if not extra or (handed_on and launch.counters is None):
        return None
    times = max([2, *again.values()])
    # A second load costs less where the first loads of all resident programs fit L2.
    live = (total - extra) / launch.programs * launch.resident * launch.target.num_sms
    source = "memory" if live > 0.6 * launch.target.l2_bytes else "L2"
    share = extra / total * (1.0 if source == "memory" else 0.45)
    if launch.counters is not None:  # the hardware counted the bytes from memory; the rest came from L2 and cost less
        again_bytes = min(extra, max(0.0, launch.counters.dram_bytes - launch.footprint))
        share = (again_bytes + 0.45 * (extra - again_bytes)) / total
    return make_finding(
        share,
        "memory bandwidth",
        "Second read",
        f"The same data is loaded {times} times: {format_bytes(extra)} on top of the {format_bytes(total - extra)} "
        f"that must move. What running programs hold in between is {round_for_people(live / launch.target.l2_bytes)} "
        f"times the size of L2, so most of it comes from {source} again.",
        *_advise_to_load_once(launch, bool(reloaded and not again)),
        assuming=f"all of it is loaded once and {MEMORY}",
        times_read=times,
        read_again_gb=extra / 1e9,
        needed_gb=(total - extra) / 1e9,
        live_over_l2=live / launch.target.l2_bytes,
    )


def detect_contention(launch: DeviceLaunch) -> Finding | None:
    """Atomic updates of a few addresses by many programs wait for each other."""
    updates: dict[str, float] = defaultdict(int)
    for access in launch.code.accesses:
        if access.kind == "atomic":
            updates[access.base] += launch.moved_bytes_of(access) / access.width
    places = {base: math.prod(a.shape) for base in updates if isinstance(a := launch.args.get(base), TensorFact)}
    contended = {base: updates[base] for base, n in places.items() if updates[base] >= CONTENDED * n > 0}
    if not contended:
        return None
    number, addresses = sum(contended.values()), sum(places[base] for base in contended)
    update_us = number / (FITTED.atomics_per_ns * 1e3)
    why = (
        f"{number:,.0f} atomic updates of {addresses:,} addresses ({', '.join(contended)}): each address takes "
        f"{number / addresses:,.0f} of them one after the other, together about {format_time(update_us)}."
    )
    advice = "none: let a program add up many rows in registers first, or store partial sums that a second kernel adds"
    evidence = {"updates": number, "addresses": addresses, "updates_us": update_us}
    lost, few = update_us / (update_us + launch.expected_us), "nearly all updates are added up before"
    return make_finding(lost, "contention", "Contended atomics", why, advice, assuming=few, **evidence)


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
    name, why = (
        "Few bytes in flight",
        f"An SM has {format_bytes(launch.bytes_in_flight)} of loads under way ({warps} warps). To keep the memory busy "
        f"while a load takes {DRAM_LATENCY_NS:.0f} ns it needs {format_bytes(launch.bytes_needed_in_flight)}.",
    )
    possible_warps = launch.occupancy * launch.machine.num_warps
    evidence: dict[str, Any] = dict(
        warps_per_sm=warps,
        bytes_in_flight_per_sm=launch.bytes_in_flight,
        bytes_needed_per_sm=launch.bytes_needed_in_flight,
    )
    if waits and any(loops[: len(body)] == body for loops in launch.code.reduced):
        return make_finding(1 - ratio, "memory latency", name, why, "lane_accumulator", *MORE_IN_FLIGHT, **evidence)
    if possible_warps <= launch.target.warps_per_sm / 2:
        possible = launch.target.warps_per_sm
        advice = _advise_on_occupancy(launch)
        why += f" The program's resources let {possible_warps} of {possible} warps onto an SM."
        return make_finding(1 - ratio, "occupancy", "Low occupancy", why, *advice, warps_possible=possible, **evidence)
    if any(a.loops for a in launch.main_accesses):
        return make_finding(1 - ratio, "memory latency", name, why, *MORE_IN_FLIGHT, **evidence)
    advice = [f"{what}, so that each program has more bytes under way" for what in LARGER]
    if all(len(a.shape) < 2 for a in launch.args.values() if isinstance(a, TensorFact)):
        advice = advice[1:]
    return make_finding(1 - ratio, "memory latency", name, why, *advice, **evidence)


def detect_empty_lanes(launch: DeviceLaunch) -> Finding | None:
    """Tiles that reach beyond their tensor: masked lanes load nothing, and fewer bytes are in flight."""
    main = max(launch.main_loads, key=launch.moved_bytes_of, default=None)
    if main is None:
        return None
    lanes = launch.tile_bytes_of(main) * launch.trips_of(main.loops) * launch.programs
    used = launch.moved_bytes_of(main) / lanes
    if used > 0.75:
        return None
    ratio = min(1.0, used * launch.bytes_in_flight / launch.bytes_needed_in_flight)
    why = (
        f"{100 * (1 - used):.0f} % of the lanes of a tile of {math.prod(main.shape):,} elements lie beyond the end of "
        f"{main.base} and are masked: they take registers and instructions, and load nothing."
    )
    advice = "tile size: a narrower one, so that less of the last is empty, or one over several rows"
    numbers: dict[str, Any] = {"empty_percent": 100 * (1 - used), "tile_elements": math.prod(main.shape)}
    return make_finding(1 - ratio, "memory latency", "Empty lanes", why, advice, **numbers)


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
    return "none"


def _advise_to_load_once(launch: DeviceLaunch, only_stored: bool) -> list[str]:
    """What to do about a second read, best first: a row is one tile only where a program's registers hold it."""
    if only_stored:
        return ["none: keep what was stored in a variable"]
    places = Counter((a.base, a.address) for a in launch.main_loads)
    base, address = max(places, key=lambda key: places[key])
    again = [a for a in launch.main_loads if (a.base, a.address) == (base, address)]
    row_bytes = max(map(launch.moved_bytes_of, again)) / launch.programs
    special = any(w.kind == "special" and w.loops for w in launch.code.work)
    advice = ["online"] * special + ["fused_passes"] * (len(again) >= 3)
    last = "none: share each row among several programs that hold their parts in registers between the passes"
    if max(map(launch.tile_bytes_of, again)) >= row_bytes:
        last = "none: load the tile once into a variable and use that"
    elif row_bytes <= WIDEST_ROW:
        advice.append("tile size: one tile as wide as the row, so that it is read once and stays in registers")
    return [*advice, "fused_passes", "share_rows", last]


def _advise_on_occupancy(launch: DeviceLaunch) -> list[str]:
    """Advice by the resource that keeps more programs off an SM, best first."""
    smaller = "tile size: smaller tiles, so that more programs fit an SM"
    machine, target = launch.machine, launch.target
    room = find_room(machine, target)
    by_shared, by_registers = int(room["shared"]), int(room["registers"])
    if machine.num_stages > 1 and by_shared <= min(by_registers, target.programs_per_sm):
        return ["num_stages: fewer stages, so that more programs fit the shared memory of an SM", smaller]
    if by_registers < target.programs_per_sm:
        return [smaller]
    looped = any(a.loops for a in launch.main_accesses)
    changes = () if looped else LARGER  # what goes through its row in tiles takes a larger one with more warps
    more = "num_warps: more warps a program and a larger tile"
    return [f"{what} (an SM holds few programs, of any size)" for what in (*changes, more)]
