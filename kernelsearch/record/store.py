"""The store: a run's rows in one SQLite file, each trial in one short transaction, each run of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

from kernelsearch.core.errors import KernelSyntaxError, StoreError
from kernelsearch.core.model_calls import ModelCall
from kernelsearch.core.parsing import suggest_names
from kernelsearch.core.types import Config, Measurement, Outcome, TaskFacts, Trial, Verdict, config_key
from kernelsearch.record import DEFAULT_DB, confirmation_rows, database_file, rows, run_locks
from kernelsearch.record.rows import Row, Run, RunFacts, Structure
from kernelsearch.record.sqlite_library import Database

MOST = 2**63 - 1
"""SQLite's largest integer."""

IMPORTED = " (imported)"
"""The end of the name of a run that came with another database: nobody here has seen what it says."""

OF_TASK = "(:task IS NULL OR :task IN (task.name, task.digest))"
"""A condition of queries that join `task`: its name or digest is `:task`, unless that is NULL."""

_LET_STAND = "UPDATE run SET extended = (SELECT count(*) FROM trial WHERE run = run.id) WHERE id = ?"
_MORE_SHAPES = """UPDATE task SET shapes = (SELECT json_group_array(json(value)) FROM (
    SELECT value FROM json_each(task.shapes) UNION ALL SELECT value FROM json_each(:shapes)
    WHERE value NOT IN (SELECT value FROM json_each(task.shapes)))) WHERE digest = :digest"""

Say = Callable[[str], None]


