"""Mean and variance in one pass: two loops over a row become one that keeps moments, by tile or by lane."""

from __future__ import annotations

from dataclasses import replace

from kernelsearch.propose.analysis.moments import find_moments
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit

RATIONALES = {
    False: "The row is read once for mean and variance, by merging the moments of its tiles.",
    True: "The row is read once for mean and variance; each lane keeps moments, which are merged after the loop.",
}


class FusedPasses(Edit):
    summary = "mean and variance in one pass, merged tile by tile or lane by lane"
    refusal = "no loop for a mean is followed by a loop for the squares of what is left"

    def change(self, view: View) -> Changes:
        for lanes, why in RATIONALES.items():
            moments = next(find_moments(replace(view)), None)
            if moments is not None and moments.lanes is not lanes:
                yield moments.rewrite(lanes, why)
