"""`--configs autotune`: a kernel with `@triton.autotune` over the few best configs of one timed shape.

Tuning happens at the user's first call near that shape. It needs a kernel that is one launch on its own: where several
launches share a config or a scratch buffer there is no single launch to tune. Nor is there one where an argument follows
a tuned number (`EVEN` follows BLOCK) together with what only the launcher knows, nor where running a launch many times
changes its answer. Of such a kernel the package times whole calls instead (`_tune.py`), with the same few configs.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from kernelsearch.core.parsing import parsed
from kernelsearch.core.types import LAUNCH_OPTIONS, Config, config_key
from kernelsearch.export.choose import Found
from kernelsearch.export.errors import ExportError
from kernelsearch.export.launches import INDENT, Site, _expression, _filled, how_launched, launch_name
from kernelsearch.export.part import Part
from kernelsearch.kernel.source import Function, Kernel
from kernelsearch.kernel.space import config_of

DEFAULTS = {"num_warps": 4, "num_stages": 3}
"""Triton's own."""


def autotuned(part: Part, kernel: Kernel, shape: str, found: Found, number: int) -> tuple[str, dict[str, str]]:
    """(Autotuned kernels and their launch functions, the functions' names by site) for one timed shape."""
    texts, names = [], {}
    for site, steps in part.sites_of(kernel.digest).values():
        _refuse(part, kernel, site, steps)
        function = kernel.function(steps[0])
        facts = [f for f in part.examined.facts.traces[shape].launches if f.site == site.name]
        passed = facts[0].options if facts else {}
        configs = [_own(c, function, passed) for c in (found.config, *found.others.get(shape, ()))]
        unique = list({config_key(c): c for c in configs if set(c) == set(configs[0])}.values())
        texts.append(_Tuned(site, kernel, function, unique, number).text())
        names[site.name] = f"{launch_name(site.name)}_{number}"
    return "\n\n".join(texts), names


def as_whole(part: Part) -> dict[str, str]:
    """The found kernels that `@triton.autotune` cannot tune, by digest, and why."""
    found = {f.digest: f.kernel for f in part.chosen.found}
    left: dict[str, str] = {}
    for digest, kernel in found.items():
        try:
            for number, (shape, candidate) in enumerate(part.buckets(digest)):
                autotuned(part, kernel, shape, candidate, number)
        except ExportError as error:
            left[digest] = str(error)
    return left


def _refuse(part: Part, kernel: Kernel, site: Site, steps: tuple[str, ...]) -> None:
    why = ""
    if len(steps) != 1:
        why = f"launches {len(steps)} functions that share a config"
    elif any(p in kernel.scratch for p in kernel.function(steps[0]).params):
        why = "has scratch buffers whose size follows the config"
    elif part.examined.task.mutates:
        why = "changes its inputs, and tuning runs it many times"
    elif any(v != 0 for v in kernel.init.values()):
        why = "needs outputs that start at a value other than 0"
    if why:
        raise ExportError(f"kernel {kernel.digest[:8]} of {part.name} cannot be autotuned: it {why}")


def _own(config: Config, function: Function, passed: Mapping[str, Any]) -> dict[str, Any]:
    """The config as this function sees it, with the launch options that hold without one."""
    own = {n: v for n, v in config_of(config, function.name).items() if n in function.constexprs or n in LAUNCH_OPTIONS}
    options = {n: v for n, v in {**DEFAULTS, **passed}.items() if n in LAUNCH_OPTIONS}
    return {n: v for n, v in {**options, **own}.items() if v is not None}


class _Tuned:
    def __init__(
        self, site: Site, kernel: Kernel, function: Function, configs: list[dict[str, Any]], number: int
    ) -> None:
        self.site, self.kernel, self.function, self.number = site, kernel, function, number
        self.configs = configs
        self.tuned = [
            n for n in configs[0] if n not in LAUNCH_OPTIONS and not any(isinstance(c[n], str) for c in configs)
        ]

    def text(self) -> str:
        name = f"{self.function.name}_{self.number}"
        lines = [f"{name} = triton.autotune(", f"{INDENT}configs=["]
        lines += [f"{INDENT * 2}{self._config(c)}," for c in self.configs]
        zeroed = [n for n in self.kernel.init if n in self.function.params]
        again = f", reset_to_zero={zeroed!r}" if zeroed else ""
        lines += [f"{INDENT}],", f"{INDENT}key=[]{again},", f")({self.function.name})", "", ""]
        lines += [f"def {launch_name(self.site.name)}_{self.number}("]
        lines += [INDENT + p for p in _filled(["tuned", "grid", *self._parameters(), "**options"])]
        lines += ["):", f'{INDENT}"""Launches `{name}`, whose config is tuned at the first call."""', ""]
        lines += [f"{INDENT}def size(meta):", f"{INDENT * 2}return {self._grid()}", ""]
        lines += [f"{INDENT}{n}.fill_(0)" for n in zeroed]
        lines += [f"{INDENT}{how_launched(self.function)}({name})[size]("]
        lines += [INDENT * 2 + line for line in _filled(self._arguments())]
        return "\n".join([*lines, f"{INDENT})"]) + "\n"

    def _config(self, config: Mapping[str, Any]) -> str:
        values = ", ".join(f'"{n}": {config[n]!r}' for n in self.tuned)
        options = ", ".join(f"{n}={v!r}" for n, v in config.items() if n in LAUNCH_OPTIONS)
        return f"triton.Config({{{values}}}, {options})"

    def _parameters(self) -> list[str]:
        parts, optional = [], False
        for name in self.site.params:
            optional = optional or name not in self.site.passed or name in self.site.defaults
            parts.append(name + (f"={self.site.defaults.get(name)!r}" if optional else ""))
        return parts

    def _arguments(self) -> list[str]:
        parts, positional = [], True
        expressions = self.kernel.args.get(self.function.name, {})
        for name in self.function.params:
            if name in self.tuned:
                positional = False
                continue
            given = {c[name] for c in self.configs if name in c}
            if len(given) == 1 and isinstance(next(iter(given)), str):
                value = self._code(next(iter(given)))
            elif given:
                raise ExportError(
                    f"kernel {self.kernel.digest[:8]} cannot be autotuned: {name} is an expression in some configs"
                )
            elif name in expressions:
                value = self._code(expressions[name])
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

    def _grid(self) -> str:
        text = self.kernel.grid.get(self.function.name)
        if text is None:
            return self._own_grid()
        code = self._code(text, in_grid=True)
        return code if isinstance(parsed(text.strip(), "eval").body, ast.Tuple) else f"({code},)"

    def _own_grid(self) -> str:
        names = [f"{n}={self._value(n, True)}" for n in self.site.params if n in self.site.passed or n in self.tuned]
        return f"own_grid(grid, {', '.join(names)})"

    def _code(self, text: str, in_grid: bool = False) -> str:
        tree = parsed(text.strip(), "eval").body
        return _expression(tree, lambda n: self._value(n, in_grid), lambda n: n, self._own_grid)

    def _value(self, name: str, in_grid: bool) -> str:
        if name == "num_sms":
            return f"num_sms({self.site.tensor})"
        if name in self.tuned:
            if not in_grid:
                raise ExportError(
                    f"kernel {self.kernel.digest[:8]} cannot be autotuned: an argument follows {name}, "
                    "which tuning changes"
                )
            return f'meta["{name}"]'
        expressions = self.kernel.args.get(self.function.name, {})
        if name in expressions:
            return f"({self._code(expressions[name], in_grid)})"
        return name
