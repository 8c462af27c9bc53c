"""How wrong the static model was where its estimates could be held against measured times: what to say beside one.

The figures come from `fitted.py`, which the study writes that fits the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.measure.static_model import fitted as model


@dataclass(frozen=True)
class KnownError:
    """Spearman's rank correlation and the median of estimated over measured time, worst and best over sets of candidates.

    fitted says that the model's constants were fitted to these same candidates: the figures then promise too much.
    median is the middle set's correlation, regret the best of the ten that the model ranks first over the best there
    is, median and worst.
    """

    sets: int
    device: str
    spearman: tuple[float, float]
    ratio: tuple[float, float]
    fitted: bool
    source: str
    median: float | None = None
    regret: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not -1 <= self.spearman[0] <= self.spearman[1] <= 1 or not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"no such error: {self.spearman}, {self.ratio}")

    def said(self) -> str:
        """`its known error: ...`, a sentence's end."""
        how = " it was fitted to" if self.fitted else " of kernels it had not seen"
        middle = f", {self.median:.2f} in the median" if self.median is not None else ""
        first = (
            f"; the best of the ten that it ranks first takes {self.regret[0]:.2f} times the best there is, at worst "
            f"{self.regret[1]:.2f}"
            if self.regret
            else ""
        )
        return (
            f"its known error: over {self.sets} sets of candidates{how}, measured on an {self.device}, its ranks "
            f"correlate by {self.spearman[0]:.2f} to {self.spearman[1]:.2f} (Spearman{middle}){first}; its times are "
            f"{self.ratio[0]:.2f} to {self.ratio[1]:.2f} of the measured ones ({self.source})"
        )


KNOWN_ERROR = KnownError(
    model.SPACES,
    model.DEVICE,
    (model.SPEARMAN[0], model.SPEARMAN[2]),
    model.RATIO,
    False,
    model.SOURCE,
    model.SPEARMAN[1],
    model.REGRET,
)
