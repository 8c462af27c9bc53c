"""A run's stored trials as a sequence that reads one page at a time, so that a long run needs little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelsearch.core.types import Trial
from kernelsearch.record.store import Store

PAGE = 256


class StoredTrials(Sequence[Trial]):
    """The first `count` trials of a run in order; equal to any sequence of equal trials. The store must stay open."""

    def __init__(self, store: Store, run: int, count: int) -> None:
        self._store, self._run, self._count = store, run, count
        self._number = -1
        self._page: list[Trial] = []

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at):
        if isinstance(at, slice):
            return tuple(self[i] for i in range(*at.indices(self._count)))
        number = at + self._count if at < 0 else at
        if not 0 <= number < self._count:
            raise IndexError(f"run {self._run} has {self._count} trials, no trial {at}")
        if number // PAGE != self._number:
            self._number = number // PAGE
            self._page = self._store.load_trials(self._run, self._number * PAGE, PAGE)
        return self._page[number % PAGE]

    def __iter__(self) -> Iterator[Trial]:
        for first in range(0, self._count, PAGE):
            yield from self._store.load_trials(self._run, first, PAGE)[: self._count - first]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(a == b for a, b in zip(self, other, strict=True))
