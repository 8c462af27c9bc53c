"""Values that a shell completes: tasks and kernels of the database, targets, strategies, shipped tasks.

A shell asks at every Tab, so nothing heavy is imported, and an unreadable database gives no values.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from kernelsearch.record import completions

DEFAULT_DB = "kernelsearch.db"
MOST = 50


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _starting_with(incomplete, completions.task_names(_database(ctx)))


def devices(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _starting_with(incomplete, completions.device_names(_database(ctx)))


def kernels(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """`best`, then the beginnings of the newest accepted kernels' digests."""
    return _starting_with(incomplete, ["best", *completions.kernel_prefixes(_database(ctx))])


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from kernelsearch.kernel.targets import target_names

    return _starting_with(incomplete, ["auto", *target_names()])


def strategies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Shipped strategies, and files that match what was typed."""
    from kernelsearch.search.strategies import list_shipped

    files = [str(p) for p in Path().glob(f"{incomplete}*.py")] if not incomplete.startswith("/") else []
    return [*_starting_with(incomplete, list_shipped()), *sorted(files)]


def shipped_tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from kernelsearch.tasks.shipped import names

    return _starting_with(incomplete, names())


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)][:MOST]


def _database(ctx: click.Context) -> Path:
    given = ctx.params.get("db") or ctx.params.get("dbs") or DEFAULT_DB
    return Path(given if isinstance(given, str) else given[0])
