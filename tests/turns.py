"""Sweeps that take turns by day, so that CI stays short: all of it with EVERY=1 in the environment."""

import os
from collections.abc import Iterable
from datetime import date
from typing import Any

TURN = None if os.environ.get("EVERY") else date.today().toordinal()
"""The day, by which sweeps take a part of what they try; None with EVERY=1 in the environment: all of it."""


def take_turn(things: Iterable[Any], parts: int) -> list[Any]:
    """A part of these things, another one each day, so that all have had their turn after some days."""
    known = list(things)
    return known if TURN is None else known[TURN % parts :: parts]
