"""A tensor's layout as a word: the order of its axes in memory, and whether there are gaps between them.

This file is shipped inside every exported package, so that what is verified and what is asked are said alike.
"""

from __future__ import annotations

from collections.abc import Sequence

CONTIGUOUS = "contiguous"


def layout(shape: Sequence[int], strides: Sequence[int]) -> str:
    """`contiguous`, `axes 1 0` (dense in another order), the same `with gaps`, or the strides where elements overlap.

    Axes of size 1 have no say. shape and strides are in elements.
    """
    axes = sorted((a for a, n in enumerate(shape) if n != 1), key=lambda a: (-strides[a], a))
    expected, dense = 1, True
    for axis in reversed(axes):
        if strides[axis] < expected:
            return f"strides {' '.join(map(str, strides))}"
        dense = dense and strides[axis] == expected
        expected = strides[axis] * shape[axis]
    unit = not axes or strides[axes[-1]] == 1
    in_order = axes == sorted(axes)
    if dense and in_order:
        return CONTIGUOUS
    word = f"axes {' '.join(map(str, axes))}" if not in_order else "rows"
    return word if dense else f"{word} with gaps" if unit else f"{word} with gaps everywhere"
