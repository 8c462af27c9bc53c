"""A finding: the result of the confirmed protocol for one kernel, as plain data and in words.

Speed-ups are the other's time over this kernel's. The headline is against the fastest baseline of each shape; over
several shapes it is the geometric mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelsearch.core import formats
from kernelsearch.measure.timing import confirm_rules as protocol
from kernelsearch.measure.timing import paired_statistics as paired
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.record.confirmation_rows import CONFIRMED, count_gain, fastest_names
from kernelsearch.record.rows import geometric_mean

if TYPE_CHECKING:  # reading a database needs no torch
    from kernelsearch.trial.confirmation import ConfirmedShape, Contestant

UNSTABLE = "unstable"

Finding = dict[str, Any]


def build_finding(
    contestant: Contestant,
    runs: Sequence[ConfirmedShape],
    device: str,
    ceilings: Mapping[str, float],
    level: float = paired.LEVEL,
    champion: bool = False,
    seed_configs: int = 0,
) -> Finding:
    """The finding about a contestant after these runs; level is the confidence level of its intervals.

    champion means that the runs are only those shapes at which it is the search's best; seed_configs is how many
    configs of its own list the seed was tuned over. In the finding, margin is what a speed-up must exceed to count, and
    status is `confirmed`, `unstable` (too many blocks were dropped at a shape), or the verdict's word that ended it.
    """
    verdict = next((r.verdicts[contestant.name] for r in runs if contestant.name in r.verdicts), None)
    timed = [r for r in runs if r.time(contestant.name) is not None]
    status = verdict.word.value if verdict else CONFIRMED
    if not verdict and (len(timed) < len(runs) or any(r.kept.unstable for r in runs)):
        status = UNSTABLE
    whole = _interval([(r, _rival(r, contestant.name)) for r in timed], contestant.name, level)
    spread = max((paired.spread_of(r.control()) for r in timed), default=None)
    shapes = [_shape(contestant.name, r, ceilings, level) for r in timed]
    return {
        "kernel": contestant.kernel.digest,
        "name": contestant.name,
        "config": dict(contestant.config),
        "device": device,
        "protocol": protocol.PROTOCOL,
        "status": status,
        "reason": verdict.reason if verdict else "",
        "faster": status == CONFIRMED and spread is not None and paired.is_faster(whole, spread),
        "time_us": geometric_mean([s["time_us"] for s in shapes]),
        "vs_seed": _as_dict(_interval([(r, SEED) for r in timed], contestant.name, level)),
        "vs_fastest": _as_dict(whole),
        "level": level,
        "aa_spread": spread,
        "margin": None if spread is None else paired.margin_of(spread),
        "seed_configs": seed_configs,
        "champion_at": [r.shape.label for r in runs] if champion else [],
        "roofline": geometric_mean([s["roofline"] for s in shapes if s["roofline"]]),
        "launch_bound": any(s["launch_bound"] for s in shapes),
        "shapes": shapes,
    }


def _rival(run: ConfirmedShape, name: str) -> str | None:
    """The fastest baseline that is not the contestant itself."""
    return next((b for b in run.baselines() if b != name), None)


def _interval(pairs: Sequence[tuple[ConfirmedShape, str | None]], name: str, level: float) -> paired.Interval | None:
    series = [protocol.log_ratios_of(run.kept.blocks, name, other) for run, other in pairs if other is not None]
    return paired.bootstrap_interval(series, level) if series else None


def _shape(name: str, run: ConfirmedShape, ceilings: Mapping[str, float], level: float) -> dict[str, Any]:
    time, rival, facts = run.time(name), _rival(run, name), run.shape
    assert time is not None  # only shapes at which it was timed have a row
    roofline = protocol.compute_roofline_us(ceilings, facts.bytes_moved, facts.flops, run.dtypes)
    wall, kernel = run.clocks.get(name, (None, None))
    baselines = [
        {
            "name": b,
            "time_us": own.time_us,
            "spread_us": own.spread_us,
            "peak_bytes": run.peaks.get(b),
            **(_as_dict(run.interval(name, b, level)) or {}),
        }
        for b in run.baselines()
        if b != name and (own := run.time(b))
    ]
    for refused, why in run.refused.items():  # of another name than those of a rival, so that nobody takes it for one
        if own := run.time(refused):
            ratio = (_as_dict(run.interval(name, refused, level)) or {}).get("ratio")
            failure = f"takes {formats.format_time(own.time_us)}, but its values are refused: {why}"
            baselines.append({"name": refused, "failure": failure, "refused_ratio": ratio})
    baselines += [{"name": n, "failure": why} for n, why in run.failures.items() if n not in run.verdicts]
    return {
        "shape": facts.key,
        "label": facts.label,
        "time_us": time.time_us,
        "spread_us": time.spread_us,
        "peak_bytes": run.peaks.get(name),
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
        "launch_bound": protocol.is_launch_bound(time.time_us, ceilings),
        "outputs_judged": run.judged.get(name, 0),
        "wall_us": wall,
        "kernel_us": kernel,
        "baselines": baselines,
        "notes": list(run.notes),
    }


def _as_dict(interval: paired.Interval | None) -> dict[str, float] | None:
    return None if interval is None else {"ratio": interval.ratio, "low": interval.low, "high": interval.high}


def rank_key(finding: Finding) -> tuple[bool, bool, float]:
    """A sort key: findings over all shapes first, then confirmed ones, then by the speed-up over the seed."""
    return is_champion(finding), finding["status"] != CONFIRMED, -count_gain(finding)


def is_champion(finding: Mapping[str, Any]) -> bool:
    """True if it was confirmed only at the shapes where it is the best, so that its mean is not over all shapes."""
    return bool(finding.get("champion_at"))


# ---------------------------------------------------------------- in words


def format_headline(finding: Finding) -> str:
    """One line: the gain over the fastest baseline, or why there is none."""
    name = finding["name"]
    if finding["status"] == UNSTABLE:
        reasons = dict.fromkeys(reason for shape in finding["shapes"] for reason in shape["drop_reasons"])
        return (
            f"{name}: unstable, more than {protocol.MAX_DROPPED:.0%} of the blocks were dropped "
            f"({', '.join(reasons) or 'no time was taken at a shape'}); nothing is claimed: measure again when the GPU "
            "is cool and idle"
        )
    if finding["status"] != CONFIRMED:
        return f"{name}: {finding['status']}: {finding['reason']}"
    if finding["vs_fastest"] is None:
        return f"{name}: {formats.format_time(finding['time_us'])}; no baseline to compare with"
    where = f", at {' and '.join(finding['champion_at'])} only" if is_champion(finding) else ""
    return f"{name}{where}: {describe_gain(finding)}{'; launch-bound' if finding['launch_bound'] else ''}"


def describe_gain(finding: Mapping[str, Any]) -> str:
    """`1.03x [1.02, 1.04] the fastest baseline (compile, seed)`, and the gain over the seed where that is another.

    It takes a finding, or what several kernels gain by shape (`measure.timing.by_shape.compute_gain`).
    """
    rivals = fastest_names(finding)
    seed = formats.format_seed(finding.get("seed_configs", 0))
    named = ", ".join(seed if name == SEED and seed != "the seed" else name for name in rivals.split(", "))
    text = f"{formats.format_interval(finding['vs_fastest'])} the fastest baseline ({named})"
    if not finding["faster"]:
        text += ": not shown to be faster"
    if finding.get("name") != SEED and finding["vs_seed"] and rivals != SEED:
        text += f"; {formats.format_interval(finding['vs_seed'])} {seed}"
    return text


def format_gain_by_shape(gain: Mapping[str, Any] | None) -> str:
    """What the best candidate of each shape gains together (`measure.timing.by_shape.compute_gain`), in one line.

    `by shape: 1.03x [1.02, 1.04] the fastest baseline (...); who runs where`. Empty without a gain, and where one
    candidate runs at all shapes: its own headline says it.
    """
    if gain is None or len({(s["name"], str(s["config"])) for s in gain["shapes"]}) == 1:
        return ""
    labels: dict[str, list[str]] = {}
    for shape in gain["shapes"]:
        labels.setdefault("the seed" if shape["name"] == SEED else shape["name"], []).append(shape["label"])
    return f"by shape: {describe_gain(gain)}; " + ", ".join(f"{n} at {' and '.join(at)}" for n, at in labels.items())


def format_table(gain: Mapping[str, Any], finding: Finding) -> list[str]:
    """What several kernels gain that share the shapes: the wins, the mean, the worst shape, then shape by shape.

    finding is one of theirs. Of many shapes the worst, the middle and the best ones are shown.
    """
    shapes = sorted(gain["shapes"], key=lambda s: s["vs_fastest"]["ratio"])
    wins = sum(s["vs_fastest"]["low"] > 1.0 + gain["margin"] for s in shapes)
    worst = f"{formats.format_interval(shapes[0]['vs_fastest'])} at {shapes[0]['label']}"
    rows = [
        f"  {s['label']}: {formats.format_time(s['time_us'])} by {s['name']}, "
        f"{formats.format_interval(s['vs_fastest'])} {s['fastest']}"
        for s in shapes
    ]
    return [
        f"table: faster at {wins} of {len(shapes)} shapes; {describe_gain(gain)} (geometric mean)",
        f"  worst: {worst}",
        *formats.shorten_rows(rows),
        _say_terms(finding),
    ]


def as_text(finding: Finding) -> str:
    """The finding as a page of at most 100 columns where names allow."""
    lines = [format_headline(finding)]
    for shape in finding["shapes"]:
        lines += _shape_lines(finding["name"], shape)
    if finding["shapes"]:
        lines.append(_say_terms(finding))
    return "\n".join(lines) + "\n"


def _say_terms(finding: Finding) -> str:
    spread = finding["aa_spread"]
    terms = f"intervals at {finding['level']:.4g}; A/A spread {spread:.2%}; faster needs more than"
    return f"{terms} {paired.margin_of(spread):.2%}; confirmed on {finding['device']} ({finding['protocol']})"


def _describe_cost(timed: Mapping[str, Any]) -> str:
    """A time, and the peak of memory where it was measured."""
    time, peak = formats.format_time(timed["time_us"]), timed.get("peak_bytes")
    return f"{time:>9}" + (f" {formats.format_bytes(peak):>9} peak" if peak is not None else "")


def _shape_lines(name: str, shape: Mapping[str, Any]) -> list[str]:
    roofline = f"  {shape['roofline']:.1%} of the measured roofline" if shape["roofline"] else ""
    launch_bound = "  launch-bound" if shape["launch_bound"] else ""
    lines = [shape["label"], f"  {name:<18} {_describe_cost(shape)}{roofline}{launch_bound}"]
    for b in shape["baselines"]:
        if "failure" in b:
            failed = "" if "refused_ratio" in b or b["failure"].startswith("not installed") else "failed: "
            lines.append(f"  {b['name']:<18} {failed}{' '.join(b['failure'].split())[:200]}")
        else:
            ratio = f"  {formats.format_interval(b)}" if "ratio" in b else ""
            lines.append(f"  {b['name']:<18} {_describe_cost(b)}{ratio}")
    why = f" ({', '.join(shape['drop_reasons'])})" if shape["drop_reasons"] else ""
    control = f", A/A {formats.format_interval(shape['control'])}" if shape["control"] else ""
    judged = f"{shape['outputs_judged']} timed outputs judged"
    lines.append(f"  {shape['blocks']} blocks, {shape['dropped']} dropped{why}{control}, {judged}")
    if shape["wall_us"] is not None:
        kernel = formats.format_time(shape["kernel_us"]) if shape["kernel_us"] else "not given by CUPTI"
        lines.append(f"  wall {formats.format_time(shape['wall_us'])}, kernels {kernel}")
    if c := shape["clocks"]:
        capped = ", power-capped" if c["power_capped"] else ""
        clocks = f"SM {c['sm_mhz']:.0f} MHz, memory {c['memory_mhz']:.0f} MHz"
        lines.append(f"  {clocks}, {c['temperature']:.0f} C, {c['power_w']:.0f} W{capped}")
    return [*lines, *(f"  note: {note}" for note in shape["notes"])]
