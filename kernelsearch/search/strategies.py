"""Loads strategies by path: the shipped ones, a checkout's and a user's own.

A strategy's file runs with the driver's rights: it is the user's code, as trusted as the task file.
"""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelsearch.core.errors import StrategyError
from kernelsearch.core.types import content_digest
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


def load(name_or_path: str) -> ModuleType:
    """The module of a shipped strategy by name, or of any file by path. Raises StrategyError."""
    by_path = name_or_path.endswith(".py") or "/" in name_or_path
    path = Path(name_or_path) if by_path else strategies_folder() / f"{name_or_path}.py"
    if not path.is_file():
        if by_path:
            raise StrategyError(f"no strategy file {name_or_path}")
        raise StrategyError(
            f"unknown strategy {name_or_path!r}: one of {', '.join(list_shipped())}, or the path of a file"
        )
    module = _execute(path)
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
    module = load(name_or_path)
    known = [f.name for f in fields(module.Params)]
    unknown = [name for name in params if name not in known]
    if unknown:
        raise StrategyError(f"{name_or_path} has no parameter {unknown[0]!r}: it has {', '.join(known) or 'none'}")
    try:
        return module.Strategy(module.Params(**params), start)
    except (TypeError, ValueError) as error:
        raise StrategyError(f"{name_or_path} cannot be made: {error}") from error


def _execute(path: Path) -> ModuleType:
    name = f"kernelsearch_strategy_{path.stem}_{content_digest(str(path.resolve()))}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # where dataclasses look up annotations
    try:
        SourceFileLoader(name, str(path)).exec_module(module)
    except (SyntaxError, ImportError, NameError, AttributeError, TypeError, ValueError) as error:
        del sys.modules[name]
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise StrategyError(f"{path} cannot be loaded{line}: {type(error).__name__}: {error}") from error
    return module
