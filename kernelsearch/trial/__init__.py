"""Evaluates candidates: gate, bind, compile, judge, time or estimate; the first refusal ends it."""

from kernelsearch.trial.bound_candidate import has_atomics
from kernelsearch.trial.evaluation import Evaluation
from kernelsearch.trial.rejection import Rejection

__all__ = ["Evaluation", "Rejection", "has_atomics"]
