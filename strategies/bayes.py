"""Bayes: the tuner alone, over the seed's space; no structure is ever changed.

Bayesian optimisation with a Gaussian process (`kernelsearch/tune/surrogate.py`), the tuner that every other strategy
uses for numbers too. The comparison shows what rewriting adds.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.search.contract import Start, TunerAlone


@dataclass(frozen=True)
class Params:
    """Nothing to choose."""


class Strategy(TunerAlone):
    def __init__(self, params: Params, start: Start) -> None:
        super().__init__(start)
