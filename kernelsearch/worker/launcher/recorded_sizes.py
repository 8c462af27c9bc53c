"""Finds which sizes of a recorded call are one size: those that the called function takes only when they vary together.

The function runs on tensors without data. Sizes that were equal by chance vary alone, and get names of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.worker.launcher.seed_shapes import takes_alike

Axis = tuple[str, int]
"""The name of an input and the number of an axis."""

MOST_SETS = 128
"""Sets of axes of one size that are tried for one axis; after these, all axes of that size are one."""


def name_sizes(function: Callable[..., Any], inputs: Mapping[str, Any]) -> dict[Axis, str]:
    """The name of the size of each axis that may vary, after the first axis of that size; others have to stay.

    Where the function does not run without data, equal sizes are one.
    """
    sizes = {(n, axis): size for n, v in inputs.items() if isinstance(v, torch.Tensor)
             for axis, size in enumerate(v.shape) if size > 1}  # fmt: skip
    takes = _probe(function, inputs)
    if takes({}):
        groups = _group(sizes, takes)
    else:
        groups = [[a for a in sizes if sizes[a] == size] for size in dict.fromkeys(sizes.values())]
    order = {axis: number for number, axis in enumerate(sizes)}
    named = {axis: f"{group[0][0]}_{group[0][1]}" for group in groups for axis in group}
    return {axis: named[axis] for axis in sorted(named, key=order.__getitem__)}


def _group(sizes: Mapping[Axis, int], takes: Callable[[Mapping[Axis, int]], bool]) -> list[list[Axis]]:
    def vary(group: Sequence[Axis]) -> bool:
        size = sizes[group[0]]
        others = (size - 1, size + 1, size // 2, size * 2)
        return any(value > 1 and takes(dict.fromkeys(group, value)) for value in others)

    alone = [[axis] for axis in sizes if vary([axis])]
    stuck = [axis for axis in sizes if [axis] not in alone]
    groups = []
    while stuck:
        axis, *rest = stuck
        equal = [other for other in rest if sizes[other] == sizes[axis]]
        found = next((g for g in _list_sets(axis, equal) if vary(g)), [])
        groups += [found] if found else []
        stuck = [a for a in rest if a not in found]
    return alone + groups


def _list_sets(axis: Axis, equal: Sequence[Axis]) -> Iterator[list[Axis]]:
    """Sets of axes with this one, small ones first, the whole at last."""
    smaller = ([axis, *more] for count in range(1, len(equal)) for more in combinations(equal, count))
    yield from islice(smaller, MOST_SETS)
    if equal:
        yield [axis, *equal]


def _probe(function: Callable[..., Any], inputs: Mapping[str, Any]) -> Callable[[Mapping[Axis, int]], bool]:
    """Whether the function takes the inputs with these axes of other sizes."""

    def takes(changed: Mapping[Axis, int]) -> bool:
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                given = []
                for name, value in inputs.items():
                    if isinstance(value, torch.Tensor):
                        shape = [changed.get((name, axis), size) for axis, size in enumerate(value.shape)]
                        order = sorted(range(value.ndim), key=lambda axis: -value.stride()[axis])
                        made = torch.empty([shape[axis] for axis in order], dtype=value.dtype)
                        value = made.permute([order.index(axis) for axis in range(value.ndim)])
                    given.append(value)
                return takes_alike(function, given)
        except USER_ERRORS:
            return False

    return takes
