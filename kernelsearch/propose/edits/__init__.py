"""Typed edits of a kernel's syntax tree, one per file. Each has the name that the field uses."""

from kernelsearch.propose.analysis.view import NotApplicable
from kernelsearch.propose.edits.base import Edit, Failed
from kernelsearch.propose.edits.registry import EDITS, add_edit, edit_named

__all__ = ["EDITS", "Edit", "Failed", "NotApplicable", "add_edit", "edit_named"]
