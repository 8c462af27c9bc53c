"""TPE: Optuna's sampler alone, over the seed's space; no structure is ever changed.

Tree-structured Parzen estimator (Bergstra et al., 2011) in Optuna's multivariate form, after six random configs. The
tuner that most projects would take; `bayes` is the same with this project's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.search.contract import Start, TunerAlone


@dataclass(frozen=True)
class Params:
    """Nothing to choose."""


class Strategy(TunerAlone):
    ordered = False

    def __init__(self, params: Params, start: Start) -> None:
        super().__init__(start, "tpe")
