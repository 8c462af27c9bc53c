"""Recorded spaces: measured once, replayed anywhere; what a search does on them, without a compiler or a GPU."""
