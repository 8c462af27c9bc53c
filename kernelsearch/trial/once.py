"""Values that are computed once per key, by the thread that asks first; the others wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Once:
    """A memo of values by key; safe to call from several threads."""

    def __init__(self) -> None:
        self._memo: dict[str, Future] = {}
        self._lock = threading.Lock()

    def __call__(self, key: str, make: Callable[[], Any]) -> Any:
        """The value of make(), computed once per key; an exception is remembered too."""
        with self._lock:
            future = self._memo.get(key)
            mine = future is None
            if mine:
                future = self._memo[key] = Future()
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()