class Store:
    """An open database. Make one with `open` or `open_in_memory`; as a context manager it closes itself.

    Several threads may use it; they take turns. Every method raises StoreError, with a sentence for the user, when the
    file cannot be used. While another program keeps it locked they wait; say is told so.
    """

    def __init__(self, database: Database, path: Path | str, say: Say = lambda text: None, write: bool = True) -> None:
        self.database = database
        self.write = write
        self.path = path
        self.say = say
        self._claimed: set[int] = set()
        self._turn = RLock()

    @classmethod
    def open(cls, path: str | Path = DEFAULT_DB, write: bool = True, say: Say = lambda text: None) -> Store:
        """Opens a file for writing (creates or migrates it if necessary) or for reading."""
        path = Path(path)
        if not write:
            return cls(database_file.open_for_reading(path), path, say, write=False)
        return cls(database_file.open_for_writing(path, say), path, say)

    @classmethod
    def open_in_memory(cls) -> Store:
        return cls(database_file.open_in_memory(), ":memory:")

    def claim_run(self, number: int) -> None:
        """Takes the right to write a run, until it is finished or the store closes. Raises RunBusy."""
        self._claim(number, f"run {number} of {self.path}")

    def claim_study(self, name: str) -> None:
        """Takes the right to write the runs of a study, until the store closes. Raises RunBusy."""
        self._claim(run_locks.number_study(name), f"the study {name} of {self.path}")

    def _claim(self, number: int, what: str) -> None:
        if isinstance(self.path, Path) and number not in self._claimed:
            with database_file.explain_errors(self.path):
                run_locks.claim(self.path, number, what)
            self._claimed.add(number)

    def _release(self, numbers: set[int]) -> None:
        if mine := self._claimed & numbers:
            run_locks.release(Path(self.path), mine)
            self._claimed -= mine

    def find_written_runs(self) -> set[int]:
        """The unfinished runs that some process writes now."""
        numbers = [r["id"] for r in self.query("SELECT id FROM run WHERE finished IS NULL")]
        return run_locks.find_written(Path(self.path), numbers)

    def close(self) -> None:
        """Closes the file, between transactions, and gives up the right to write its runs. Twice does nothing."""
        with self._turn:
            self.database.close()
            self._release(set(self._claimed))

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if error is not None and not self.write:
            with self.explain_contents():
                raise error

    @contextmanager
    def explain_contents(self) -> Iterator[None]:
        """Turns what rows that somebody else wrote lead to into a StoreError."""
        try:
            yield
        except (ValueError, LookupError, TypeError, AttributeError, KernelSyntaxError) as error:
            why = f"{type(error).__name__}: {error}"
            raise StoreError(f"{self.path} has rows that no kernelsearch writes ({why}): name another --db") from error

    # ------------------------------------------------------------ writing

    def add_run(self, task: TaskFacts, facts: RunFacts) -> Run:
        """Adds a new run that starts now, and claims it."""
        with self.transaction():
            self.add("task", own := rows.task_row(task), "OR IGNORE")
            self.database.execute(_MORE_SHAPES, own)
            row = rows.run_row(task, facts, rows.now())
            number = self.add("run", row)
            self.claim_run(number)
        return rows.run_of({**row, "id": number})

    def add_trial(self, run: Run, trial: Trial, structure: Structure | None = None) -> None:
        """Adds one trial with everything that belongs to it, in one transaction.

        structure says where its kernel came from, when the trial is the first of that kernel in the run.
        """
        candidate = rows.candidate_row(run.task, trial.kernel, trial.config)
        with self.transaction():
            if structure:
                self.add("kernel", rows.kernel_row(structure), "OR IGNORE")
                self.add("structure", rows.structure_row(run.id, structure))
            self.add("candidate", candidate, "OR IGNORE")
            self.add("trial", rows.trial_row(run.id, run.task, trial))
            for row in rows.hint_rows(run.id, trial):
                self.add("hint", row)
            if trial.outcome.measurement:
                self._add_measurement(candidate["digest"], trial.outcome.measurement, run.facts.versions)

    def refuse_trial(self, run: Run, trial: Trial, verdict: Verdict) -> None:
        """Replaces an accepted trial's verdict by one that rejects it; its times and hints are dropped.

        Later trials were chosen as if it were right: they stand, whatever the run would ask now.
        """
        outcome = replace(trial.outcome, verdict=verdict, measurement=None, hints=())
        row = rows.trial_row(run.id, run.task, replace(trial, outcome=outcome, score=None))
        with self.transaction():
            self._execute("DELETE FROM hint WHERE run = ? AND number = ?", [run.id, trial.number])
            self.add("trial", row, "OR REPLACE")
            self._execute(_LET_STAND, [run.id])

    def prove_trial(self, run: Run, trial: Trial, verdict: Verdict) -> None:
        """Replaces an accepted trial's verdict by one at full depth that accepts it too."""
        row = rows.trial_row(run.id, run.task, replace(trial, outcome=replace(trial.outcome, verdict=verdict)))
        names = ("stage", "reason", "depth", "error_ratio", "referee", "layers", "detail")
        with self.transaction():
            changes = f"UPDATE trial SET {', '.join(f'{name} = ?' for name in names)} WHERE run = ? AND number = ?"
            self._execute(changes, [*(row[name] for name in names), run.id, trial.number])

    def add_confirmation(
        self, task: TaskFacts, structure: Structure, config: Config, finding: Row, versions: Mapping[str, str]
    ) -> None:
        """Adds a finding (`report.findings.build_finding`) with its candidate, times and baselines, in one transaction.

        A finding at some shapes only (a champion's) does not replace a finding over all shapes.
        """
        row = rows.candidate_row(task.digest, structure.kernel.digest, config)
        candidate = row["digest"]
        with self.transaction():
            self.add("task", rows.task_row(task), "OR IGNORE")
            self.add("kernel", rows.kernel_row(structure), "OR IGNORE")
            self.add("candidate", row, "OR IGNORE")
            self._add_measurement(candidate, confirmation_rows.measurement_of(finding), versions)
            if not (finding.get("champion_at") and self._is_confirmed_whole(candidate, finding, versions)):
                confirmation = confirmation_rows.confirmation_row(candidate, finding, versions)
                self.add("confirmation", confirmation, "OR REPLACE")
            for row in confirmation_rows.baseline_rows(task.digest, finding, versions):
                self.add("baseline", row, "OR REPLACE")

    def add_measurements(self, run: Run, measured: Sequence[tuple[str, Config, Measurement]]) -> None:
        """Adds measurements of a run's kernels (digests) with these configs that are not trials."""
        with self.transaction():
            for kernel, config, measurement in measured:
                row = rows.candidate_row(run.task, kernel, config)
                self.add("candidate", row, "OR IGNORE")
                self._add_measurement(row["digest"], measurement, run.facts.versions)

    def _is_confirmed_whole(self, candidate: str, finding: Row, versions: Mapping[str, str]) -> bool:
        """True if the candidate was already confirmed over all shapes."""
        matches = self.query(
            """SELECT 1 FROM confirmation WHERE candidate = ? AND device = ? AND protocol = ? AND versions = ?
               AND status = 'confirmed' AND coalesce(json_array_length(detail, '$.champion_at'), 0) = 0""",
            [candidate, finding["device"], finding["protocol"], config_key(versions)],
        )
        return bool(matches)

    def add_ceilings(self, device: str, values: Mapping[str, float], versions: Mapping[str, str]) -> None:
        """Adds the best rates that a device reached; they stay until they are measured again."""
        common = dict(device=device, versions=config_key(versions), measured=rows.now())
        with self.transaction():
            for name, value in values.items():
                self.add("ceiling", dict(common, name=name, value=value), "OR REPLACE")

    def add_baseline(
        self,
        task: TaskFacts,
        shape: str,
        device: str,
        name: str,
        protocol: str,
        versions: Mapping[str, str],
        time_us: float | None,
        spread_us: float,
        failure: str | None = None,
    ) -> None:
        """Adds the time of one baseline at one shape, or why there is none."""
        where = {"device": device, "protocol": protocol, "versions": config_key(versions)}
        baseline = {"name": name, "time_us": time_us, "spread_us": spread_us, "failure": failure}
        with self.transaction():
            self.add("task", rows.task_row(task), "OR IGNORE")
            self.add("baseline", confirmation_rows.baseline_row(task.digest, shape, where, baseline), "OR REPLACE")

    def load_baselines(
        self, task: str, device: str, protocol: str, versions: Mapping[str, str]
    ) -> dict[tuple[str, str], float | None]:
        """Times of a task's baselines in microseconds by (shape, name), None where one failed."""
        matches = self.query(
            "SELECT * FROM baseline WHERE task = ? AND device = ? AND protocol = ? AND versions = ?",
            [task, device, protocol, config_key(versions)],
        )
        return {(r["shape"], r["name"]): r["time_us"] for r in matches}

    def add_call(self, run: Run, call: ModelCall) -> None:
        """Adds one request to a model with its prompt and answers, in one transaction."""
        with self.transaction():
            self.add("prompt", rows.prompt_row(call), "OR IGNORE")
            number = self.add("model_call", rows.call_row(run.id, call))
            for row in rows.answer_rows(number, call):
                self.add("answer", row)

    def set_budget(self, run: Run, trials: int) -> Run:
        """Changes the budget of a run, which is then unfinished again."""
        with self.transaction():
            self._execute("UPDATE run SET trials = ?, finished = NULL WHERE id = ?", [trials, run.id])
            self._execute(_LET_STAND, [run.id])
        return self.load_run(run.id)

    def finish_run(self, run: Run) -> None:
        with self.transaction():
            self._execute("UPDATE run SET finished = ? WHERE id = ?", [rows.now(), run.id])
        self._release({run.id})

    # ------------------------------------------------------------ reading

    def load_run(self, number: int) -> Run:
        matches = self.query("SELECT * FROM run WHERE id = ?", [number])
        if not matches:
            raise StoreError(f"{self.path} has no run {number}")
        return rows.run_of(matches[0])

    def load_runs(self, task: str | None = None) -> list[Run]:
        """All runs, newest first; task is a digest."""
        sql = "SELECT * FROM run WHERE :task IS NULL OR task = :task ORDER BY id DESC"
        return [rows.run_of(r) for r in self.query(sql, {"task": task})]

    def find_most_kernels(self, task: str) -> int:
        """How many candidates the table of a task (its digest) may have: the most that one of its runs was allowed."""
        return max((run.facts.kernels for run in self.load_runs(task)), default=rows.KERNELS)

    def load_trials(self, run: int, first: int = 0, count: int = -1) -> list[Trial]:
        """A run's trials in order: `count` numbers from `first` on, all of them by default."""
        numbers = [run, first, first + count if count >= 0 else MOST]
        hints: dict[int, list[Any]] = {}
        sql = "SELECT * FROM hint WHERE run = ? AND number >= ? AND number < ? ORDER BY number, position"
        for row in self.query(sql, numbers):
            hints.setdefault(row["number"], []).append(rows.hint_of(row))
        sql = """SELECT trial.*, candidate.config FROM trial JOIN candidate ON candidate.digest = trial.candidate
                 WHERE run = ? AND number >= ? AND number < ? ORDER BY number"""
        return [rows.trial_of(r, tuple(hints.get(r["number"], ()))) for r in self.query(sql, numbers)]

    def count_trials(self, run: int) -> int:
        """The number of trials of a run."""
        return self.query("SELECT count(*) AS n FROM trial WHERE run = ?", [run])[0]["n"]

    def load_calls(self, run: int) -> list[ModelCall]:
        """A run's requests to models in the order in which they were made."""
        answers: dict[int, list[Row]] = {}
        sql = """SELECT answer.* FROM answer JOIN model_call ON model_call.id = call WHERE run = ?
                 ORDER BY call, position"""
        for row in self.query(sql, [run]):
            answers.setdefault(row["call"], []).append(row)
        sql = """SELECT model_call.*, prompt.system, prompt.page FROM model_call
                 JOIN prompt ON prompt.digest = model_call.prompt WHERE run = ? ORDER BY id"""
        return [rows.call_of(r, answers.get(r["id"], ())) for r in self.query(sql, [run])]

    def load_evaluations(self, candidate: str = "", work: str = "") -> Iterator[tuple[Run, str, Outcome]]:
        """Up to 20 trials of a candidate or of a work digest, each as (its run, its candidate, its outcome).

        Races come first, then trials at full depth, then the newest ones. They are read lazily.
        """
        column, value = ("candidate", candidate) if candidate else ("work", work)
        matches = self.query(
            f"""SELECT run, number, candidate FROM trial WHERE {column} = ? AND {column} <> ''
                AND run NOT IN (SELECT id FROM run WHERE name LIKE '%{IMPORTED}')
                ORDER BY verdict = 'reject-race' DESC, depth = 'full' DESC, finished DESC LIMIT 20""",
            [value],
        )
        for row in matches:
            (trial,) = self.load_trials(row["run"], row["number"], 1)
            yield self.load_run(row["run"]), row["candidate"], trial.outcome

    def load_structures(self, run: int) -> dict[str, Structure]:
        """A run's kernels by digest, in the order of their first trials."""
        sql = """SELECT structure.*, kernel.source FROM structure JOIN kernel ON kernel.digest = structure.kernel
                 WHERE run = ? ORDER BY number"""
        return {r["kernel"]: rows.structure_of(r) for r in self.query(sql, [run])}

    def load_ceilings(self, device: str) -> dict[str, float]:
        """A device's measured ceilings by name; empty if they were never measured."""
        return {r["name"]: r["value"] for r in self.query("SELECT name, value FROM ceiling WHERE device = ?", [device])}

    def load_confirmations(self, task: str | None = None, device: str | None = None) -> list[dict[str, Any]]:
        """Findings of the confirmed protocol, the best against its fastest baseline first; task is a name or digest.

        If a candidate has several on one device (under other versions), only the newest counts.
        """
        matches = self.query(
            f"""SELECT c.*, max(c.measured) FROM confirmation AS c JOIN candidate ON candidate.digest = c.candidate
               JOIN task ON task.digest = candidate.task
               WHERE {OF_TASK} AND (:device IS NULL OR c.device = :device) GROUP BY c.candidate, c.device
               ORDER BY c.status <> 'confirmed', task.name, c.device, c.vs_fastest DESC""",
            {"task": task, "device": device},
        )
        return [confirmation_rows.finding_of(r) for r in matches]

    def refuse_unknown_task(self, task: str) -> None:
        """Raises StoreError, with names that may be meant, if no task has this name or digest."""
        known = self.query("SELECT name, digest FROM task")
        if not any(task in row.values() for row in known):
            near = suggest_names(Path(task).stem, (row["name"] for row in known))
            raise StoreError(f"{self.path} has no task {task!r}: {near}")

    def find_digest(self, prefix: str) -> str:
        """The digest of the one kernel that starts with a prefix. Raises StoreError if none or several do."""
        sql = "SELECT digest FROM kernel WHERE substr(digest, 1, ?) = ? LIMIT 3"
        matches = self.query(sql, [len(prefix), prefix.lower()])
        if not prefix or not matches:
            raise StoreError(f"{self.path} has no kernel {prefix!r}: `kernelsearch leaderboard` lists them")
        if len(matches) > 1:
            raise StoreError(f"{prefix!r} begins several digests, {matches[0]['digest']} among them: give more of it")
        return matches[0]["digest"]

    def query(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Rows of a SELECT as dicts; values in the order of its `?`, or by the names of its `:name`."""

        def select() -> list[Row]:
            cursor = self.database.conn.execute(sql, values)
            names = [d[0] for d in cursor.description]
            return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]

        with self._turn, database_file.explain_errors(self.path):
            return database_file.wait_while_locked(select, self.path, self.say)

    # ------------------------------------------------------------ details

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that has the right to write from its start, so that only its ends may wait."""
        connection = self.database.conn

        def insist(statement: str) -> None:
            database_file.wait_while_locked(lambda: connection.execute(statement), self.path, self.say)

        with self._turn, database_file.explain_errors(self.path):
            insist("BEGIN IMMEDIATE")
            try:
                yield
                insist("COMMIT")
            except BaseException:
                connection.rollback()
                raise

    def _add_measurement(self, candidate: str, measurement: Measurement, versions: Mapping[str, str]) -> None:
        for row in rows.measurement_rows(candidate, measurement, versions):
            self.add("measurement", row, "OR REPLACE")

    def add(self, table: str, row: Row, conflict: str = "") -> int:
        marks = ", ".join("?" * len(row))
        return self._execute(f"INSERT {conflict} INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    def _execute(self, sql: str, values: Sequence[Any]) -> int:
        return self.database.conn.execute(sql, values).lastrowid or 0
