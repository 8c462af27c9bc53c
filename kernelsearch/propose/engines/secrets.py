"""Keys come from the environment and go to one place, the server: never into a spec, a row, a log or a prompt."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from kernelsearch.core.errors import ModelError

HIDDEN = "[secret]"
_KEYLIKE = re.compile(r"\b(?:sk|pk|hf|gsk|key|Bearer)[-_ ][A-Za-z0-9_\-.*]{8,}")
"""Matches keys as servers echo them, shortened, in their error messages."""
_VARIABLE = re.compile(r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD)$")
SHORTEST = 8
"""Characters of the shortest value of such a variable that is taken for a secret."""


def key_from(variable: str) -> str | None:
    """The key in an environment variable; None when it is not set."""
    return os.environ.get(variable) or None


def refuse_secrets_in_url(url: str) -> None:
    """Raises ModelError when a URL carries a user, a password or a query: those are how keys get into databases."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelError(f"{scrub(parts.path or url)!r} is no URL: write openai:http://HOST:PORT/v1#MODEL")
    if parts.username or parts.password or parts.query:
        raise ModelError(
            f"the URL of {parts.hostname} carries a user, a password or a query: a key is taken from the environment "
            "only (OPENAI_API_KEY, or key_env=NAME)"
        )


def scrub(text: str, key: str | None = None) -> str:
    """The text without the key, without the environment's secrets and without anything that looks like a key."""
    secrets = {v for name, v in os.environ.items() if len(v) >= SHORTEST and _VARIABLE.search(name.upper())}
    secrets |= {key} if key and len(key) >= 4 else set()
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _KEYLIKE.sub(HIDDEN, text)
