"""Values that a shell completes: tasks and kernels of the database, targets, strategies, shipped tasks.

A shell asks at every Tab, so nothing heavy is imported, and an unreadable database gives no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click

from kernelsearch.record import DEFAULT_DB, completions

MOST = 50

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _from_database(load: Callable[[Path], list[str]]) -> Completer:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        given = ctx.params.get("db") or ctx.params.get("dbs") or DEFAULT_DB
        return _starting_with(incomplete, load(Path(given if isinstance(given, str) else given[0])))

    return complete


tasks = _from_database(completions.task_names)
devices = _from_database(completions.device_names)
kernels = _from_database(lambda path: ["best", *completions.kernel_prefixes(path)])
"""`best`, then the beginnings of the newest accepted kernels' digests."""


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
