"""Typed edits of a kernel's tree: one edit per file, each named after the field's own word."""

from kernelsearch.propose.edits.base import Edit, NotApplicable
from kernelsearch.propose.edits.registry import EDITS, edit_named

__all__ = ["EDITS", "Edit", "NotApplicable", "edit_named"]
