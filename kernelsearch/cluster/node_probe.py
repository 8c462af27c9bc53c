"""What a node has: sent to it as text, because this package may be missing there. Nothing but Python's own modules."""

import platform
from importlib import metadata

PACKAGES = ("kernelsearch", "torch", "triton", "ray")


def probe() -> dict[str, str]:
    """The versions of what must be the same everywhere; empty for what is not installed."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found
