"""The tenth step of the schema: when a model's answers were taken in, and for how long the search stood still for them."""

from __future__ import annotations

from sqlite_utils import Database

from kernelsearch.record.migrations.register import migrations


@migrations()
def m010_calls_asked_ahead(db: Database) -> None:
    """Calls were taken in at their own ask, and waited for, before models could be asked ahead."""
    db.execute("ALTER TABLE model_call ADD COLUMN landed INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE model_call ADD COLUMN waited REAL NOT NULL DEFAULT 0")
    db.execute("UPDATE model_call SET landed = number, waited = seconds")
