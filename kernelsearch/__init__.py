"""kernelsearch finds the fastest Triton kernel that it can prove right.

For scripts and notebooks: `optimize`, `verify`, `measure`, `leaderboard`, `best_config`, `explain`, `add_edit`, with
the results and options that they name. `help(kernelsearch.optimize)` explains each; nothing heavy is imported before
one is used.
"""

import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kernelsearch.api.boards import best_config as best_config
    from kernelsearch.api.boards import leaderboard as leaderboard
    from kernelsearch.api.measurement import MeasureOptions as MeasureOptions
    from kernelsearch.api.measurement import measure as measure
    from kernelsearch.api.optimization import optimize as optimize
    from kernelsearch.api.optimize_options import OptimizeOptions as OptimizeOptions
    from kernelsearch.api.results import FoundKernel as FoundKernel
    from kernelsearch.api.results import JudgedKernel as JudgedKernel
    from kernelsearch.api.results import Leaderboard as Leaderboard
    from kernelsearch.api.results import LeaderboardRow as LeaderboardRow
    from kernelsearch.api.results import MeasureResult as MeasureResult
    from kernelsearch.api.results import OptimizeResult as OptimizeResult
    from kernelsearch.api.verification import verify as verify
    from kernelsearch.core.errors import KernelsearchError as KernelsearchError
    from kernelsearch.core.types import Verdict as Verdict
    from kernelsearch.graphs.model_options import options as options
    from kernelsearch.propose.edits import add_edit as add_edit
    from kernelsearch.trial.referee import explain as explain
    from kernelsearch.worker.judging.own_reference import kernel_as_reference as kernel_as_reference

_PLACES = {
    "api.boards": "best_config leaderboard",
    "api.measurement": "MeasureOptions measure",
    "api.optimization": "optimize",
    "api.optimize_options": "OptimizeOptions",
    "api.results": "FoundKernel JudgedKernel Leaderboard LeaderboardRow MeasureResult OptimizeResult",
    "api.verification": "verify",
    "core.errors": "KernelsearchError",
    "core.types": "Verdict",
    "graphs.model_options": "options",
    "propose.edits": "add_edit",
    "trial.referee": "explain",
    "worker.judging.own_reference": "kernel_as_reference",
}
_HOMES = {name: module for module, names in _PLACES.items() for name in names.split()}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    """Imports a public name where it is used first."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)


class _Package(_ModuleType):
    """Keeps `kernelsearch.verify` and `kernelsearch.measure` functions: the rooms of these names are only imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES or not isinstance(value, _ModuleType):
            super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
