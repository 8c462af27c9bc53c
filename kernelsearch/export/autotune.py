"""`--configs autotune`: a kernel with `@triton.autotune` over the few best configs of one timed shape.

Tuning happens at the user's first call near that shape. Triton can tune only a kernel that is one launch on its own. It
cannot where several launches share a config or a scratch buffer, where an argument depends on a tuned number (`EVEN` on
BLOCK) and on a value that only the launcher knows, or where running a launch many times changes its answer. For such a
kernel the package times whole calls instead (`_tune.py`), with the same few configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelsearch.core import formats
from kernelsearch.core.types import LAUNCH_OPTIONS, Config, config_key
from kernelsearch.export import ExportError, render
from kernelsearch.export.choose import ExportCandidate
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.export.launches import Site, as_tuple, choose_launch_helper, launch_name, write_call, write_expression
from kernelsearch.kernel.source import Function, Kernel
from kernelsearch.kernel.space import config_of

DEFAULTS = {"num_warps": 4, "num_stages": 3}
"""Triton's own launch options."""


def write_autotuned(
    part: ExportedTask, kernel: Kernel, shape: str, found: ExportCandidate, number: int
) -> tuple[str, dict[str, str]]:
    """(Autotuned kernels and their launch functions, the functions' names by site) for one timed shape.

    Raises ExportError where `@triton.autotune` cannot tune the kernel.
    """
    texts, names = [], {}
    for site, steps in part.sites_of(kernel.digest).values():
        _check_tunable(part, kernel, site, steps)
        function = kernel.function(steps[0])
        facts = [f for f in part.examined.facts.traces[shape].launches if f.site == site.name]
        passed = facts[0].options if facts else {}
        configs = [_config_of(c, function, passed) for c in (found.config, *found.others.get(shape, ()))]
        unique = list({config_key(c): c for c in configs if set(c) == set(configs[0])}.values())
        texts.append(_TunedWriter(site, kernel, function, unique, number).write())
        names[site.name] = f"{launch_name(site.name)}_{number}"
    return "\n\n".join(texts), names


def find_untunable(part: ExportedTask) -> dict[str, str]:
    """The found kernels that `@triton.autotune` cannot tune, by digest, and why."""
    reasons: dict[str, str] = {}
    for digest, kernel in {f.digest: f.kernel for f in part.chosen.found}.items():
        try:
            for number, (shape, candidate) in enumerate(part.buckets(digest)):
                write_autotuned(part, kernel, shape, candidate, number)
        except ExportError as error:
            reasons[digest] = str(error)
    return reasons


def _check_tunable(part: ExportedTask, kernel: Kernel, site: Site, steps: tuple[str, ...]) -> None:
    why = ""
    if site.ruled:
        why = "runs where its heuristics depend on the config"
    elif len(steps) != 1:
        why = f"launches {len(steps)} functions that share a config"
    elif any(p in kernel.scratch for p in kernel.function(steps[0]).params):
        why = "has scratch buffers whose size depends on the config"
    elif site.described or kernel.descriptors_of(steps[0]):
        why = "takes tensor descriptors whose tiles depend on the config"
    elif part.examined.task.mutates:
        why = "changes its inputs, and tuning runs it many times"
    elif any(v != 0 for v in kernel.init.values()):
        why = "needs outputs that start at a value other than 0"
    if why:
        raise ExportError(f"kernel {kernel.digest[:8]} of {part.name} cannot be autotuned: it {why}")


def _config_of(config: Config, function: Function, passed: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a config that this function reads, with the launch options that hold without one."""
    own = {n: v for n, v in config_of(config, function.name).items() if n in function.constexprs or n in LAUNCH_OPTIONS}
    options = {n: v for n, v in {**DEFAULTS, **passed}.items() if n in LAUNCH_OPTIONS}
    return {n: v for n, v in {**options, **own}.items() if v is not None}


class _TunedWriter:
    """Writes one autotuned kernel and its launch function; tuned are the constexprs that Triton chooses."""

    def __init__(
        self, site: Site, kernel: Kernel, function: Function, configs: list[dict[str, Any]], number: int
    ) -> None:
        self.site, self.kernel, self.function, self.number = site, kernel, function, number
        self.configs = configs
        self.args = kernel.args.get(function.name, {})
        self.tuned = [
            n for n in configs[0] if n not in LAUNCH_OPTIONS and not any(isinstance(c[n], str) for c in configs)
        ]

    def write(self) -> str:
        name = f"{self.function.name}_{self.number}"
        return render(
            "tuned.py.jinja",
            name=name,
            function=self.function.name,
            configs=[formats.format_triton_config(self._tuned_values(c)) for c in self.configs],
            zeroed=[n for n in self.kernel.init if n in self.function.params],
            grid=self._grid_code(),
            head=write_call(
                f"def {launch_name(self.site.name)}_{self.number}(",
                ["tuned", "grid", *self.site.signature(), "**options"],
                "):",
            ),
            call=write_call(f"{choose_launch_helper(self.function)}({name})[size](", self._arguments()),
        )

    def _tuned_values(self, config: Mapping[str, Any]) -> dict[str, Any]:
        options = {n: v for n, v in config.items() if n in LAUNCH_OPTIONS}
        return {n: config[n] for n in self.tuned} | options

    def _arguments(self) -> list[str]:
        parts, positional = [], True
        for name in self.function.params:
            if name in self.tuned:
                positional = False
                continue
            given = {c[name] for c in self.configs if name in c}
            if len(given) == 1 and isinstance(text := next(iter(given)), str):
                value = self._code(text)
            elif given:
                raise self._refusal(f"{name} is an expression in some configs")
            elif name in self.args:
                value = self._code(self.args[name])
            elif name in self.site.passed:
                value = name
            elif name in self.function.defaults:
                value = repr(self.function.defaults[name])
            else:
                raise ExportError(f"argument {name!r} of {self.function.name} has no value")
            positional = positional and name not in self.function.constexprs
            parts.append(value if positional else f"{name}={value}")
        tuned = tuple(n for n in LAUNCH_OPTIONS if n in self.configs[0])
        return [*parts, f"**{{n: v for n, v in options.items() if n not in {tuned!r}}}"]

    def _grid_code(self) -> str:
        text = self.kernel.grid.get(self.function.name)
        return self._launcher_grid() if text is None else as_tuple(text, self._code(text, in_grid=True))

    def _launcher_grid(self) -> str:
        names = [f"{n}={self._value(n, True)}" for n in self.site.params if n in self.site.passed or n in self.tuned]
        return f"own_grid(grid, {', '.join(names)})"

    def _code(self, text: str, in_grid: bool = False) -> str:
        return write_expression(text, lambda n: self._value(n, in_grid), lambda n: n, self._launcher_grid)

    def _value(self, name: str, in_grid: bool) -> str:
        if name == "num_sms":
            return f"num_sms({self.site.tensor})"
        if name in self.tuned:
            if not in_grid:
                raise self._refusal(f"an argument depends on {name}, which tuning changes")
            return f'meta["{name}"]'
        if name in self.args:
            return f"({self._code(self.args[name], in_grid)})"
        if name not in self.site.passed:
            raise self._refusal(f"its grid depends on {name}, which is not a constexpr of the kernel")
        return name

    def _refusal(self, why: str) -> ExportError:
        return ExportError(f"kernel {self.kernel.digest[:8]} cannot be autotuned: {why}")
