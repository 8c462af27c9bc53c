"""What a shell offers for a value: tasks and kernels of the database in hand, targets, strategies, shipped tasks.

A shell asks at every Tab, so nothing heavy is imported, and a database that cannot be read offers nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import click

DEFAULT_DB = "kernelsearch.db"
MOST = 50


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(_column(ctx, "SELECT DISTINCT name FROM task ORDER BY name"), incomplete)


def devices(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(
        _column(ctx, "SELECT device FROM trial UNION SELECT device FROM confirmation ORDER BY 1"), incomplete
    )


def kernels(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """`best`, then the beginnings of the newest accepted kernels' digests."""
    newest = """SELECT substr(kernel, 1, 8) FROM trial WHERE score IS NOT NULL GROUP BY kernel ORDER BY max(run) DESC, min(score)"""
    return _beginning(["best", *_column(ctx, newest)], incomplete)


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from kernelsearch.kernel.targets import names

    return _beginning(["auto", *names()], incomplete)


def strategies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Shipped strategies, and files as they are typed."""
    from kernelsearch.search.strategies import shipped

    files = [str(p) for p in Path().glob(f"{incomplete}*.py")] if not incomplete.startswith("/") else []
    return [*_beginning(shipped(), incomplete), *sorted(files)]


def shipped_tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from kernelsearch.tasks.shipped import names

    return _beginning(names(), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)][:MOST]


def _column(ctx: click.Context, query: str) -> list[str]:
    given = ctx.params.get("db") or ctx.params.get("dbs") or DEFAULT_DB
    path = Path(given if isinstance(given, str) else given[0])
    if not path.is_file():
        return []
    try:
        with sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=0.2) as connection:
            return [row[0] for row in connection.execute(query) if row[0]]
    except sqlite3.Error:
        return []
