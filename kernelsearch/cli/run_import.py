"""`import`: merges another database; turns Triton's autotune cache into a recorded space or a kernel file."""

from __future__ import annotations

from pathlib import Path

import click

from kernelsearch.core import files
from kernelsearch.core.errors import SpaceError, StoreError
from kernelsearch.core.types import Config, TaskFacts
from kernelsearch.kernel.literals import flatten_config
from kernelsearch.record import recorded_space
from kernelsearch.record.exchange import merge, triton_cache
from kernelsearch.record.store import Store
from kernelsearch.verify import gate


def main(file: str, db: str, task: str | None, out: str | None, target: str, force: bool) -> None:
    """Imports a file, whose content says what it is. Raises KernelsearchError."""
    path = Path(file)
    try:
        head = path.open("rb").read(16)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from None
    if head.startswith(b"SQLite format 3"):
        _merge_database(path, Path(db))
    elif task is None:
        _write_space(path, Path(out) if out else path.with_suffix(".space.json"), force)
    else:
        _write_kernel(path, task, Path(out) if out else None, target, force)


def _merge_database(path: Path, db: Path) -> None:
    if db.exists() and db.samefile(path):
        raise StoreError(f"{path} is the database itself: name another --db to merge it into")
    with Store.open(db) as store:
        new = merge.merge(store, path, gate.check_stored)
    confirmations = new.rows.get("confirmation", 0)
    click.echo(f"{new.runs} new runs, {new.trials} new trials, {confirmations} confirmations into {db}")


def _write_space(path: Path, out: Path, force: bool) -> None:
    _refuse_existing(out, force)
    space = triton_cache.read(path)
    recorded_space.write(space, out)
    failed = sum(row.failure is not None for row in space.rows)
    counts = f"{len(space.rows)} configs of {space.task}, {failed} failed"
    click.echo(f"wrote {out}: {counts}; next: kernelsearch simulate {out}")


def _write_kernel(path: Path, task: str, out: Path | None, target: str, force: bool) -> None:
    """The task's seed under the file's best config: to standard output, or to a file."""
    from kernelsearch.trial.bench import Bench

    if out:
        _refuse_existing(out, force)
    with Bench.open(task, target) as bench:
        facts, seed = bench.facts, bench.seed
    config, origin = _best_config(path, facts)
    whole = flatten_config({**facts.config, **config})
    text = f"# {' '.join(origin.split())}\n{seed.with_changes(config=whole).render()}"
    if out:
        files.write_user_file(out, text)
        click.echo(f"wrote {out}; next: kernelsearch measure {task} {out}")
    else:
        click.echo(text, nl=False)


def _best_config(path: Path, facts: TaskFacts) -> tuple[Config, str]:
    """(The file's best config in the names of the task's kernel, a sentence about its origin). Raises SpaceError."""
    names, space = {*facts.space, *facts.config}, triton_cache.read(path)
    best = min((row for row in space.rows if row.time_us is not None), key=lambda row: row.time_us)
    known = {name: value for name, value in best.config.items() if name in names or name in ("num_warps", "num_stages")}
    if not known:
        own, theirs = ", ".join(sorted(names)), ", ".join(space.parameters)
        raise SpaceError(f"{path} has the parameters {theirs}, the task {own}: none is in both")
    left_out = ", ".join(sorted(set(best.config) - set(known)))
    return known, f"best of {len(space.rows)} configs of {path.name}" + (f"; without {left_out}" if left_out else "")


def _refuse_existing(out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise SpaceError(f"{out} exists already; give --force to overwrite it")
