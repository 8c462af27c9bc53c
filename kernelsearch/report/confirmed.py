"""What the confirmed protocol found of one kernel: a finding as plain data, and the same in words.

Speed-ups are the other's time over this kernel's. The headline is against the fastest baseline of each shape;
over several shapes it is the geometric mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelsearch.core import words
from kernelsearch.measure.timing import confirm as protocol
from kernelsearch.measure.timing import statistics as paired
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.record.rows import geometric_mean
from kernelsearch.trial.confirmation import Contestant, ShapeRun

level_for = paired.level_for

CONFIRMED, UNSTABLE = "confirmed", "unstable"

Finding = dict[str, Any]


def finding(
    contestant: Contestant,
    runs: Sequence[ShapeRun],
    device: str,
    ceilings: Mapping[str, float],
    level: float = paired.LEVEL,
    champion: bool = False,
) -> Finding:
    """All that is known of a contestant after these runs; level is that of its intervals.

    champion says that these runs are the shapes at which it is the search's best, and not all; margin is what a
    speed-up must exceed to count. status is `confirmed`, `unstable` (too many blocks were dropped at a shape), or the verdict's word that ended it.
    """
    verdict = next((r.verdicts[contestant.name] for r in runs if contestant.name in r.verdicts), None)
    timed = [r for r in runs if r.time(contestant.name) is not None]
    status = verdict.word.value if verdict else CONFIRMED
    if not verdict and (len(timed) < len(runs) or any(r.kept.unstable for r in runs)):
        status = UNSTABLE
    whole = _interval([(r, _rival(r, contestant.name)) for r in timed], contestant.name, level)
    spread = max((paired.spread(r.control()) for r in timed), default=None)
    shapes = [_shape(contestant.name, r, ceilings, level) for r in timed]
    return {
        "kernel": contestant.kernel.digest,
        "name": contestant.name,
        "config": dict(contestant.config),
        "device": device,
        "protocol": protocol.PROTOCOL,
        "status": status,
        "reason": verdict.reason if verdict else "",
        "faster": status == CONFIRMED and paired.faster(whole, spread),
        "time_us": geometric_mean([s["time_us"] for s in shapes]),
        "vs_seed": _as_dict(_interval([(r, SEED) for r in timed], contestant.name, level)),
        "vs_fastest": _as_dict(whole),
        "level": level,
        "aa_spread": spread,
        "margin": None if spread is None else paired.margin(spread),
        "champion_at": [r.shape.label for r in runs] if champion else [],
        "roofline": geometric_mean([s["roofline"] for s in shapes if s["roofline"]]),
        "launch_bound": any(s["launch_bound"] for s in shapes),
        "shapes": shapes,
    }


def _rival(run: ShapeRun, name: str) -> str | None:
    """The fastest baseline that is not the contestant itself."""
    return next((b for b in run.baselines() if b != name), None)


def _interval(pairs: Sequence[tuple[ShapeRun, str | None]], name: str, level: float) -> paired.Interval | None:
    series = [protocol.logs(run.kept.blocks, name, other) for run, other in pairs if other is not None]
    return paired.interval(series, level) if series else None


def _shape(name: str, run: ShapeRun, ceilings: Mapping[str, float], level: float) -> dict[str, Any]:
    time, rival, facts = run.time(name), _rival(run, name), run.shape
    roofline = protocol.roofline_us(ceilings, facts.bytes_moved, facts.flops, run.dtypes)
    wall, kernel = run.clocks.get(name, (None, None))
    baselines = [
        {
            "name": b,
            "time_us": run.time(b).time_us,
            "spread_us": run.time(b).spread_us,
            **(_as_dict(run.interval(name, b, level)) or {}),
        }
        for b in run.baselines()
        if b != name
    ]
    baselines += [{"name": n, "failure": why} for n, why in run.failures.items() if n not in run.verdicts]
    return {
        "shape": facts.key,
        "label": facts.label,
        "time_us": time.time_us,
        "spread_us": time.spread_us,
        "samples": time.samples,
        "blocks": len(run.kept.blocks),
        "dropped": run.kept.dropped,
        "drop_reasons": list(run.kept.reasons),
        "clocks": dict(run.kept.clocks),
        "fastest": rival or "",
        "vs_fastest": _as_dict(run.interval(name, rival, level)) if rival else None,
        "vs_seed": _as_dict(run.interval(name, SEED, level)),
        "control": _as_dict(run.control()),
        "roofline": roofline / time.time_us if roofline else None,
        "launch_bound": protocol.launch_bound(time.time_us, ceilings),
        "outputs_judged": run.judged.get(name, 0),
        "wall_us": wall,
        "kernel_us": kernel,
        "baselines": baselines,
        "notes": list(run.notes),
    }


def _as_dict(found: paired.Interval | None) -> dict[str, float] | None:
    return None if found is None else {"ratio": found.ratio, "low": found.low, "high": found.high}


def rank(found: Finding) -> tuple[bool, bool, float]:
    """A sort key: those over all shapes first, of them the confirmed ones, then by the speed-up over the seed."""
    return is_champion(found), found["status"] != CONFIRMED, -(found["vs_seed"] or {"ratio": 0.0})["ratio"]


def is_champion(found: Mapping[str, Any]) -> bool:
    """Whether it was confirmed only at the shapes where it is the best, so that its mean is not over all of them."""
    return bool(found.get("champion_at"))


# ---------------------------------------------------------------- in words


def headline(found: Finding) -> str:
    """One line: confirmed against the fastest baseline, or why not."""
    if found["status"] == UNSTABLE:
        why = (
            ", ".join(dict.fromkeys(r for s in found["shapes"] for r in s["drop_reasons"]))
            or "no time was taken at a shape"
        )
        return (
            f"{found['name']}: unstable, more than {protocol.MAX_DROPPED:.0%} of the blocks were dropped ({why}); "
            "nothing is claimed: measure again when the GPU is cool and idle"
        )
    if found["status"] != CONFIRMED:
        return f"{found['name']}: {found['status']}: {found['reason']}"
    if found["vs_fastest"] is None:
        return f"{found['name']}: {words.time(found['time_us'])}; no baseline to compare with"
    rivals = ", ".join(dict.fromkeys(s["fastest"] for s in found["shapes"]))
    said = f"{words.interval(found['vs_fastest'])} the fastest baseline ({rivals})"
    if not found["faster"]:
        said += ": not shown to be faster"
    if found["name"] != SEED and found["vs_seed"] and rivals != SEED:
        said += f"; {words.interval(found['vs_seed'])} the seed"
    if found["launch_bound"]:
        said += "; launch-bound"
    where = f", at {' and '.join(found['champion_at'])} only" if is_champion(found) else ""
    return f"{found['name']}{where}: {said}"


def as_text(found: Finding) -> str:
    """The finding as a page of at most 100 columns where names allow."""
    lines = [headline(found)]
    for shape in found["shapes"]:
        lines += _shape_lines(found, shape)
    if found["shapes"]:
        spread = found["aa_spread"]
        lines.append(
            f"intervals at {found['level']:.4g}; A/A spread {spread:.2%}; faster needs more than "
            f"{paired.margin(spread):.2%}; confirmed on {found['device']} ({found['protocol']})"
        )
    return "\n".join(lines) + "\n"


def _shape_lines(found: Finding, shape: Mapping[str, Any]) -> list[str]:
    lines = [f"{shape['label']}"]
    own = f"  {found['name']:<18} {words.time(shape['time_us']):>9}"
    if shape["roofline"]:
        own += f"  {shape['roofline']:.1%} of the measured roofline"
    lines.append(own + ("  launch-bound" if shape["launch_bound"] else ""))
    for b in shape["baselines"]:
        if "failure" in b:
            failed = "" if b["failure"].startswith("not installed") else "failed: "
            lines.append(f"  {b['name']:<18} {failed}{' '.join(b['failure'].split())[:200]}")
        else:
            ratio = f"  {words.interval(b)}" if "ratio" in b else ""
            lines.append(f"  {b['name']:<18} {words.time(b['time_us']):>9}{ratio}")
    control = shape["control"]
    aa = f", A/A {words.interval(control)}" if control else ""
    why = f" ({', '.join(shape['drop_reasons'])})" if shape["drop_reasons"] else ""
    lines.append(
        f"  {shape['blocks']} blocks, {shape['dropped']} dropped{why}{aa}, {shape['outputs_judged']} timed outputs judged"
    )
    if shape["wall_us"] is not None:
        kernel = words.time(shape["kernel_us"]) if shape["kernel_us"] else "not given by CUPTI"
        lines.append(f"  wall {words.time(shape['wall_us'])}, kernels {kernel}")
    if shape["clocks"]:
        c = shape["clocks"]
        lines.append(
            f"  SM {c['sm_mhz']:.0f} MHz, memory {c['memory_mhz']:.0f} MHz, {c['temperature']:.0f} C, {c['power_w']:.0f} W"
            + (", power-capped" if c["power_capped"] else "")
        )
    return [*lines, *(f"  note: {n}" for n in shape["notes"])]
