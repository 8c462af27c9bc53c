"""From a candidate to its outcome: gate, bind, compile, judge, time or estimate; the first refusal ends it."""

from kernelsearch.trial.evaluation import Evaluation
from kernelsearch.trial.gpu import has_atomics
from kernelsearch.trial.rejected import Rejected

__all__ = ["Evaluation", "Rejected", "has_atomics"]
