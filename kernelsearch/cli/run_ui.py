"""`ui`: serves a database's own page live, or starts Optuna's dashboard or Datasette on it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from kernelsearch.cli import live_page
from kernelsearch.core import extras, formats
from kernelsearch.core.errors import KernelsearchError
from kernelsearch.record import family_tree, queries
from kernelsearch.record.exchange import datasette_metadata, optuna_storage
from kernelsearch.record.rows import Run
from kernelsearch.record.store import Store
from kernelsearch.report.lineage import diff_structures

NOTED_KERNELS = 5
"""The number of best kernels of a run that get a note and their source as an artifact."""


def main(tool: str, db: str, host: str, port: int, runs: int | None, artifacts: str | None) -> int:
    """Serves until Ctrl-C; returns the exit code. Raises KernelsearchError."""
    try:
        return _serve(tool, db, host, port, runs, artifacts)
    except KeyboardInterrupt:
        return 0


def _serve(tool: str, db: str, host: str, port: int, runs: int | None, artifacts: str | None) -> int:
    if tool == "page":
        return live_page.serve(db, host, port)
    _require(tool)
    with Store.open(db, write=False) as store:  # refuses a file that is not ours
        if tool == "optuna":
            url, folder = _mirror(store, Path(db), runs, artifacts)
    return _serve_datasette(Path(db), host, port) if tool == "datasette" else _serve_optuna(url, folder, host, port)


def _require(tool: str) -> None:
    """Raises KernelsearchError if the tool is missing; its module alone is not enough where its program is run."""
    module = {"optuna": "optuna_dashboard", "datasette": "datasette"}[tool]
    if importlib.util.find_spec(module) is None or (tool == "optuna" and not _dashboard().is_file()):
        name = module.replace("_", "-")
        raise KernelsearchError(f"{name} is not installed for {sys.executable}: {extras.install_command('ui')}")


# ---------------------------------------------------------------- Datasette


def _serve_datasette(db: Path, host: str, port: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        about = Path(folder) / "metadata.json"
        about.write_text(json.dumps(datasette_metadata.build_metadata(db)))
        command = [sys.executable, "-m", "datasette", "serve", str(db), "--metadata", str(about)]
        command += ["--host", host, "--port", str(port), "--setting", "default_page_size", "50"]
        command += ["--setting", "facet_time_limit_ms", "1000", "--setting", "sql_time_limit_ms", "5000"]
        return subprocess.call(command)


# ---------------------------------------------------------------- Optuna's dashboard


def _mirror(store: Store, db: Path, runs: int | None, artifacts: str | None) -> tuple[str, Path]:
    """Updates the Optuna copy beside the database; returns (its storage URL, the folder of artifacts).

    It is a copy because Optuna has tables of its own.
    """
    copy = db.with_suffix(".optuna.db")
    folder = Path(artifacts) if artifacts else db.with_suffix(".artifacts")
    folder.mkdir(exist_ok=True)
    url = f"sqlite:///{copy}"
    for run, study, added in optuna_storage.write(store, url, runs):
        click.echo(f"{run.name}: {added} trials added", err=True)
        if added:
            _add_notes(store, run, study, folder)
    return url, folder


def _add_notes(store: Store, run: Run, study, folder: Path) -> None:
    """Notes on the run and on its best kernels, whose sources become artifacts of the study."""
    import optuna
    import optuna_dashboard

    evidence = queries.evidence_of(store, run.id)
    optuna_dashboard.save_note(
        study,
        f"# {run.name}\n\nThe value is time over the seed's time ({evidence}): below 1 is faster. "
        f"Target {run.facts.target}, proposer {run.facts.proposer or 'none'}. "
        "`structure` numbers the run's kernels, 0 is the seed.",
    )
    artifact_store = optuna.artifacts.FileSystemArtifactStore(str(folder))
    steps = family_tree.load_tree(store, run.id)
    trials = study.get_trials(deepcopy=False)
    uploaded = {meta.filename for meta in optuna.artifacts.get_all_artifact_meta(study)}
    for row in queries.best_trials(store, run.id, abandoned=False)[:NOTED_KERNELS]:
        chain = family_tree.ancestors(steps, row["kernel"])
        path = " > ".join(step.edit or "seed" for step in chain)
        changed = diff_structures(chain[-2], chain[-1]) if len(chain) > 1 else ""
        fenced = f"\n\n```diff\n{changed}```" if changed else ""
        trial = trials[row["number"]]
        optuna_dashboard.save_note(
            optuna.trial.Trial(study, trial._trial_id),
            f"Kernel `{row['kernel'][:8]}`, {formats.format_speedup(row['score'], evidence)}: {path}.{fenced}",
        )
        name = f"{row['kernel'][:8]}.py"
        if name in uploaded:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            file = Path(temporary) / name
            file.write_text(steps[row["kernel"]].source)
            optuna.artifacts.upload_artifact(artifact_store=artifact_store, file_path=str(file), study_or_trial=study)


def _dashboard() -> Path:
    return Path(sys.executable).with_name("optuna-dashboard")


def _serve_optuna(url: str, folder: Path, host: str, port: int) -> int:
    return subprocess.call([_dashboard(), url, "--host", host, "--port", str(port), "--artifact-dir", str(folder)])
