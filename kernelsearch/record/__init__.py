"""The record: one SQLite file with everything that was tried, right or wrong."""

DEFAULT_DB = "kernelsearch.db"
"""The database that a command uses unless another one is named."""
