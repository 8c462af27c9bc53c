"""Evaluates candidates: gate, bind, compile, judge, time or estimate; the first refusal ends it."""

from kernelsearch.trial.evaluation import Evaluation
from kernelsearch.trial.rejection import Rejection
from kernelsearch.trial.with_gpu import has_atomics

__all__ = ["Evaluation", "Rejection", "has_atomics"]
