"""Which candidate runs at which shape, and its gain: never more than its parts, never the seed against itself."""

import pytest

from kernelsearch.measure.timing import by_shape
from kernelsearch.report import findings as said


def entry(shape, time, seed=100.0, others=(("compile", 110.0),), width=0.002):
    """What a finding says of one shape: this candidate, the seed and others, each interval as wide as `width` says."""
    timed = [("seed", seed), *others]
    baselines = [
        {"name": n, "time_us": t, "spread_us": 0.1, **interval(t / time, width)}
        for n, t in sorted(timed, key=lambda b: b[1])
    ]
    fastest = baselines[0]
    return {"shape": shape, "label": f"n={shape[-1]}", "time_us": time, "spread_us": 0.1, "clocks": {},
            "control": interval(1.0, width), "blocks": 100, "dropped": 0, "fastest": fastest["name"],
            "vs_fastest": interval(fastest["time_us"] / time, width), "vs_seed": interval(seed / time, width),
            "baselines": baselines}  # fmt: skip


def interval(ratio, width):
    return {"ratio": ratio, "low": ratio * (1 - width), "high": ratio * (1 + width)}


def finding(name, times, champion=False, status="confirmed", **more):
    shapes = [entry(f"timed:{i}", t, **more) for i, t in times.items()]
    return {"name": name, "kernel": name * 4, "config": {"BLOCK": 1}, "device": "H100", "protocol": "confirmed-1",
            "status": status, "level": 0.999, "aa_spread": 0.002, "shapes": shapes,
            "champion_at": [s["label"] for s in shapes] if champion else []}  # fmt: skip


def names(findings):
    return {shape: f["name"] for shape, f in by_shape.choose_findings(findings).items()}


def test_each_shape_has_its_best_and_the_seed_where_nothing_is_faster():
    found = [finding("a", {0: 90.0, 1: 101.0, 2: 99.0}), finding("b", {2: 80.0}, champion=True)]
    assert names(found) == {"timed:0": "a", "timed:1": "seed", "timed:2": "b"}


def test_the_best_overall_runs_where_others_are_within_the_least_gain_of_it():
    found = [finding("a", {0: 90.0, 1: 90.0}), finding("b", {0: 89.5, 1: 95.0})]
    assert names(found) == {"timed:0": "a", "timed:1": "a"}
    assert names([finding("a", {0: 90.0, 1: 90.0}), finding("b", {0: 88.0, 1: 99.0})]) == {
        "timed:0": "b",
        "timed:1": "a",
    }


def test_a_kernel_within_the_least_gain_of_the_best_still_yields_to_the_seed():
    assert names([finding("a", {0: 60.0, 1: 100.4}), finding("b", {0: 99.0, 1: 98.8})]) == {
        "timed:0": "a",
        "timed:1": "b",
    }
    assert names([finding("a", {0: 60.0, 1: 100.4}), finding("b", {0: 99.0, 1: 99.8})])["timed:1"] == "seed"
    assert names([finding("a", {0: 60.0, 1: 100.4})]) == {"timed:0": "a", "timed:1": "seed"}


def test_what_was_not_confirmed_is_not_chosen():
    assert names([finding("a", {0: 90.0}), finding("b", {0: 50.0}, status="unstable")]) == {"timed:0": "a"}
    assert (
        by_shape.choose_findings([finding("b", {0: 50.0}, status="crash")]) == {} and by_shape.compute_gain({}) is None
    )


def test_the_gain_is_the_mean_of_its_parts_with_their_ends():
    found = [finding("a", {0: 80.0, 1: 100.0}), finding("b", {1: 50.0}, champion=True)]
    gained = by_shape.compute_gain(by_shape.choose_findings(found))
    assert gained["vs_fastest"]["ratio"] == pytest.approx((100 / 80 * 100 / 50) ** 0.5)
    assert gained["vs_fastest"]["low"] == pytest.approx(gained["vs_fastest"]["ratio"] * 0.998)
    assert gained["faster"] and gained["margin"] == 0.01


def test_the_seed_gains_nothing_over_itself_and_loses_to_a_faster_baseline():
    slower = finding("a", {0: 101.0, 1: 80.0})
    gained = by_shape.compute_gain(by_shape.choose_findings([slower]))
    assert [s["name"] for s in gained["shapes"]] == ["seed", "a"] and gained["shapes"][0]["fastest"] == "seed"
    assert gained["shapes"][0]["vs_fastest"] == {"ratio": 1.0, "low": 1.0, "high": 1.0}
    beaten = by_shape.compute_gain(
        by_shape.choose_findings([finding("a", {0: 101.0, 1: 80.0}, others=(("compile", 70.0),))])
    )
    over = beaten["shapes"][0]["vs_fastest"]
    assert beaten["shapes"][0]["fastest"] == "compile" and over["ratio"] == pytest.approx(0.7)
    assert over["low"] < 0.7 * 0.997 and over["high"] > 0.7 * 1.003  # wider than either interval that it follows from
    assert not beaten["faster"]


def test_no_gain_is_claimed_within_the_margin():
    found = finding("a", {0: 99.5, 1: 99.5})
    assert not by_shape.compute_gain(by_shape.choose_findings([found]))["faster"]
    noisy = finding("a", {0: 90.0, 1: 90.0}) | {"aa_spread": 0.2}
    assert not by_shape.compute_gain(by_shape.choose_findings([noisy]))["faster"]


def test_one_line_says_who_runs_where():
    found = [finding("a", {0: 90.0, 1: 101.0, 2: 99.0}), finding("b", {2: 80.0}, champion=True)]
    line = said.format_gain_by_shape(by_shape.compute_gain(by_shape.choose_findings(found)))
    assert line.startswith("by shape: 1.116x [1.114, 1.117] the fastest baseline (seed); ") and "\n" not in line
    assert line.endswith("a at n=0, the seed at n=1, b at n=2")
    assert (
        said.format_gain_by_shape(
            by_shape.compute_gain(by_shape.choose_findings([*found[:1], finding("c", {0: 95.0})]))
        )
        != ""
    )
    assert (
        said.format_gain_by_shape(by_shape.compute_gain(by_shape.choose_findings([finding("a", {0: 90.0, 1: 90.0})])))
        == ""
        == said.format_gain_by_shape(None)
    )
