"""The walk of a decision tree, which is plain data; a package has this file too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def choose(tree: Any, sizes: Mapping[str, float]) -> str:
    """The name of what runs at these sizes.

    A tree is such a name, or a question {"size", "at_most", "then", "else"} with a tree for each answer; one may have
    "multiple_of" in place of "at_most".
    """
    while not isinstance(tree, str):
        tree = tree["then" if holds(tree, sizes) else "else"]
    return tree


def holds(question: Mapping[str, Any], sizes: Mapping[str, float]) -> bool:
    """The answer to one question at these sizes."""
    size = sizes[question["size"]]
    return size <= question["at_most"] if "at_most" in question else size % question["multiple_of"] == 0
