"""Confirmed results as rows: the finding about a candidate, the times of baselines, the ceilings of a device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernelsearch.core.types import Evidence, Measurement, ShapeTime, config_key
from kernelsearch.record.rows import Row, dump_json, now, score_times

CONFIRMED = Evidence.CONFIRMED.value

_DETAIL = ("vs_seed", "vs_fastest", "fastest", "control", "blocks", "dropped", "clocks", "roofline", "launch_bound")


def measurement_of(finding: Mapping[str, Any]) -> Measurement:
    """The times of a finding (see `report.findings.build_finding`), `confirmed` only if the finding's status is."""
    evidence = Evidence.CONFIRMED if finding["status"] == CONFIRMED else Evidence.MEASURED
    times = []
    for shape in finding["shapes"]:
        detail = {"status": finding["status"], **{name: shape[name] for name in _DETAIL}}
        times.append(ShapeTime(shape["shape"], shape["time_us"], shape["spread_us"], shape["samples"], "", detail))
    return Measurement(evidence, finding["device"], finding["protocol"], tuple(times))


def fastest_names(finding: Mapping[str, Any]) -> str:
    """The names of the fastest baselines over a finding's shapes, each once: `compile, eager`."""
    return ", ".join(dict.fromkeys(shape["fastest"] for shape in finding["shapes"]))


def count_gain(finding: Mapping[str, Any]) -> float:
    """A finding's gain over the seed, which runs at those of several shapes where it is faster (`score_times`)."""
    ratios = {shape["shape"]: 1 / shape["vs_seed"]["ratio"] for shape in finding["shapes"] if shape["vs_seed"]}
    return 1 / (score_times(ratios, dict.fromkeys(ratios, 1.0)) or 1.0)


def interval_columns(name: str, interval: Mapping[str, float] | None) -> dict[str, float | None]:
    """A speed-up with its interval as three columns: NAME, NAME_low and NAME_high."""
    interval = interval or {}
    return {name: interval.get("ratio"), f"{name}_low": interval.get("low"), f"{name}_high": interval.get("high")}


def confirmation_row(candidate: str, finding: Mapping[str, Any], versions: Mapping[str, str]) -> Row:
    plain = ("device", "protocol", "status", "time_us", "level", "aa_spread", "roofline")
    return dict(
        **{name: finding[name] for name in plain},
        **interval_columns("vs_seed", finding["vs_seed"]),
        **interval_columns("vs_fastest", finding["vs_fastest"]),
        candidate=candidate,
        versions=config_key(versions),
        faster=int(finding["faster"]),
        fastest=fastest_names(finding),
        detail=dump_json(dict(finding)),
        measured=now(),
    )


def finding_of(row: Row) -> dict[str, Any]:
    """A stored confirmation: the finding as it was, with its candidate's digest and the time when it was made."""
    own = {"candidate": row["candidate"], "measured": row["measured"], "versions": json.loads(row["versions"])}
    return json.loads(row["detail"]) | own


def baseline_row(task: str, shape: str, where: Mapping[str, str], baseline: Mapping[str, Any]) -> Row:
    """A baseline's time at one shape. where: device, protocol and versions (as JSON)."""
    times = {name: baseline.get(name) for name in ("time_us", "spread_us", "failure")}
    return dict(where, task=task, shape=shape, name=baseline["name"], measured=now(), **times)


def baseline_rows(task: str, finding: Mapping[str, Any], versions: Mapping[str, str]) -> list[Row]:
    where = {"device": finding["device"], "protocol": finding["protocol"], "versions": config_key(versions)}
    return [baseline_row(task, s["shape"], where, b) for s in finding["shapes"] for b in s["baselines"]]
