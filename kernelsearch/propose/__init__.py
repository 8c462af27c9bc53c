"""Proposers: rewrites of a kernel's structure, by typed edits of its tree or by a model."""
