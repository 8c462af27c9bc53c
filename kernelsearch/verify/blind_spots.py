"""Faults that a verdict without a GPU cannot see, in words: shown with every such verdict and by `doctor`."""

from __future__ import annotations

UNDEFINED_LANES = (
    "lanes of a load that are masked without `other` decide results: the language leaves them undefined, NVIDIA cards "
    "give 0"
)
WITHOUT_A_GPU: tuple[str, ...] = (
    "compiled code that does not do what its source says, and faults that only real parallelism shows",
    "a race behind an atomic operation that orders nothing, if the grid in another order gives the same answer",
    "what happens only where several sizes are larger together than 4 million elements allow: such timed shapes are "
    "halved until they fit, and of large results a few rows are compared",
    "the order of additions inside a matrix unit, and contractions of products and sums to one rounding",
    "conversions to 8-bit floats that are not in the target's hardware (`kernelsearch help machines`)",
)
