"""The walk of a decision tree, which is plain data; a package has this file too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def choose(tree: Any, sizes: Mapping[str, float]) -> str:
    """The name of what runs at these sizes.

    A tree is such a name, or a question {"size", "at_most", "then", "else"} with a tree for each answer.
    """
    while not isinstance(tree, str):
        tree = tree["then" if sizes[tree["size"]] <= tree["at_most"] else "else"]
    return tree
