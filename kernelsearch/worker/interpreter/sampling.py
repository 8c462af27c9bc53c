"""Samples a few programs of each launch in place of a grid that is too large to run.

The programs of all launches of a run lie at the same places of their grids, so a row that the second launch scales is
one that the first has summed up. Otherwise a program loads what nothing has written; its own stores then mean nothing,
and are replaced by poison, as if it had not run. Programs that write less than their share of a buffer are noted too
(`cover_of`): a grid that mostly does nothing has left out its work. Programs that loaded what no launch can have
written are refused (`suspect`), and a run in which those without an answer are many is not judged by a few.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from triton.runtime.interpreter import TensorHandle

from kernelsearch.worker.interpreter import shortcuts
from kernelsearch.worker.interpreter.programs import Program, order_programs
from kernelsearch.worker.interpreter.races import AccessLog
from kernelsearch.worker.launcher.standin import replace_attributes

PLACES = 6
WHOLE_PROGRAMS = 16
"""A grid with at most this many programs runs whole, unless an earlier launch of the run did not."""
ACROSS = 4
"""Most programs of the other axes that run at each place of the first: parts of a row that a later launch joins."""
AFFORDED_S = 6.0
"""CPU seconds that a whole grid may take, by `count_seconds`, if a few of its programs cannot be judged alone.

A kernel could bring that about on purpose, by an atomic operation or a load that it does not need.
"""
OPERATION_S = 12e-6
ELEMENT_S = 2e-9
"""Seconds of an operation and of each element of its result: what whole grids of the corpus of cheats take at best.

The few programs of a sample take two or three times as long, because the first of everything does.
"""
DOUBT = 0.5
MORE_PLACES = 26
LINE = 64
"""If less than DOUBT of a buffer is covered, more programs run: at MORE_PLACES, or along all axes up to LINE in all.

