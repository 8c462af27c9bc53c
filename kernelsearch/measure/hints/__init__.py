"""Hints: where the time of a launch goes, and which change to try."""
