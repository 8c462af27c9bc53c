"""A grammar without recursion out of one with it, for models that might never end: brackets nest a few times only.

Nesting is counted at operands. A rule is written once for each number of brackets that may still open; what needs more
than is left is left out, and what needs a word that nothing defines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

OPERAND = "operand_"
"""How rules are named at which a bracket is counted."""

_Node = str | tuple[str, list]


def bound_rules(rules: Mapping[str, Sequence[str]], start: str, nesting: int) -> dict[str, list[str]]:
    """The rules that start needs, its own first."""
    return _Bounded(rules).write(start, nesting)


class _Bounded:
    def __init__(self, rules: Mapping[str, Sequence[str]]) -> None:
        self.rules = {name: _read_alternatives(list(tokens)[::-1]) for name, tokens in rules.items()}
        self.made: dict[tuple[str, int], _Node | None] = {}

    def write(self, start: str, nesting: int) -> dict[str, list[str]]:
        self._rule(start, nesting)
        names = {(n, left): n if n == start or n.isupper() else f"{n}_{left}" for n, left in self.made}
        found: dict[str, list[str]] = {}
        waiting = [(start, nesting)]
        while waiting:
            key = waiting.pop()
            if names[key] not in found:
                tokens, used = list[str | tuple[str, int]](), list[tuple[str, int]]()
                _write(self.made[key], tokens, used)
                found[names[key]] = [names[t] if isinstance(t, tuple) else t for t in tokens]
                waiting += used[::-1]
        return found

    def _rule(self, name: str, left: int) -> bool:
        """True if the rule has a sentence with so many brackets left."""
        key = name, left
        if key not in self.made:
            self.made[key] = ""  # it has, as far as its own sentences go: each has another way than through itself
            self.made[key] = self._cut(self.rules[name], left)
        return self.made[key] is not None

    def _cut(self, node, left: int):
        """The node without what cannot be said; None if nothing is left."""
        if isinstance(node, str):
            if node not in self.rules:
                return node if node[0] in '"/' else None
            left = 0 if node.isupper() else left - node.startswith(OPERAND)
            return ("ref", [(node, left)]) if left >= 0 and self._rule(node, left) else None
        kind, parts = node
        cut = [self._cut(part, left) for part in parts]
        if kind == "any":
            cut = [part for part in cut if part is not None]
            return (kind, cut) if cut else None
        if kind in ("?", "*"):
            return ("?", cut) if cut[0] is not None else ("all", [])
        if None in cut:
            return None
        return ("all" if kind == "+" else kind, cut)


def _read_alternatives(tokens: list[str]) -> _Node:
    """The tree of tokens, which stand in reverse, up to a closing parenthesis."""
    found: list[list] = [[]]
    while tokens and tokens[-1] != ")":
        token = tokens.pop()
        if token == "|":
            found.append([])
        elif token in ("?", "*", "+"):
            found[-1][-1] = token, [found[-1][-1]]
        elif token == "(":
            found[-1].append(_read_alternatives(tokens))
            tokens.pop()
        else:
            found[-1].append(token)
    return "any", [parts[0] if len(parts) == 1 else ("all", parts) for parts in found]


def _write(node, tokens: list[str | tuple[str, int]], used: list[tuple[str, int]]) -> None:
    """Adds the tokens of a tree; references stand as they are, and are added to used too."""
    kind, parts = ("", [node]) if isinstance(node, str) else node
    if kind in ("", "ref"):
        tokens += parts
        used += [part for part in parts if isinstance(part, tuple)]
    elif kind == "all":
        for part in parts:
            _write(part, tokens, used)
    else:
        tokens.append("(")
        for at, part in enumerate(parts):
            tokens += "|" * (at > 0)
            _write(part, tokens, used)
        tokens += (")", "?") if kind == "?" else (")",)
