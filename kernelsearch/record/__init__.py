"""The record: one SQLite file with everything that was tried, right or wrong."""
