"""The static model's error, where its estimates could be compared with measured times, to show beside an estimate.

The figures come from `fitted.py`, which the study that fits the model writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.measure.static_model import fitted as model


@dataclass(frozen=True)
class KnownError:
    """The model's error over recorded sets of candidates.

    spearman is the rank correlation and ratio the median of estimated over measured time, each of the worst and the
    best set; median is the middle set's correlation. regret is the best of the ten candidates that the model ranks
    first over the best one there is, median and worst. fitted would say that the constants were fitted to the same
    candidates.
    """

    sets: int = model.SPACES
    device: str = model.DEVICE
    spearman: tuple[float, float] = (model.SPEARMAN[0], model.SPEARMAN[2])
    ratio: tuple[float, float] = model.RATIO
    fitted: bool = False
    source: str = model.SOURCE
    median: float = model.SPEARMAN[1]
    regret: tuple[float, float] = model.REGRET

    def as_text(self) -> str:
        """`its known error: ...`, the end of a sentence."""
        return (
            f"its known error: over {self.sets} sets of candidates of kernels it had not seen, measured on an "
            f"{self.device}, its ranks correlate by {self.spearman[0]:.2f} to {self.spearman[1]:.2f} (Spearman, "
            f"{self.median:.2f} in the median); the best of the ten that it ranks first takes {self.regret[0]:.2f} "
            f"times the best there is, at worst {self.regret[1]:.2f}; its times are {self.ratio[0]:.2f} to "
            f"{self.ratio[1]:.2f} of the measured ones ({self.source})"
        )

    def as_short_text(self) -> str:
        """The same in half a line, with the page that says more."""
        return f"its ranks correlate with measured ones by {self.median:.2f} (Spearman; see `kernelsearch help trust`)"


KNOWN_ERROR = KnownError()
