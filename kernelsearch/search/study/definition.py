"""Reads a study from a TOML file: its tasks, arms and seeds, at equal budget.

trials = 200
seeds = 5                                   # 0 to 4; or a list
baselines = ["eager", "compile"]            # timed where there is a GPU
[[task]]
path = "../column_sum/column_sum.py"        # from this file's folder
shapes = ["0"]                              # all timed shapes by default
[[arm]]
name = "evolve"                             # the first arm is the one that the others are compared with
strategy = "evolve"
params = { rewrite = 0.5 }                  # of the strategy
[[arm]]
name = "mixed"
strategy = "evolve"
models = ["openai:http://localhost:8000/v1#MODEL"]   # a bandit between edits, models and repairs; max_tokens = 500000,
# or max_usd = 0.5 with price = [0.1, 0.4] (US dollars for a million tokens in and out) limit each run of the arm.
# proposer = "openai:..." asks one model alone; `replay:FILE`, `hf:./FOLDER`: from this file's folder
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import ModelError, StrategyError, StudyError
from kernelsearch.propose import engines
from kernelsearch.propose.proposers import EDITS, ModelOptions
from kernelsearch.search import strategies

CHECKPOINTS = (25, 50, 100, 200)
BASELINES = ("eager", "compile", "max-autotune")
WINDOW = 16
"""Candidates in flight in each run. Equal for all arms and recorded, since an ask has not seen what is in flight."""


@dataclass(frozen=True)
class StudyTask:
    """A task of a study: its file, and the keys of its timed shapes (all by default)."""

    path: str
    shapes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return Path(self.path).stem


@dataclass(frozen=True)
class Arm:
    """One way to search: a strategy, its parameters, and who proposes.

    model is as in the file, and names the proposer in a run's record; opening is the same with paths from here.
    """

    name: str
    strategy: str
    params: Mapping[str, Any]
    model: ModelOptions
    opening: ModelOptions


@dataclass(frozen=True)
class Study:
    """Runs of every task with every arm and every seed, each for `trials` trials."""

    name: str
    tasks: tuple[StudyTask, ...]
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    trials: int = 200
    window: int = WINDOW
    checkpoints: tuple[int, ...] = CHECKPOINTS
    baselines: tuple[str, ...] = BASELINES


_TOP = ("name", "trials", "seeds", "window", "checkpoints", "baselines", "task", "arm")
_TASK = tuple(f.name for f in fields(StudyTask))
_ARM = ("name", "strategy", "proposer", "models", "max_tokens", "max_usd", "price", "params")
_FILES = ("replay", "hf", "vllm")
"""Engines whose model may be a file."""


def read_study(path: str | Path) -> Study:
    """The study of a file. Raises StudyError, one sentence that says what to change."""
    path = Path(path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{path} is not TOML: {error}") from None
    _refuse_unknown(path, table, _TOP, "the study")
    tasks = tuple(_task(path, t) for t in _tables(path, table, "task"))
    arms = tuple(_arm(path, a) for a in _tables(path, table, "arm"))
    for what, names in (("arm", [a.name for a in arms]), ("task", [t.name for t in tasks])):
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise StudyError(f"{path} has two {what}s named {twice!r}: give each its own name")
    trials = _count(path, table, "trials", 200)
    checkpoints = table.get("checkpoints", [n for n in CHECKPOINTS if n <= trials] or [trials])
    counts = isinstance(checkpoints, list) and checkpoints and all(_is_count(n) and n <= trials for n in checkpoints)
    _require(counts, f"{path}: checkpoints is a list of trial counts up to {trials}, not {checkpoints!r}")
    baselines = table.get("baselines", list(BASELINES))
    known = isinstance(baselines, list) and all(b in BASELINES for b in baselines)
    _require(known, f"{path}: baselines is a list of {', '.join(BASELINES)}, not {baselines!r}")
    name = table.get("name", path.resolve().parent.name if path.stem == "study" else path.stem)
    _require(isinstance(name, str) and name, f"{path}: name is a text, not {name!r}")
    window, points = _count(path, table, "window", WINDOW), tuple(sorted(set(checkpoints)))
    return Study(name, tasks, arms, _seeds(path, table), trials, window, points, tuple(baselines))


def _require(right: object, text: str) -> None:
    if not right:
        raise StudyError(text)


def _refuse_unknown(path: Path, table: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in table:
        _require(key in known, f"{path}: {what} has an unknown key {key!r}: the known ones are {', '.join(known)}")


def _tables(path: Path, table: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    tables = table.get(name)
    right = isinstance(tables, list) and tables and all(isinstance(t, dict) for t in tables)
    _require(right, f"{path} has no {name}: add at least one [[{name}]] table")
    return table[name]


def _task(path: Path, table: Mapping[str, Any]) -> StudyTask:
    _refuse_unknown(path, table, _TASK, "a [[task]]")
    file, shapes = table.get("path"), table.get("shapes", [])
    _require(isinstance(file, str), f"{path}: each [[task]] needs its path, a text")
    whole = path.parent / str(file)
    _require(whole.is_file(), f"{path}: there is no task file {whole}")
    _require(_are_texts(shapes), f'{path}: shapes of {file} is a list of texts such as ["0"], not {shapes!r}')
    return StudyTask(str(whole), tuple(shapes))


def _arm(path: Path, table: Mapping[str, Any]) -> Arm:
    _refuse_unknown(path, table, _ARM, "an [[arm]]")
    strategy, shipped = table.get("strategy", table.get("name")), ", ".join(strategies.list_shipped())
    _require(isinstance(strategy, str), f"{path}: each [[arm]] needs its strategy, one of {shipped} or a file")
    name, params = table.get("name", strategy), table.get("params", {})
    right = isinstance(name, str) and isinstance(params, dict)
    _require(right, f"{path}: arm {name!r}: name is a text, params is a table")
    model = _model(path, name, table)
    if strategy.endswith(".py") or "/" in strategy:
        strategy = str(path.parent / strategy)
    try:
        strategies.check_params(strategy, params)
    except StrategyError as error:
        raise StudyError(f"{path}: {error}") from None
    return Arm(name, strategy, params, model, _resolve(path.parent, model))


def _model(path: Path, arm: str, table: Mapping[str, Any]) -> ModelOptions:
    """Who proposes in an arm. Errors about command-line options name the file's keys instead."""
    models, price = table.get("models", []), table.get("price")
    proposer = table.get("proposer", "" if models else EDITS)
    where, tokens, usd = f"{path}: arm {arm!r}", table.get("max_tokens"), table.get("max_usd")
    right = isinstance(proposer, str) and _are_texts(models)
    _require(right, f"{where}: proposer is a text, models is a list of texts")
    right = price is None or (isinstance(price, list) and len(price) == 2 and all(map(_is_amount, price)))
    _require(right, f"{where}: price is two numbers of US dollars for a million tokens, in and out")
    right = (tokens is None or _is_count(tokens)) and (usd is None or _is_amount(usd))
    _require(right, f"{where}: max_tokens is a whole number above 0, max_usd a number")
    try:
        return ModelOptions(proposer, tuple(models), tokens, usd, tuple(price) if price else None)
    except ModelError as error:
        raise StudyError(f"{where}: {_options_to_keys(str(error))}") from None


