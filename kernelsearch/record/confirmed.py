"""Confirmed results as rows: what the protocol found of a candidate, of each baseline, and of the device itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernelsearch.core.types import Evidence, Measurement, ShapeTime, config_key
from kernelsearch.record.rows import Row, dumps, now

CONFIRMED = "confirmed"


def measurement_of(finding: Mapping[str, Any]) -> Measurement:
    """The times of a finding (see `report.confirmed.finding`), `confirmed` only if nothing was wrong with them."""
    evidence = Evidence.CONFIRMED if finding["status"] == CONFIRMED else Evidence.MEASURED
    times = tuple(
        ShapeTime(s["shape"], s["time_us"], s["spread_us"], s["samples"], "", _detail(finding, s))
        for s in finding["shapes"]
    )
    return Measurement(evidence, finding["device"], finding["protocol"], times)


def _detail(finding: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("vs_seed", "vs_fastest", "fastest", "control", "blocks", "dropped", "clocks", "roofline", "launch_bound")
    return {"status": finding["status"], **{name: shape[name] for name in kept}}


def confirmation_row(candidate: str, finding: Mapping[str, Any], versions: Mapping[str, str]) -> Row:
    seed, fastest = finding["vs_seed"] or {}, finding["vs_fastest"] or {}
    return dict(
        candidate=candidate,
        device=finding["device"],
        protocol=finding["protocol"],
        versions=config_key(versions),
        status=finding["status"],
        faster=int(finding["faster"]),
        time_us=finding["time_us"],
        vs_seed=seed.get("ratio"),
        vs_seed_low=seed.get("low"),
        vs_seed_high=seed.get("high"),
        vs_fastest=fastest.get("ratio"),
        vs_fastest_low=fastest.get("low"),
        vs_fastest_high=fastest.get("high"),
        fastest=", ".join(dict.fromkeys(s["fastest"] for s in finding["shapes"])),
        level=finding["level"],
        aa_spread=finding["aa_spread"],
        roofline=finding["roofline"],
        detail=dumps(dict(finding)),
        measured=now(),
    )


def baseline_rows(task: str, finding: Mapping[str, Any], versions: Mapping[str, str]) -> list[Row]:
    return [
        dict(
            task=task,
            shape=shape["shape"],
            device=finding["device"],
            name=b["name"],
            protocol=finding["protocol"],
            versions=config_key(versions),
            time_us=b.get("time_us"),
            spread_us=b.get("spread_us"),
            failure=b.get("failure"),
            measured=now(),
        )
        for shape in finding["shapes"]
        for b in shape["baselines"]
    ]


def ceiling_rows(device: str, values: Mapping[str, float], versions: Mapping[str, str]) -> list[Row]:
    return [
        dict(device=device, name=n, value=v, versions=config_key(versions), measured=now()) for n, v in values.items()
    ]


def finding_of(row: Row) -> dict[str, Any]:
    """A stored confirmation: the finding as it was, with its candidate's digest and the time it was made."""
    return {
        **json.loads(row["detail"]),
        "candidate": row["candidate"],
        "measured": row["measured"],
        "versions": json.loads(row["versions"]),
    }
