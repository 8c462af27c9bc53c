"""The reward's levels: how far an answer got, what that is worth, and why; doing nothing is worth nothing.

No answer that is refused, and none that changes no time, is worth more than doing nothing: an attempt costs the less
the further it got, so that a model learns the form first, and only a right and faster kernel is worth something.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelsearch.propose.bandit import FULL_GAIN, NOTICED

STOPPED, GRAMMAR, GATE, COMPILES, RIGHT = "stopped", "grammar", "gate", "compiles", "right"
NOTHING, SLOWER, FASTER = "nothing", "slower", "faster"


@dataclass(frozen=True)
class Credit:
    """What an answer is worth that ends at a level, and why."""

    level: str
    value: float
    why: str


CREDITS = (
    Credit(STOPPED, -1.0, "empty or cut short: nothing can be read"),
    Credit(GRAMMAR, -0.8, "not in the form of answers, not Python, or with names that are not bound"),
    Credit(GATE, -0.6, "a kernel that may not run: host code, a clock, a decoy"),
    Credit(COMPILES, -0.4, "a kernel that the compiler or the launch refuses"),
    Credit(RIGHT, -0.2, "a kernel that the referee refuses: wrong, racing, hanging, crashing"),
    Credit(NOTHING, 0.0, "the parent again: a copy, other comments, only settings, which the tuner tries anyway"),
    Credit(SLOWER, 0.0, "right, and not faster than the parent at either kernel's config"),
    Credit(FASTER, 1.0, f"right at full depth and faster; a log gain of {FULL_GAIN:g} is the whole credit"),
)
"""Every level with its credit, in order; at `faster` it is shared out by the gain."""
_VALUES = {credit.level: credit.value for credit in CREDITS}
LEVELS = tuple(_VALUES)


@dataclass(frozen=True)
class Reward:
    """The reward of one answer: its value, the level at which it ended, and why.

    gain is the log of the parent's time over the answer's where both are known; evidence says whether times were
    `estimated` by the static model or `measured`; kernel is the digest of what the answer made.
    """

    value: float
    level: str
    reason: str
    gain: float | None = None
    evidence: str = ""
    kernel: str = ""


def reward_end(level: str, reason: str, kernel: str = "") -> Reward:
    """The reward of an answer that ended at a level without a time."""
    return Reward(_VALUES[level], level, reason, kernel=kernel)


def reward_recorded(gain: float | None, refused: str, evidence: str) -> Reward:
    """The reward of an answer whose gain a database knows; without a gain it was refused, or far too slow."""
    if refused:
        return reward_end(RIGHT, refused)
    return reward_time(math.exp(-gain), evidence, "", "") if gain is not None else reward_end(SLOWER, "far slower")


def reward_time(ratio: float, evidence: str, note: str, kernel: str) -> Reward:
    """The reward of a right kernel whose time is so many times the parent's."""
    gain = -math.log(ratio)
    level = FASTER if gain >= NOTICED else SLOWER
    value = _VALUES[level] * min(1.0, gain / FULL_GAIN) if level == FASTER else _VALUES[level]
    reason = f"{ratio:.3f} of the parent's time ({evidence}{note and f'; {note}'})"
    return Reward(value, level, reason, gain, evidence, kernel)
