"""The search loop: ask a strategy, make the candidate, have it evaluated, tell and store it, in ask order."""

from kernelsearch.search.facts import FirstAsks, Progress, Result, Settings
from kernelsearch.search.loop import Search, start_for

__all__ = ["FirstAsks", "Progress", "Result", "Search", "Settings", "start_for"]
