"""How an optional package is installed here: into this Python, and from where this kernelsearch itself came.

A clone, an index and a wheel need different words, and a plain `pip` may belong to another environment.
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


def install(extra: str) -> str:
    """The command that adds an extra of this package, such as `pip install 'kernelsearch[ui]'`."""
    return f"{_pip()} install {_source(extra)}"


def _pip() -> str:
    """`pip` where the shell finds the one of this environment, else the long form with this Python."""
    found = shutil.which("pip")
    beside = found is not None and Path(found).absolute().parent == Path(sys.executable).absolute().parent
    if beside:
        return "pip"
    shown = os.path.relpath(sys.executable)
    return f"{sys.executable if shown.startswith('..') else shown} -m pip"


def _source(extra: str) -> str:
    """The requirement in quotes: the folder of a clone (PEP 610 records it), else the name in an index."""
    try:
        told = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        told = None
    about = json.loads(told) if told else {}
    url = urlsplit(about.get("url", ""))
    if url.scheme != "file" or "dir_info" not in about:
        return f"'{NAME}[{extra}]'"
    editable = "-e " if about["dir_info"].get("editable") else ""
    return f"{editable}'{unquote(url.path)}[{extra}]'"
