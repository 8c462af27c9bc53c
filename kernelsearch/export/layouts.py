"""The layout of a tensor in words: what is verified and what is called are described alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def layout(shape: Sequence[int], strides: Sequence[int]) -> str:
    """A tensor's layout as a word: the order of its axes in memory, and whether there are gaps between them.

    `contiguous`, `axes 1 0` (dense in another order), the same `with gaps`, or the strides where elements overlap.
    Axes of size 1 do not count. shape and strides are in elements.
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
        return "contiguous"
    word = f"axes {' '.join(map(str, axes))}" if not in_order else "rows"
    return word if dense else f"{word} with gaps" if unit else f"{word} with gaps everywhere"


def list_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """The axes of size 1: these are in no layout, so that one judged with them says less than one without."""
    return tuple(axis for axis, size in enumerate(shape) if size == 1)


def list_gaps(shape: Sequence[int], strides: Sequence[int]) -> dict[int, set[str]]:
    """What may be said of the room that each axis has before the next outer one begins, by axis.

    That is how often its elements fit in, how many more fit in, and the room itself. Under -1 is the distance of
    neighbours. A kernel may count on what was so at all judged shapes.
    """
    axes = sorted((a for a, n in enumerate(shape) if n != 1), key=lambda a: (-strides[a], a))
    found = {-1: {f"neighbours {strides[axes[-1]]} apart"}} if axes else {}
    for outer, inner in pairwise(axes):
        size, step = shape[inner], max(strides[inner], 1)
        fits = f"room for {strides[outer] / (step * size)} times its size"
        more = f"room for {(strides[outer] - step * size) / step} elements more"
        found[inner] = {fits, more, f"room for {strides[outer] / step} elements"}
    return found
