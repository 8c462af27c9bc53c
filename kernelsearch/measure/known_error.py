"""How wrong the static model was where its estimates could be held against measured times: what to say beside one.

The one place with these figures; whoever changes the model replaces them, with the study that they come from.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownError:
    """Spearman's rank correlation and the median of estimated over measured time, worst and best over sets of candidates.

    fitted says that the model's constants were fitted to these same candidates: the figures then promise too much.
    """

    sets: int
    device: str
    spearman: tuple[float, float]
    ratio: tuple[float, float]
    fitted: bool
    source: str

    def __post_init__(self) -> None:
        if not -1 <= self.spearman[0] <= self.spearman[1] <= 1 or not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"no such error: {self.spearman}, {self.ratio}")

    def said(self) -> str:
        """`its known error: ...`, a sentence's end."""
        how = " it was fitted to" if self.fitted else " it had not seen"
        return (f"its known error: over {self.sets} sets of candidates{how}, measured on an {self.device}, its ranks "
                f"correlate by {self.spearman[0]:.2f} to {self.spearman[1]:.2f} (Spearman), and its times are "
                f"{self.ratio[0]:.2f} to {self.ratio[1]:.2f} of the measured ones in the median ({self.source})")  # fmt: skip


KNOWN_ERROR = KnownError(
    sets=9, device="H100", spearman=(0.60, 0.91), ratio=(0.65, 2.73), fitted=True, source="studies/README.md, 2026-11-21"
)
