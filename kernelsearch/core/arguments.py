"""Options as a script gives them, in one form: paths as text, one value where several may be, whole counts."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from kernelsearch.core.errors import KernelsearchError


def settle_options(options: Any, counts: str = "") -> None:
    """Puts the fields of a frozen dataclass in that form. Raises KernelsearchError for counts that are none."""
    for field in fields(options):
        value = getattr(options, field.name)
        if str(field.type).startswith("tuple[str"):
            one = isinstance(value, str | os.PathLike)
            value = tuple(map(os.fspath, [value] if one else value))
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        if field.name in counts.split() and value is not None and not (type(value) is int and value >= 1):
            raise KernelsearchError(f"{field.name} is a whole number of at least 1, not {value!r}")
        object.__setattr__(options, field.name, value)
