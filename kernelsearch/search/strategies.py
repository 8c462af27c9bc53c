"""Loads strategies by path: the shipped ones, a checkout's and a user's own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelsearch.core import plugins
from kernelsearch.core.errors import StrategyError
from kernelsearch.core.types import Proposal, Trial, content_digest
from kernelsearch.search.contract import Start, Strategy

DEFAULT = "evolve"


def strategies_folder() -> Path:
    """The folder of the shipped strategies: inside an installed package, else at the root of the checkout."""
    here = Path(__file__).resolve().parents[1]
    packed = here / "_strategies"
    return packed if packed.is_dir() else here.parent / "strategies"


def list_shipped() -> tuple[str, ...]:
    """The names that `load` knows without a path."""
    return tuple(sorted(p.stem for p in strategies_folder().glob("*.py") if not p.stem.startswith("_")))


def is_path(name_or_path: str) -> bool:
    """Whether a strategy is named by a file of its own."""
    return name_or_path.endswith(".py") or "/" in name_or_path


def load(name_or_path: str) -> ModuleType:
    """The module of a shipped strategy by name, or of any file by path. Raises StrategyError."""
    by_path = is_path(name_or_path)
    path = Path(name_or_path) if by_path else strategies_folder() / f"{name_or_path}.py"
    if not path.is_file():
        if by_path:
            raise StrategyError(f"no strategy file {name_or_path}")
        raise StrategyError(
            f"unknown strategy {name_or_path!r}: one of {', '.join(list_shipped())}, or the path of a file"
        )
    name = f"kernelsearch_strategy_{path.stem}_{content_digest(str(path.resolve()))}"
    module = plugins.execute_file(path, name, StrategyError)
    if not isinstance(getattr(module, "Strategy", None), type):
        raise StrategyError(f"{path} defines no class Strategy")
    if not is_dataclass(getattr(module, "Params", None)):
        raise StrategyError(f"{path} defines no dataclass Params")
    if not issubclass(module.Strategy, Strategy):  # a user's class need not inherit: here it gets the defaults
        vars(module)["Strategy"] = type("Strategy", (module.Strategy, Strategy), {})
    if missing := sorted(module.Strategy.__abstractmethods__):
        raise StrategyError(f"{path}: class Strategy has no method {' and no '.join(missing)}")
    return module


def make(name_or_path: str, start: Start, **params: Any) -> Strategy:
    """A strategy ready to be asked; params override its defaults by name. Raises StrategyError."""
    module = check_params(name_or_path, params)
    with plugins.blame(name_or_path, StrategyError, "cannot be made"):
        strategy = module.Strategy(module.Params(**params), start)
    return OwnStrategy(strategy, name_or_path) if is_path(name_or_path) else strategy


class OwnStrategy(Strategy):
    """A strategy of a user's file: what it raises, and an answer that is none, is a StrategyError on that file."""

    def __init__(self, strategy: Strategy, path: str) -> None:
        self.strategy, self.path = strategy, path
        self.rewrites, self.ordered = strategy.rewrites, strategy.ordered

    def ask(self, number: int) -> Proposal | None:
        with self._blame(f"fails in ask({number})"):
            proposal = self.strategy.ask(number)
            if not isinstance(proposal, Proposal | None):
                raise TypeError(f"the answer is a Proposal or None, not {proposal!r}")
            return proposal

    def tell(self, trial: Trial) -> None:
        with self._blame(f"fails when it is told trial {trial.number}"):
            self.strategy.tell(trial)

    def expect(self, kernel: str, ratio: float) -> None:
        with self._blame("fails in expect()"):
            self.strategy.expect(kernel, ratio)

    def weights(self) -> Mapping[str, float]:
        with self._blame("fails in weights()"):
            return {str(edit): float(odds) for edit, odds in self.strategy.weights().items()}

    def _blame(self, what: str) -> AbstractContextManager[None]:
        return plugins.blame(self.path, StrategyError, what, "; mend it: --resume goes on with a search")


def read_params(texts: Iterable[str]) -> dict[str, Any]:
    """Parameters as they are typed, `name=value`; values are Python literals, else words. Raises StrategyError."""
    params = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise StrategyError(f"--param {text}: write it as name=value")
        try:
            params[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            params[name] = {"true": True, "false": False, "none": None}.get(value.lower(), value)
    return params


def check_params(name_or_path: str, params: Mapping[str, Any]) -> ModuleType:
    """The strategy's module. Raises StrategyError for a parameter that it has not, or of another type than its default.

    A whole number is a float, too; where there is no default, or None, any type will do.
    """
    module = load(name_or_path)
    known = {f.name: f.default for f in fields(module.Params)}
    for name, value in params.items():
        if name not in known:
            raise StrategyError(f"{name_or_path} has no parameter {name!r}: it has {', '.join(known) or 'none'}")
        kind = type(known[name])
        if kind in (bool, int, float, str) and type(value) not in ((int, float) if kind is float else (kind,)):
            raise StrategyError(f"{name_or_path}: {name} is of type {kind.__name__}, and {value!r} is not")
    return module
