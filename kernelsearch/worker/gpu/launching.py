"""What an intercepted launch of the user's launcher does on a GPU: a candidate's binaries in place of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernelsearch.kernel.launch import Bound, Passed, Scratch, Specialisation, Step, bind
from kernelsearch.worker.messages.jobs import Candidate, spec_key

if TYPE_CHECKING:
    import torch


class Missing(Exception):
    """A launch needs binaries that were not sent."""

    def __init__(self, specs: list[tuple[Specialisation, bool]]) -> None:
        super().__init__("missing binaries")
        self.specs = specs


class GuardBroken(Exception):
    """A launch wrote outside its buffers."""


def launched(function: Any, step: Step, args: dict[str, Any]) -> None:
    """One device launch on the tensors that it is given."""
    function.launch(step.grid, [args[n] for n, _ in function.binary.params])


class Launcher:
    """What an intercepted launch does: binds the candidate, finds the binary, launches it.

    Bindings are kept per (site, argument facts), so that a timed call pays for planning once. fill is what scratch
    starts with: poison (None), a value, or False for what the memory held before. `wipe`, to be called outside of the
    clock, poisons the scratch of the calls since the last one, so that no call finds what an earlier one left there.
    """

    def __init__(
        self,
        candidate: Candidate,
        binaries: Mapping[str, Any],
        execute: Callable[..., None],
        fill: float | None | bool = False,
    ) -> None:
        self.candidate, self.binaries, self.execute, self.fill = candidate, binaries, execute, fill
        self.bound: dict[Any, tuple[Bound, list[Any]]] = {}
        self.used: list[torch.Tensor] = []

    def __call__(self, launch: Any) -> None:
        from kernelsearch.worker.launcher import tensors, trace

        fact = trace.launch_fact(launch, self.candidate.config)
        key = repr(fact) if fact.grid is not None else None
        if key is None or key not in self.bound:
            found = self._bind(fact, launch)
            if key is not None:
                self.bound[key] = found
        else:
            found = self.bound[key]
        bound, functions = found
        launch.run_pre_hooks(self.candidate.config)
        scratch = {n: tensors.scratch(b, "cuda", self.fill) for n, b in bound.plan.scratch.items()}
        self.used += scratch.values()
        for name, value in bound.plan.init.items():
            launch.args[name].fill_(value)
        for step, function in zip(bound.plan.steps, functions, strict=True):
            args = {
                n: launch.args[a.name] if isinstance(a, Passed) else scratch[a.name] if isinstance(a, Scratch) else a
                for n, a in step.args.items()
            }
            self.execute(function, step, args)

    def wipe(self) -> None:
        from kernelsearch.worker.launcher.standin import fill_with_poison

        for buffer in self.used:
            fill_with_poison(buffer)
        self.used.clear()

    def _bind(self, fact: Any, launch: Any) -> tuple[Bound, list[Any]]:
        c = self.candidate
        bound = bind(c.kernel, c.config, c.seed, c.seed_config, c.sites, fact, launch.resolve_grid, c.target.num_sms)
        specs = bound.specialisations(fact)
        missing = [(s, bound.of_seed) for s in specs if spec_key(s, bound.of_seed) not in self.binaries]
        if missing:
            raise Missing(missing)
        return bound, [_function(self.binaries[spec_key(s, bound.of_seed)]) for s in specs]


@lru_cache(maxsize=64)
def _loaded(identity: str, name: str) -> Any:
    from kernelsearch.worker.gpu.cuda import Function

    return Function(_PENDING[identity])


_PENDING: dict[str, Any] = {}


def _function(binary: Any) -> Any:
    key = f"{binary.identity}/{binary.params!r}/{binary.num_warps}"
    _PENDING.clear()
    _PENDING[key] = binary
    return _loaded(key, binary.name)


@lru_cache(maxsize=4)
def task_of(path: str) -> Any:
    import torch

    from kernelsearch.worker.launcher import trace

    torch.zeros(1, device="cuda")  # makes the context that the driver API launches in
    return trace.open_task(path)


_CASES: dict[tuple[str, str], Any] = {}


def case_of(task: Any, shape: str) -> Any:
    """The case of a shape, for its launcher and reference; its inputs are dropped, as others are used."""
    key = (task.digest, shape)
    if key not in _CASES:
        _CASES[key] = task.build(shape, 0, "cuda")
    return _CASES[key]
