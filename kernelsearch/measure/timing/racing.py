"""Decides when a candidate loses to the incumbent on the shapes measured so far, and needs no more of them.

This is Wilcoxon's signed-rank test (1945) over the shapes' log ratios, one-sided, as in Optuna's WilcoxonPruner: p
below 0.1, and the mean ratio above 1. It needs four shapes (with three the least p is 0.125); with fewer, a candidate
is given up at the first shape where it takes far longer than the incumbent. The rule for each number of shapes comes
from simulation: studies/strategies/findings.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

LEAST = 4
"""The least number of shapes for the test."""
P = 0.1
FAR = 2.0
"""With fewer shapes, a candidate with this many times the incumbent's time at a shape is not sampled further."""


def is_tested(shapes: int) -> bool:
    """Whether the test is used for this number of timed shapes."""
    return shapes >= LEAST


def is_faster(times_us: Mapping[str, float], rival_us: Mapping[str, float]) -> bool:
    """Whether these times (us by shape) beat the rival's in the geometric mean over the rival's shapes."""
    return all(shape in times_us for shape in rival_us) and math.fsum(_log_ratios(times_us, rival_us)) < 0.0


def is_losing(times_us: Mapping[str, float], rival_us: Mapping[str, float]) -> bool:
    """Whether these times (microseconds by shape) already lose to the rival's at the same shapes."""
    ratios = _log_ratios(times_us, rival_us)
    if len(ratios) < LEAST or sum(ratios) <= 0.0:
        return False
    from scipy.stats import wilcoxon  # imported only by processes that race

    return bool(wilcoxon(ratios, alternative="greater", zero_method="zsplit").pvalue < P)


def is_hopeless(times_us: Mapping[str, float], rival_us: Mapping[str, float], shapes: int) -> bool:
    """Whether a candidate with these times is given up; shapes is the number of the task's timed shapes."""
    if is_tested(shapes):
        return is_losing(times_us, rival_us)
    return any(us > FAR * rival_us.get(shape, math.inf) for shape, us in times_us.items())


def _log_ratios(times_us: Mapping[str, float], rival_us: Mapping[str, float]) -> list[float]:
    return [math.log(us / rival_us[shape]) for shape, us in times_us.items() if shape in rival_us]