def _options_to_keys(text: str) -> str:
    """Rewrites an error about command-line options so that it names the file's keys."""
    for option in ("max-tokens", "max-usd", "proposer", "price", "record", "model"):
        text = text.replace(f"--{option}", "models" if option == "model" else option.replace("-", "_"))
    return text


def _resolve(folder: Path, model: ModelOptions) -> ModelOptions:
    """The same models, with the paths of those that are files taken from the study's folder."""

    def resolve(spec: str) -> str:
        kind, colon, rest = spec.partition(":")
        file = kind == "replay" or rest.startswith(("./", "../"))
        return f"{kind}:{folder / rest}" if colon and kind in _FILES and file else spec

    def resolve_roles(text: str) -> str:
        pairs = engines.split_roles(text)
        return resolve(text) if pairs[0][1] == text else ",".join(f"{role}={resolve(spec)}" for role, spec in pairs)

    return replace(model, proposer=resolve_roles(model.proposer), models=tuple(map(resolve_roles, model.models)))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _count(path: Path, table: Mapping[str, Any], name: str, default: int) -> int:
    value = table.get(name, default)
    _require(_is_count(value), f"{path}: {name} is a whole number above 0, not {value!r}")
    return value


def _seeds(path: Path, table: Mapping[str, Any]) -> tuple[int, ...]:
    value = table.get("seeds", 5)
    seeds = list(range(value)) if _is_count(value) else value
    whole = isinstance(seeds, list) and all(isinstance(s, int) and not isinstance(s, bool) for s in seeds)
    right = whole and seeds and len(set(seeds)) == len(seeds)
    _require(right, f"{path}: seeds is how many (above 0), or a list of different whole numbers, not {value!r}")
    return tuple(seeds)
