"""Parameters of which one value is right: the size of a quantisation group, which looks like a tile's."""

from __future__ import annotations

from kernelsearch.core.types import Config, Value

LEAST = 2
"""Values of a name that must have been refused before it keeps the one that was right."""


class FixedNames:
    """Learns from verdicts which names of a space must keep their value.

    A refused config is blamed on a name where all its other values were right in some config. What is known of the
    parent, a kernel that this one was made of, counts until another value is right here.
    """

    def __init__(self, parent: FixedNames | None = None) -> None:
        self._parent = parent
        self._right: dict[str, set[Value]] = {}
        self._wrong: list[Config] = []
        self._learnt: dict[str, Value] = {}

    def tell(self, config: Config, right: bool) -> None:
        """A config that was accepted, or one that gave wrong results."""
        if not right:
            self._wrong.append(config)
        for name, value in config.items() if right else ():
            self._right.setdefault(name, set()).add(value)
        blamed: dict[str, set[Value]] = {}
        for config in self._wrong:
            unknown = [name for name, value in config.items() if value not in self._right.get(name, ())]
            if len(unknown) == 1:
                blamed.setdefault(unknown[0], set()).add(config[unknown[0]])
        learnt = [n for n, values in blamed.items() if len(values) >= LEAST and len(self._right.get(n, ())) == 1]
        self._learnt = {name: next(iter(self._right[name])) for name in learnt}

    def find(self) -> dict[str, Value]:
        """The names with their values."""
        inherited = self._parent.find() if self._parent else {}
        return {n: v for n, v in inherited.items() if self._right.get(n, {v}) == {v}} | self._learnt

    def allow(self, config: Config) -> bool:
        """Whether a config keeps these values."""
        return all(config.get(name, value) == value for name, value in self.find().items())
