"""Faults of a launch, one detector each, which gives a finding or None.

A finding's `lost` is the share of the launch's time that the fault costs, by the arithmetic of one resource at a
time: bytes over bandwidth, Little's law, the occupancy rules, waves of programs. The shares rank findings and decide
which are shown; they are estimates, and a measured time overrules them (`findings.diagnose`).
"""

from __future__ import annotations

import math

from kernelsearch.core.formats import format_bytes, format_time
from kernelsearch.measure.hints.changes import Finding, make_finding, round_for_people
from kernelsearch.measure.hints.memory_detectors import (
    detect_contention,
    detect_empty_lanes,
    detect_latency,
    detect_narrow_loads,
    detect_second_read,
    detect_strided_access,
)
from kernelsearch.measure.static_model.device_launch import DeviceLaunch

SPILL_BYTES = 32
"""Stack bytes per thread from which on spills are a fault."""
MOST_WARPS = 16
"""The most warps that are advised for a program."""
OPERAND_BYTES_PER_CLOCK = 64
"""Bytes per clock that an SM can take from L2, on Volta to Hopper."""
OPERAND_RATE = 0.6
"""The assumed share of it that matrix kernels reach; by it, 128 x 256 tiles are large enough."""
MMA_SHARE = 0.62
"""Rate of `mma.sync` over that of `wgmma` on Hopper: a round number."""


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
    why = f"{launch.programs} programs for {sms} SMs: {sms - launch.programs} SMs have nothing to do."
    even, lost = "the work can be spread evenly over all SMs", 1 - launch.programs / sms
    return make_finding(lost, "occupancy", "Idle SMs", why, *advice, smaller, assuming=even, **evidence)


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
    why = (
        f"{programs:,} programs run in rounds of {unit:,}: {round_for_people(waves)} rounds. In the last one "
        f"{100 * (math.ceil(waves) - waves):.0f} % of the places are empty."
    )
    evidence = {"waves": waves, "programs": programs, "programs_per_wave": unit}
    return make_finding(lost, "tail wave", "Tail wave", why, *advice, assuming="every round takes as long", **evidence)


def detect_spills(launch: DeviceLaunch) -> Finding | None:
    """Registers that do not fit and live in memory."""
    stack, warps, lanes = launch.machine.stack_bytes, launch.machine.num_warps, launch.target.warp_size
    if stack < SPILL_BYTES:
        return None
    traffic_us = 2.0 * stack * lanes * warps * launch.programs / (launch.target.l2_bandwidth_gbps * 1e3)
    lost = min(0.9, max(0.15, traffic_us / (traffic_us + launch.expected_us)))
    registers = launch.machine.registers
    needed = warps * 2 ** math.ceil(math.log2(1 + stack / (4 * max(1, registers))))
    advice = ["tile size: smaller tiles, so that each thread holds less"]
    if launch.options.get("maxnreg"):
        advice = ["maxnreg: allow more registers a thread"]
    elif needed <= MOST_WARPS:
        advice = [f"num_warps: {needed}, so that each thread holds less of the tile"]
    evidence = {"stack_bytes_per_thread": stack, "registers_per_thread": registers, "num_warps": warps}
    why = (
        f"A thread holds {stack:,} bytes more than its {registers} registers take. They are stored to memory and "
        f"loaded again: at least {format_bytes(2.0 * stack * lanes * warps * launch.programs)} through L2."
    )
    once = "each of these bytes goes out and back once"
    return make_finding(lost, "spills", "Register spills", why, *advice, assuming=once, **evidence)


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
    why = (
        f"Up to {round_for_people(worst.ways)} lanes of a warp want the same bank of shared memory and take turns: "
        f"{format_time(actual)} in all, {format_time(without)} without conflicts."
    )
    lost, alone = max(0.0, 1 - rest / max(rest, actual)), "nothing else overlaps with it"
    return make_finding(lost, "shared-memory banks", "Bank conflicts", why, advice, assuming=alone, **evidence)


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
        if target.capability < 80:
            advice = "none: Triton makes no matrix instructions for sm_75"
        elif any(d.widened for d in dots):
            advice = "none: no edit does it: give tl.dot the 16-bit operands as they were loaded, not widened"
        elif any(d.dtype != "f32" for d in dots):
            advice = "tile size: at least 16 on every axis, which matrix instructions take"
        return make_finding(
            1 - rest / max(rest, slow),
            "tensor core",
            "No matrix instructions",
            f"tl.dot does {launch.flops / 1e12:.3g} TFLOP with ordinary instructions at {target.fp32_tflops:.3g} "
            f"TFLOP/s at best; the tensor cores do {launch.rate_tflops(dots):,.0f} TFLOP/s.",
            advice,
            "none: give tl.dot 16-bit operands, if the task's precision allows it",
            assuming="the products then run at the tensor cores' rate",
            matrix_instructions=0,
            tflop=launch.flops / 1e12,
            fp32_peak_tflops=target.fp32_tflops,
            tensor_peak_tflops=launch.rate_tflops(dots),
        )
    if target.arch == 90 and not mix["wgmma"] and any(d.dtype in ("bf16", "f16") for d in dots):
        lost, warps = max(0.0, 1 - rest / max(rest, launch.tensor_us / MMA_SHARE)), launch.machine.num_warps
        least = "num_warps: at least 4 warps" if warps < 4 else "tile size: at least 64 rows of the product a tile"
        evidence = {"wgmma": 0, "mma": mix["mma"], "num_warps": warps, "tile_rows": max(d.m for d in dots)}
        why = (
            f"The products use mma.sync, the older matrix instruction, at about {MMA_SHARE:.0%} of the rate of wgmma. "
            f"Tiles have {max(d.m for d in dots)} rows, programs {warps} warps."
        )
        alone, advice = "the products are all that it waits for", f"{least}, which wgmma needs"
        return make_finding(lost, "tensor core", "Old matrix instructions", why, advice, assuming=alone, **evidence)
    return None


