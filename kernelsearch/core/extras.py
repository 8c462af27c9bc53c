"""The command that installs an optional package into this Python, from the same source as kernelsearch itself.

A clone, an index and a wheel need different commands, and a plain `pip` may belong to another environment.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "kernelsearch"


def install_command(extra: str) -> str:
    """The command that adds an extra of this package, such as `pip install 'kernelsearch[mcp]'`."""
    return f"{_pip_command()} install {_requirement_for(extra)}"


def _pip_command() -> str:
    """`pip` if the shell finds this environment's own, else `PYTHON -m pip`."""
    pip = shutil.which("pip")
    if pip is not None and Path(pip).absolute().parent == Path(sys.executable).absolute().parent:
        return "pip"
    relative = os.path.relpath(sys.executable)
    return f"{sys.executable if relative.startswith('..') else relative} -m pip"


def _requirement_for(extra: str) -> str:
    """The requirement in quotes: the folder of a clone (PEP 610 records it), else the name in an index."""
    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    url = urlsplit(origin.get("url", ""))
    if url.scheme != "file" or "dir_info" not in origin:
        return f"'{NAME}[{extra}]'"
    editable = "-e " if origin["dir_info"].get("editable") else ""
    return f"{editable}'{unquote(url.path)}[{extra}]'"
