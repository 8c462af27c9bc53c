"""The static model's error, where its estimates could be compared with measured times, to show beside an estimate.

The figures come from `fitted.py`, which the study that fits the model writes.
"""

from __future__ import annotations

from kernelsearch.kernel.targets import Target
from kernelsearch.measure.static_model.fitted import DEVICE, RATIO, REGRET, SOURCE, SPACES, SPEARMAN

TRIED = 90  # the architecture of the cards on which the model was compared with measured times
KNOWN_ERROR = {
    "sets": SPACES,
    "device": DEVICE,
    "spearman": (SPEARMAN[0], SPEARMAN[2]),
    "median": SPEARMAN[1],
    "regret": REGRET,
    "ratio": RATIO,
    "source": SOURCE,
}
"""The model's error over recorded sets of candidates, for programs: `fitted.py` says what each figure is."""

KNOWN_ERROR_TEXT = (
    f"its known error: over {SPACES} sets of candidates of kernels it had not seen, measured on an {DEVICE}, its ranks "
    f"correlate by {SPEARMAN[0]:.2f} to {SPEARMAN[2]:.2f} (Spearman, {SPEARMAN[1]:.2f} in the median); the best of the "
    f"ten that it ranks first takes {REGRET[0]:.2f} times the best there is, at worst {REGRET[1]:.2f}; its times are "
    f"{RATIO[0]:.2f} to {RATIO[1]:.2f} of the measured ones ({SOURCE})"
)
"""The end of a sentence."""
SHORT_TEXT = f"its ranks correlate with measured ones by {SPEARMAN[1]:.2f} (Spearman; see `kernelsearch help trust`)"
"""The same in half a line, with the page that says more."""


def describe_error(target: Target, short: bool = True) -> str:
    """What is known of the model's error on a target, as the end of a sentence."""
    if target.arch == TRIED:
        return SHORT_TEXT if short else KNOWN_ERROR_TEXT
    return f"its error on a {target.name} is not known: no kernel of ours ran there, its constants are an {DEVICE}'s"