An honest grid may be uneven along a short axis: of four parts of a row that is one element wide, three have no work.
"""


class GridSample:
    """The programs of a run's launches, drawn by a seed, and what they wrote; left_out: not all of them ran."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.places = np.concatenate([[[0.0] * 3], self._rng.random((PLACES - 2, 3)), [[1.0] * 3]])
        self.last: AccessLog | None = None
        self.suspect = ""
        self._written: dict[int, np.ndarray] = {}
        self._covers: dict[int, float] = {}
        self._partly: set[int] = set()
        self.alone = True
        self.whole_s = 0.0
        self.left_out = False
        self._whole = True

    def choose_programs(self, grid: Program, joined: bool) -> list[Program]:
        """The programs of a grid to run; joined: other launches may need all parts of a row."""
        if math.prod(grid) <= (PLACES if self.left_out else WHOLE_PROGRAMS):
            return order_programs(grid, "forward")
        chosen = {_at(place, grid) for place in self.places}
        if joined and grid[1] * grid[2] <= ACROSS:
            chosen = {(x, y, z) for x, _, _ in chosen for y in range(grid[1]) for z in range(grid[2])}
        return sorted(chosen)

    def run_launch(
        self,
        log: AccessLog,
        grid: Program,
        joined: bool,
        tensors: Mapping[str, torch.Tensor],
        run: Callable[[list[Program]], None],
    ) -> None:
        """Runs a few programs of a launch; finds what they cover, and withdraws stores that depend on poison.

        What an earlier launch left out must be poison, or nothing can be judged. log: what the launch's programs touch.
        joined: other launches may need all parts of a row. run: runs programs of the launch.
        """
        if self.last is not None and not self._whole:
            unseen = any(s is not None and p is None for s, p in zip(self.last.stored, self.last.poison, strict=True))
            self.alone = self.alone and not unseen and not self.last.uses_atomics
        if ran := self.choose_programs(grid, joined):
            with count_seconds() as spent:
                run(ran)
            self.whole_s += spent() * math.prod(grid) / len(ran)
            self.last, self._whole = log, len(ran) == math.prod(grid)
            self.left_out = self.left_out or not self._whole
            covers = self._find_covers(log, grid, ran, run)
            unexplained = [said for start, said in log.unwritten.items() if start not in self._partly]
            self.suspect = self.suspect or ("" if log.uses_atomics else "".join(unexplained[:1]))
            idle = any(covers[start] <= DOUBT for start in log.find_written() if start in covers)
            self.alone = self.alone and not (log.blank and idle)
            self._covers |= covers
            self._keep_written(log)
        for start, fresh in zip(log.starts.tolist(), log.fresh, strict=True):
            if fresh:
                self._covers.setdefault(start, 0.0)
        if log.blank:
            self.alone = self.alone and not log.uses_atomics and log.withdraw(tensors) and not log.writing <= log.blank
        if not self._whole:
            log.hide_unwritten(tensors)

    def cover_of(self, start: int) -> float:
        """The covered share of the buffer at this address: 0 for one that was passed and never written."""
        return self._covers.get(start, 1.0)

    def mask_of(self, output: torch.Tensor) -> torch.Tensor | None:
        """The elements of an output that programs wrote; None for one that no kernel wrote."""
        written = self._written.get(output.untyped_storage().data_ptr())
        if written is None or written.size * output.element_size() < output.untyped_storage().nbytes():
            return None
        return torch.from_numpy(written).as_strided(output.shape, output.stride(), output.storage_offset())

    @property
    def can_run_whole(self) -> bool:
        """True if all programs of all launches may run: by counts, the same on a busy machine as on an idle one."""
        return self.whole_s <= AFFORDED_S

    @property
    def can_be_judged(self) -> bool:
        """True if what was written can be compared with the right answer."""
        return self.last is not None and self.alone and (self._whole or not self.last.uses_atomics)

    def _find_covers(
        self, log: AccessLog, grid: Program, ran: list[Program], run: Callable[[list[Program]], None]
    ) -> dict[int, float]:
        """The share of each fresh buffer (by storage) that this grid and the launches before it would write if all
        programs were like these.
        """
        if len(ran) == math.prod(grid):
            return self._add_shares(log, grid, [ran])
        shares = self._add_shares(log, grid, [[p] for p in ran])
        if log.uses_atomics or all(share > DOUBT for share in shares.values()):
            return shares
        lines = [_line(p, grid) for p in ran]
        if all(len(line) == 1 for line in lines):
            lines += [[_at(place, grid)] for place in self._rng.random((MORE_PLACES, 3))]
        run(sorted({p for line in lines for p in line} - set(ran)))
        return self._add_shares(log, grid, lines)

    def _add_shares(self, log: AccessLog, grid: Program, lines: list[list[Program]]) -> dict[int, float]:
        """The share of each fresh buffer that is written, each element once; a line's programs stand for one place.

        The first and the last along the longest axis, which always run, stand for themselves alone.
        """
        count, axis = math.prod(grid), int(np.argmax(grid))
        ends = [p[axis] if all(q[axis] == p[axis] for q in line) else -1 for line in lines for p in line[:1]]
        weights = np.array([1 / ends.count(e) if e in (0, grid[axis] - 1) else 0.0 for e in ends])
        inner = np.flatnonzero(weights == 0)
        weights[inner] = max(grid[axis] - len({*ends} & {0, grid[axis] - 1}), 1) / max(inner.size, 1)
        shares, fresh = {}, {s for s, is_fresh in zip(log.starts.tolist(), log.fresh, strict=True) if is_fresh}
        for start, by in log.find_written().items():
            if start in fresh:
                new = by[(by >= 0) & ~self._seen(start, by.size)]
                written = np.bincount(new, minlength=count)
                means = [written[np.ravel_multi_index(np.transpose(line), grid)].mean() for line in lines]
                share = float(np.average(means, weights=weights)) * count / by.size
                shares[start] = min(1.0, self._covers.get(start, 0.0) + share)
        return shares

    def _keep_written(self, log: AccessLog) -> None:
        for start, by in log.find_written().items():
            self._written[start] = (by >= 0) | self._seen(start, by.size)
            self._partly |= set() if self._whole else {start}

    def _seen(self, start: int, size: int) -> np.ndarray:
        """Which elements of a buffer earlier launches wrote; none where they took it for elements of another width."""
        seen = self._written.get(start)
        return seen if seen is not None and seen.size == size else np.zeros(size, dtype=bool)


@contextmanager
def count_seconds() -> Iterator[Callable[[], float]]:
    """Yields a function of nothing: the CPU seconds, by estimate, of what the interpreter did since it began.

    It counts the tensors that the interpreter makes, at least one for each operation and each turn of a loop, and their
    elements. No clock is read, because a busy machine must not change what is judged; nor must what ran before.
    """
    shortcuts.forget_matches()
    operations = elements = 0
    plain = TensorHandle.__init__

    def count(self: TensorHandle, data: Any, *rest: Any, **named: Any) -> None:
        nonlocal operations, elements
        operations += 1
        elements += np.size(data)
        plain(self, data, *rest, **named)

    with replace_attributes(TensorHandle, __init__=count):
        yield lambda: OPERATION_S * operations + ELEMENT_S * elements


def _at(place: np.ndarray, grid: Program) -> Program:
    x, y, z = (min(int(u * n), n - 1) for u, n in zip(place, grid, strict=True))
    return x, y, z


def _line(program: Program, grid: Program) -> list[Program]:
    """The program and all that differ from it along short axes only."""
    axes, size = [], 1
    for at, extent in zip(program, grid, strict=True):
        is_short = size * extent <= LINE
        size *= extent if is_short else 1
        axes.append(range(extent) if is_short else (at,))
    return list(itertools.product(*axes))
