"""The schema as an append-only list of functions: a released one is never edited, a change is a new one.

Tables have a `name` column where a person needs one: Datasette shows it in place of the key.
Text columns that hold JSON say so in their comment. Times are UTC, ISO 8601.
"""

from kernelsearch.record.migrations.m012_hints import migrations

__all__ = ["migrations"]
