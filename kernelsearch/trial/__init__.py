"""From a candidate to its outcome: gate, bind, compile, judge, time or estimate; the first refusal ends it."""

from kernelsearch.trial.evaluation import Evaluation
from kernelsearch.trial.gpu import ABANDON_RATIO, has_atomics
from kernelsearch.trial.rejected import Rejected

__all__ = ["ABANDON_RATIO", "Evaluation", "Rejected", "has_atomics"]
