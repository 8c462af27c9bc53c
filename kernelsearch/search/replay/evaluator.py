"""A recorded space as an evaluator: the time of a config when it was measured, or how it failed."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

from kernelsearch.core.types import Config, Evidence, Measurement, Outcome, ShapeTime, Verdict, Word, config_key
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.recorded_space import RecordedSpace, SpaceRow
from kernelsearch.trial.evaluator import Evaluator

PROTOCOL = "recorded"
WORDS = {"compile": Word.COMPILE, "runtime": Word.CRASH, "correctness": Word.WRONG, "timeout": Word.TIMEOUT}


@dataclass(frozen=True)
class RecordedEvaluator(Evaluator):
    """Answers from the rows of a recorded space, for any kernel.

    With a noise seed the time is the median of as many samples, drawn from the row's own with replacement, as another
    measurement could have given. It is a function of (noise seed, config), as if measured once.
    """

    space: RecordedSpace
    noise_seed: int | None = None

    def evaluate(self, kernel: Kernel | None, config: Config, incumbent: Measurement | None = None) -> Outcome:
        row = self.space.by_key[config_key({name: config[name] for name in self.space.parameters})]
        if row.failure is not None:
            return Outcome(Verdict(WORDS[row.failure], "recorded", f"recorded as {row.failure}"))
        times = (ShapeTime(PROTOCOL, self._time_us(row), samples=len(row.samples_us)),)
        measurement = Measurement(Evidence.MEASURED, self.space.device, PROTOCOL, times)
        return Outcome(Verdict(Word.ACCEPT, "recorded"), measurement)

    def _time_us(self, row: SpaceRow) -> float:
        if self.noise_seed is None or not row.samples_us:
            return row.time_us
        chance = random.Random(f"{self.noise_seed}/{config_key(row.config)}")
        return statistics.median(chance.choices(row.samples_us, k=len(row.samples_us)))
