"""Measurements with given times and accepted outcomes, for tests of what is made of them."""

from kernelsearch.core.types import Evidence, Measurement, Outcome, ShapeTime, Verdict, Word


def measure(*times_us, evidence=Evidence.MEASURED, details=(), abandoned=False, device="gpu"):
    """The measurement of timed:0, timed:1 and so on; details are given for all or none of them."""
    own = details or ({},) * len(times_us)
    times = tuple(ShapeTime(f"timed:{i}", us, detail=d) for i, (us, d) in enumerate(zip(times_us, own, strict=True)))
    return Measurement(evidence, device, "search-1", times, abandoned)


def accept(*times_us, hints=(), seconds=0.0, **measured):
    """The outcome of a candidate that was accepted and measured so."""
    return Outcome(Verdict(Word.ACCEPT, "judge"), measure(*times_us, **measured), hints, seconds)
