"""A few programs of each launch stand for a grid that is too large to run; what they could not know is taken back.

The programs of all launches of a run lie at the same places of their grids, so that the row which a second launch scales
is one that the first has summed up. Where that is not so, a program loads what nothing has written: what it writes then
says nothing, and holds poison again afterwards, as if it had not run. Programs that write less than their share of a
buffer are noted too (`covers`): a grid most of which does nothing has left out its work.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from kernelsearch.worker.interpreter.programs import Program, ordered
from kernelsearch.worker.interpreter.races import AccessLog

PLACES = 6
WHOLE_PROGRAMS = 16
"""A grid with so many programs runs whole."""
ACROSS = 4
"""How many programs of the other axes run at each place of the first: the parts of a row that a later launch joins."""
AFFORDED_S = 8.0
"""CPU seconds that the whole grid may seem to take where a few programs cannot be judged alone.

A kernel could see to it that they cannot, with an atomic operation or a load that it has no need of.
"""
DOUBT = 0.5
MORE_PLACES = 26
LINE = 64
"""Below which share a buffer's writers are looked at again: at more places, or, where axes are so short, along all of them.

An honest grid may be uneven along a short axis (three of four parts of a row have nothing to do where it is one wide).
"""


class Sample:
    """The programs of a run's launches, drawn by the seed, and what is known of them."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.places = np.concatenate([[[0.0] * 3], self._rng.random((PLACES - 2, 3)), [[1.0] * 3]])
        self.last: AccessLog | None = None
        self.covers: dict[int, float] = {}
        self._stored: dict[int, bool] = {}
        self.alone = True
        self.whole_s = 0.0
        self._whole = True

    def programs(self, grid: Program, joined: bool) -> list[Program]:
        """The programs of a grid; joined says that other launches may need all parts of what stands at a place."""
        if grid[0] * grid[1] * grid[2] <= WHOLE_PROGRAMS:
            return ordered(grid, "forward")
        chosen = {_at(place, grid) for place in self.places}
        if joined and grid[1] * grid[2] <= ACROSS:
            chosen = {(x, y, z) for x, _, _ in chosen for y in range(grid[1]) for z in range(grid[2])}
        return sorted(chosen)

    def begin(self) -> None:
        """Before a launch. What an earlier one left out must be seen to be missing: it is poison, or all is unknown."""
        if self.last is not None and not self._whole:
            unseen = any(s is not None and p is None for s, p in zip(self.last.stored, self.last.poison, strict=True))
            self.alone = self.alone and not unseen and not self.last.uses_atomics

    def end(
        self,
        log: AccessLog,
        grid: Program,
        ran: list[Program],
        tensors: Mapping[str, torch.Tensor],
        run: Callable[[list[Program]], None],
        seconds: float = 0.0,
    ) -> None:
        """After a launch: what its programs cover; takes back what those wrote that loaded what nothing has written.

        run runs more of its programs; seconds is what those took that ran.
        """
        self.whole_s += seconds * grid[0] * grid[1] * grid[2] / len(ran)
        self.last, self._whole = log, len(ran) == grid[0] * grid[1] * grid[2]
        self.covers = {} if self._whole or log.uses_atomics else self._covered(log, grid, ran, run)
        for start, stored, poison in zip(log.starts.tolist(), log.stored, log.poison, strict=True):
            if poison is not None:
                self._stored[start] = self._stored.get(start, False) or stored is not None
        if log.blank:
            self.alone = self.alone and not log.uses_atomics and log.withdraw(tensors) and not log.writing <= log.blank

    def cover(self, start: int) -> float:
        """How much of the buffer that begins there is covered: nothing of one that was passed and never written."""
        return self.covers.get(start, 1.0) if self._stored.get(start, True) else 0.0

    @property
    def judged(self) -> bool:
        """Whether what was written can be held against the right answer."""
        atomics = self.last is not None and self.last.uses_atomics and not self._whole
        return self.last is not None and self.alone and not atomics

    def _covered(
        self, log: AccessLog, grid: Program, ran: list[Program], run: Callable[[list[Program]], None]
    ) -> dict[int, float]:
        """By storage: how much of a fresh buffer all programs would write, were all like these; at most 1."""
        shares = _shares(log, grid, [[p] for p in ran])
        if all(share > DOUBT for share in shares.values()):
            return shares
        lines = [_line(p, grid) for p in ran]
        if all(len(line) == 1 for line in lines):
            lines += [[_at(place, grid)] for place in self._rng.random((MORE_PLACES, 3))]
        run(sorted({p for line in lines for p in line} - set(ran)))
        return _shares(log, grid, lines)


def _at(place: np.ndarray, grid: Program) -> Program:
    x, y, z = (min(int(u * n), n - 1) for u, n in zip(place, grid, strict=True))
    return x, y, z


def _line(program: Program, grid: Program) -> list[Program]:
    """The program and all that differ from it along short axes only."""
    axes, size = [], 1
    for at, extent in zip(program, grid, strict=True):
        short = size * extent <= LINE
        size *= extent if short else 1
        axes.append(range(extent) if short else (at,))
    return list(itertools.product(*axes))


def _shares(log: AccessLog, grid: Program, lines: list[list[Program]]) -> dict[int, float]:
    """lines are programs that stand for one place each."""
    count = grid[0] * grid[1] * grid[2]
    shares = {}
    for start, stored, poison in zip(log.starts.tolist(), log.stored, log.poison, strict=True):
        if stored is None or poison is None:
            continue
        written = np.bincount(stored[stored >= 0], minlength=count)
        mean = np.mean([np.mean([written[(x * grid[1] + y) * grid[2] + z] for x, y, z in line]) for line in lines])
        shares[start] = min(1.0, float(mean) * count / stored.size)
    return shares
