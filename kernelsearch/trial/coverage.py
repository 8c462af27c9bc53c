"""What a verdict of `verify` rests on: the shapes and values that were judged, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelsearch.core.formats import BETWEEN, CLAIMS, FAILED, spell_values
from kernelsearch.core.formats import LEFT_OUT as TOO_LARGE
from kernelsearch.core.types import Verdict
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.race_look import RACES
from kernelsearch.trial.without_gpu import NOT_RIGHT, SEED_SLOW, name_optional, name_part
from kernelsearch.verify.regime_words import LARGER, PADDED, WORDS
from kernelsearch.worker.messages.jobs import JudgedCase

LEFT_OUT = {SEED_SLOW: "too slow without a GPU", NOT_RIGHT: "the task's own kernel is wrong there"}
"""The parts of a verdict's detail with what was not judged, and why."""
STRIDES = "rows that lie apart, whose strides it ignores"
AS_DRAWN = "values as get_inputs draws them"


def describe_coverage(verdict: Verdict, bench: Bench) -> dict[str, Any]:
    """What an accepting verdict at full depth rests on; made are shapes that the judge made of the timed sizes."""
    facts, skipped = bench.facts, {name for why in LEFT_OUT for name in verdict.detail.get(why, ())}
    skipped |= {failed["shape"] for failed in verdict.detail.get(FAILED, ())}
    wrong = {case for case, seed in bench.right_on.items() if not seed.accepted}
    cases = [c for c in bench.cases("full") if c not in wrong]
    judged = [c for c in cases if not {c.shape, name_optional(c), name_part(c)} & skipped]
    right = [c for c, seed in bench.right_on.items() if seed.accepted and c.kind in ("even", "drawn")]
    judged += [c for c in right if c not in judged]
    keys = dict.fromkeys(c.shape for c in judged)
    on_gpu = verdict.referee.mode == "gpu"
    timed = [s.label for s in facts.shapes if on_gpu or s.key in keys]
    known = {s.key for s in (*facts.shapes, *facts.test_shapes)}
    made = [bench.labels.get(key, key) for key in keys if key not in known]
    tested = {s.label for s in facts.test_shapes}
    return {
        "shapes": [s.label for s in facts.test_shapes if s.key in keys],
        "timed": timed,
        "too large": [s.label for s in facts.shapes if s.label not in {*timed, *tested} and s.key not in skipped],
        "made": made,
        "beyond": [] if made or timed else [s.label for s in facts.shapes if s.label not in tested],
        "few programs": [bench.labels.get(key, key) for key in dict.fromkeys(c.shape for c in judged if c.sampled)],
        "regimes": _list_kinds(bench, judged),
        "moved elements": sum(c.probe is not None for c in judged),
        "rows apart": any(c.padded == PADDED for c in judged),
        "strides": [c.padded for c in judged if c.padded and c.padded != PADDED],
    }


def _list_kinds(bench: Bench, judged: Sequence[JudgedCase]) -> list[str]:
    """The regimes, without those that change no input; none where all values are as get_inputs draws them.

    DOMAIN may fix all, and whole numbers mostly stay.
    """
    plain = [c for c in judged if c.probe is None and not c.padded and not c.scalars]
    here = {c.regime: c for c in plain if c.shape == plain[0].shape}
    inputs = bench.inputs(tuple(here.values()))
    same = {regime for i, regime in enumerate(here) if inputs[i] in inputs[:i]}
    if here.keys() - same <= {plain[0].regime, "own"}:
        return []
    return [regime for regime in dict.fromkeys(c.regime for c in judged) if regime not in same]


def format_coverage(verdict: Verdict) -> str:
    """What was judged and what was not, in a line; empty for a verdict without it."""
    judged: Mapping[str, Any] = verdict.detail.get("judged", {})
    if not judged:
        return ""
    parts = [_count(judged["shapes"], "test shape"), _count(judged["timed"], "timed shape")]
    regimes = judged["regimes"]
    parts.append(
        f"{len(regimes)} kinds of values ({', '.join(WORDS.get(r, r) for r in regimes)})" if regimes else AS_DRAWN
    )
    if judged["moved elements"]:
        parts.append(f"{judged['moved elements']} single elements moved")
    parts += [PADDED] * judged["rows apart"]
    parts.append(_count(judged.get("strides", ()), "larger stride"))
    parts += [f"{n} of {spell_values(values)}" for n, values in verdict.detail.get(CLAIMS, {}).items() if n != BETWEEN]
    if made := judged["made"]:
        few = len({*made} & {*judged["few programs"]})
        parts.append(f"{_count(made, 'made shape')}" + (f", {few} by a few of their rows" if few else ""))
    races: Mapping[str, Any] = verdict.detail.get(RACES, {})
    if seen := races.get("shapes"):
        parts.append(f"races in the evaluator at {_count(seen, 'shape')}")
    left_out = {why: _join_names(verdict.detail[why]) for why in LEFT_OUT if why in verdict.detail}
    ignored = PADDED if judged.get("strides") else STRIDES
    missing = [f"{shapes} ({LEFT_OUT[why]})".replace(PADDED, ignored) for why, shapes in left_out.items()]
    if beyond := judged.get("beyond"):
        missing.append(
            f"sizes of {beyond[0]} (none beyond its test shapes that the task takes and that can be judged here)"
        )
    if large := judged.get("too large"):
        missing.append(
            f"{_count(large, 'timed shape')}, too large or too many to run without a GPU but for sizes made of it"
        )
    missing += [note.removesuffix(f": {TOO_LARGE}") for note in verdict.detail.get("notes", ()) if TOO_LARGE in note]
    told = {"lines": "which no judged case runs", "lines left out": "which a constexpr leaves out in every judged case"}
    missing[:0] = [f"{judged[name]}, {why}" for name, why in told.items() if name in judged]
    if unseen := races.get("unseen"):
        missing.append(f"races in the evaluator ({'; '.join(unseen)})")
    if verdict.referee.mode == "interpreter":
        missing.append("what only a GPU shows (--explain lists it)")
    return f"judged: {'; '.join(filter(None, parts))}. Not judged: {'; '.join(missing) or 'nothing of these'}"


def _join_names(names: Sequence[str]) -> str:
    """The names of what was left out, those of strides as one; of several inputs' together each is there alone."""
    strides = [n.removeprefix(LARGER) for n in names if n.startswith(LARGER) and " and " not in n]
    others = [n for n in names if not n.startswith(LARGER)]
    return ", ".join([*others, *([f"larger {', '.join(strides)}"] if strides else [])])


def _count(labels: Sequence[str], what: str) -> str:
    if not labels:
        return ""
    more = ", ..." if len(labels) > 1 else ""
    return f"{len(labels)} {what}{'s' * bool(more)} ({labels[0]}{more})"
