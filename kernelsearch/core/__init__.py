"""Words, errors and small helpers that every room uses."""