_SERIALISED = (
    ("register resources", "tile size: smaller tiles of the product, or more warps: products in flight need registers"),
    ("accumulator registers", "none: leave the accumulator alone from its product until the wait for that product"),
    ("input registers", "none: leave an operand in registers alone from its product until the wait for that product"),
    ("pipeline stage", "none: begin each product and wait for it on one path, not in a branch of its own"),
    ("", "none: no call and no branch between a product and the wait for it"),
)
"""What to do about a reason of ptxas, by some of its words."""


def detect_serialised_products(launch: DeviceLaunch) -> Finding | None:
    """Products of tensor cores that wait for each other by the compiler's will."""
    reasons, mix = launch.code.serialised, launch.machine.mix
    if not reasons:
        return None
    others = max(launch.dram_us, launch.l2_us, launch.issue_us, launch.special_us)
    both = launch.tensor_us + others
    lost = max(0.15, min(launch.tensor_us, others) / both if both else 0.0)
    code, _, words = reasons[0].partition(" ")
    advice = next(advice for some, advice in _SERIALISED if some in words)
    why = f"ptxas lets every product of the tensor cores wait for the one before, and says why: {words} ({code})."
    evidence = {"wgmma": mix["wgmma"], "registers_per_thread": launch.machine.registers}
    turns = "products and all else take turns now"
    return make_finding(lost, "tensor core", "Products in turns", why, advice, assuming=turns, **evidence)


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
        "Small product tiles",
        f"With tiles of {largest.m} x {largest.n} the operands are loaded again and again: "
        f"{format_bytes(launch.traffic)}, which take {format_time(arriving_us)} to reach the SMs. To multiply "
        f"them takes {format_time(launch.tensor_us)}.",
        "tile size: larger tiles of the product, so that each loaded byte is used more often",
        assuming="operands of larger tiles arrive as fast as they are multiplied",
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
    special = launch.special_us >= launch.issue_us
    return make_finding(
        1 - rest / slowest,
        "issue",
        "Slow arithmetic",
        f"Its arithmetic takes longer than its bytes ({format_time(rest)}): {format_time(launch.issue_us)} to issue "
        f"the instructions, {format_time(launch.special_us)} for exp, division and the like.",
        *list_faster_arithmetic(launch),
        "none: do fewer operations an element, or once what several elements share",
        assuming="that arithmetic can be left out",
        issue_us=launch.issue_us,
        special_us=launch.special_us,
        memory_us=rest,
        special_bound=float(special),
    )


def list_faster_arithmetic(launch: DeviceLaunch) -> list[str]:
    """The edits that may make divisions and exponentials faster, where there are any."""
    kinds = {w.kind for w in launch.code.work}
    return ["reciprocal"] * ("divide" in kinds) + ["exp2"] * ("special" in kinds)


DETECTORS = (
    detect_contention,
    detect_strided_access,
    detect_narrow_loads,
    detect_second_read,
    detect_latency,
    detect_empty_lanes,
    detect_idle_sms,
    detect_tail_wave,
    detect_spills,
    detect_bank_conflicts,
    detect_missing_tensor_cores,
    detect_serialised_products,
    detect_small_product_tiles,
    detect_slow_arithmetic,
)
