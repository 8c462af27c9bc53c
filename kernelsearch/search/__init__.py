"""The search loop: ask a strategy, make the candidate, have it evaluated, tell and store it, in ask order."""

from kernelsearch.search.facts import FirstAsks, Progress, Result, Settings
from kernelsearch.search.loop import Search, make_start

__all__ = ["FirstAsks", "Progress", "Result", "Search", "Settings", "make_start"]
