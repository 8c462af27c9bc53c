"""sqlite_utils, without pandas: it imports an installed pandas (1.3 s) for one type, which no row here has."""

from __future__ import annotations

import sys
from typing import Any, cast

hidden = "pandas" not in sys.modules
if hidden:
    cast(dict[str, Any], sys.modules)["pandas"] = None
try:
    from sqlite_utils import Database, Migrations
finally:
    if hidden:
        del sys.modules["pandas"]

__all__ = ["Database", "Migrations"]
