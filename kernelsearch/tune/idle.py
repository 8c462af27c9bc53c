"""Parameters that change nothing: `num_stages` of a kernel that no loop is pipelined in, for instance."""

from __future__ import annotations

from collections.abc import Iterable

from kernelsearch.core.types import Config, config_key


class IdleNames:
    """Learns from the digests of machine code which names of a space leave it as it is.

    A name is idle if two configs that differ in it alone had the same machine code, and no two had another one; the
    idle names of the parent count until then.
    """

    def __init__(self, inherited: Iterable[str] = ()) -> None:
        self._idle, self._active = set(inherited), set[str]()
        self._works: dict[tuple[str, str], str] = {}

    def __iter__(self):
        return iter(self._idle - self._active)

    def tell(self, config: Config, work: str) -> None:
        """The digest of a config's machine code; empty where it is not known."""
        for name in config if work else ():
            key = name, config_key({n: v for n, v in config.items() if n != name})
            if key not in self._works:
                self._works[key] = work
            elif self._works[key] == work:
                self._idle.add(name)
            else:
                self._active.add(name)

    def reduce(self, config: Config) -> str:
        """The key of what is left of a config without the idle names: equal ones are one kernel."""
        idle = set(self)
        return config_key({n: v for n, v in config.items() if n not in idle})
