"""Turns a kernel's launch spec into plain Python: what happens where the launcher launches a site.

The same rules as `launch.plan`, written out once as readable code instead of being evaluated at every launch. The
expressions were parsed and checked by `expressions`; the code here is made from their trees, never from their text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelsearch.core.errors import ExpressionError
from kernelsearch.core.parsing import parsed
from kernelsearch.core.types import LAUNCH_OPTIONS, Config
from kernelsearch.export.errors import ExportError
from kernelsearch.kernel.expressions import validate
from kernelsearch.kernel.launch import TRITON_DTYPES
from kernelsearch.kernel.source import Function, Kernel, setting_names

INDENT = "    "
_STALE = "?"


@dataclass(frozen=True)
class Site:
    """One launch of the launcher: the parameters of its kernel in order, those that get a value there, defaults.

    passed are the names that have a value in every launch; defaults are literals of the others (None where a
    decorator of the seed gave the value); tensor is a parameter that is a tensor, whose device scratch buffers take;
    fixed_grid says that the launcher's grid is no function of the constexprs.
    """

    name: str
    params: tuple[str, ...]
    passed: frozenset[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    tensor: str | None = None
    fixed_grid: bool = False


def launch_name(site: str) -> str:
    """The generated function's name."""
    return f"launch_{site}"


def launch_function(site: Site, kernel: Kernel, steps: Sequence[str], configs: Sequence[Config]) -> str:
    """The text of the function that launches `steps` of kernel at a site, under any of these configs.

    It takes the config (`tuned`), the launcher's grid, and what the launcher passes. Raises ExportError.
    """
    try:
        return _Writer(site, kernel, configs).function(steps)
    except ExpressionError as error:
        raise ExportError(f"the launch of {site.name} cannot be written as Python: {error}") from None


class _Writer:
    def __init__(self, site: Site, kernel: Kernel, configs: Sequence[Config]) -> None:
        self.site, self.kernel, self.configs = site, kernel, configs
        self.lines: list[str] = []
        self.saved: dict[str, str] = {}  # launcher's values that a later step needs after a first one rebound them
        self.bound: dict[str, str] = {}  # variable -> the code that it was assigned
        self.tuned, self.grid, self.options = (self._free(n) for n in ("tuned", "grid", "options"))
        self.known: dict[str, str] = {}  # of the step in hand: name -> variable

    def function(self, steps: Sequence[str]) -> str:
        for number, name in enumerate(steps):
            self._step(self.kernel.function(name), steps if number == 0 else ())
        prelude = [f"{new} = {name}" for name, new in self.saved.items()]
        names = ", then ".join(f"`{s}`" for s in steps)
        head = (
            f"def {launch_name(self.site.name)}(\n" + "\n".join(INDENT + p for p in _filled(self._signature())) + "\n):"
        )
        body = [f'"""Launches {names}."""', *prelude, *self.lines]
        return "\n".join([head, *(INDENT + line for line in body)]) + "\n"

    def _signature(self) -> list[str]:
        parts, optional = [self.tuned, self.grid], False
        for name in self.site.params:
            optional = optional or name not in self.site.passed or name in self.site.defaults
            default = f"={self.site.defaults.get(name)!r}" if optional else ""
            parts.append(name + default)
        return [*parts, f"**{self.options}"]

    def _free(self, name: str) -> str:
        taken = {*self.site.params, *self.kernel.names, *(p for f in self.kernel.functions for p in f.params)}
        while name in taken:
            name += "_"
        return name

    # ------------------------------------------------------------ one launch

    def _step(self, function: Function, all_steps: Sequence[str]) -> None:
        self.known = {}
        expressions = self.kernel.args.get(function.name, {})
        late = []
        for name in function.constexprs:
            code = self._tuned(function.name, name, lambda name=name: self._untuned(name, function))
            if code is not None:
                self._assign(function, name, code)
            elif name in expressions:
                late.append(name)
            else:
                self.known[name] = self._untuned(name, function)
        for key in dict.fromkeys(k for c in self.configs for k in c):  # what only the launcher's grid still knows
            name = key.removeprefix(f"{self.site.name}.")
            if "." not in name and name not in LAUNCH_OPTIONS and name not in self.known and name in self.site.passed:
                self._assign(function, name, self._tuned(function.name, name, lambda name=name: self._launchers(name)))
        for name, text in expressions.items():
            if name in late or name not in function.constexprs:
                self._assign(function, name, self._code(text))
        grid = self._grid(function)
        if all_steps:
            self._buffers(all_steps)
        self._launch(function, grid, expressions)

    def _untuned(self, name: str, function: Function) -> str:
        """The code of what an argument is without a config: what the launcher passes, else the kernel's default."""
        if name in self.site.passed:
            return self._launchers(name)
        if name in function.defaults:
            return repr(function.defaults[name])
        raise ExportError(
            f"argument {name!r} of {function.name} has no value: neither launcher, ARGS nor config gives one"
        )

    def _launchers(self, name: str) -> str:
        """The launcher's own value of a parameter, though an earlier step may have given the name another."""
        if name not in self.bound:
            return name
        return self.saved.setdefault(name, self._free(f"passed_{name}"))

    def _tuned(self, function: str, name: str, otherwise: Callable[[], str]) -> str | None:
        """The code of a config's value, None where no config has the name. Expressions are written out."""
        for key in setting_names(function, self.site.name, name):
            values = [c[key] for c in self.configs if key in c]
            if not values:
                continue
            whole = len(values) == len(self.configs)
            code = plain = f'{self.tuned}["{key}"]' if whole else f'{self.tuned}.get("{key}", {otherwise()})'
            for text in sorted({v for v in values if isinstance(v, str)}):
                code = f"{self._code(text)} if {plain} == {text!r} else {code}"
            return code
        return None

    def _assign(self, function: Function, name: str, code: str) -> None:
        variable = name if self.bound.get(name, code) == code else f"{function.name}_{name}"
        if variable not in self.bound:
            self.lines.append(f"{variable} = {code}")
            stale = re.compile(rf"\b{variable}\b")  # what was said with the launcher's value is not said again
            self.bound = {v: c if not stale.search(c) else _STALE for v, c in self.bound.items()}
            self.bound[variable] = code
        self.known[name] = variable

    def _grid(self, function: Function) -> str:
        text = self.kernel.grid.get(function.name)
        if text is None:
            return self._own_grid()
        tree = parsed(text.strip(), "eval").body
        code = self._code(text)
        return code if isinstance(tree, ast.Tuple) else f"({code},)"

    def _own_grid(self) -> str:
        """The launcher's grid; a function of the constexprs is called with them, as they are known now."""
        if self.site.fixed_grid:
            return self.grid
        names = {
            n: self.known.get(n) or self._launchers(n)
            for n in self.site.params
            if n in self.site.passed or n in self.known
        }
        names.update({n: v for n, v in self.known.items() if n not in names})
        meta = "".join(f", {n}={v}" for n, v in names.items())
        code = f"own_grid({self.grid}{meta})"
        variable = next((v for v, c in self.bound.items() if c == code), None)
        if variable is None:
            variable = self._free("launcher_grid")
            while variable in self.bound:
                variable += "_"
            parts = _filled([self.grid, *(f"{n}={v}" for n, v in names.items())])
            long = len(code) > 100
            self.lines += (
                [f"{variable} = own_grid(", *(INDENT + p for p in parts), ")"] if long else [f"{variable} = {code}"]
            )
            self.bound[variable] = code
        return variable

    def _buffers(self, steps: Sequence[str]) -> None:
        params = {p for name in steps for p in self.kernel.function(name).params}
        device = f"{self.site.tensor}.device" if self.site.tensor else '"cuda"'
        torch_names = {v: k for k, v in TRITON_DTYPES.items()}
        for name, spec in self.kernel.scratch.items():
            if name in params:
                dtype = torch_names.get(spec[0], spec[0])
                if dtype not in TRITON_DTYPES:
                    raise ExportError(f"SCRATCH dtype {spec[0]!r} is unknown")
                shape = self._code(spec[1])
                make = "zeros" if len(spec) == 3 else "empty"
                whole = shape if isinstance(parsed(spec[1].strip(), "eval").body, ast.Tuple) else f"({shape},)"
                self.lines.append(f"{name} = torch.{make}({whole}, dtype=torch.{dtype}, device={device})")
        for name, value in self.kernel.init.items():
            if name in params:
                self.lines.append(f"{self._launchers(name)}.fill_({value!r})")

    def _launch(self, function: Function, grid: str, expressions: Mapping[str, str]) -> None:
        parts, positional = [], True
        for name in function.params:
            if name in function.constexprs:
                value, positional = self.known[name], False
            elif name in self.kernel.scratch:
                value = name
            elif name in expressions:
                value = self.known[name]
            else:
                value = self._untuned(name, function)
            parts.append(value if positional else f"{name}={value}")
        chosen = [(n, self._tuned(function.name, n, lambda: "None")) for n in LAUNCH_OPTIONS]
        given = "".join(f", {n}={code}" for n, code in chosen if code is not None)
        parts.append(f"**launch_options({self.options}{given})" if given else f"**{self.options}")
        self.lines.append(f"{how_launched(function)}({function.name})[{grid}](")
        self.lines += [INDENT + line for line in _filled(parts)]
        self.lines.append(")")

    # ------------------------------------------------------------ expressions

    def _code(self, text: str) -> str:
        validate(text)
        return _expression(parsed(text.strip(), "eval").body, self._name, self._tensor, self._own_grid)

    def _name(self, name: str) -> str:
        if name == "num_sms":
            return f"num_sms({self.site.tensor})"
        found = self.known.get(name) or (self._launchers(name) if name in self.site.passed else None)
        if found is None:
            raise ExpressionError(f"{name!r} is not an argument of {self.site.name}")
        return found

    def _tensor(self, name: str) -> str:
        if name not in self.site.passed:
            raise ExpressionError(f"{name!r} is not a tensor argument of {self.site.name}")
        return self._launchers(name)


def how_launched(function: Function) -> str:
    """The helper that launches it: tensor descriptors that a kernel makes live in memory that the launch provides."""
    return "launched_with_workspace" if "make_tensor_descriptor" in function.text else "launched"


def _expression(
    node: ast.expr, name: Callable[[str], str], tensor: Callable[[str], str], own: Callable[[], str]
) -> str:
    """An expression of the launch spec as Python; fully parenthesised by `ast.unparse` where it must be."""

    def plain(item: ast.expr) -> ast.expr:
        match item:
            case ast.Call(func=ast.Name(id="shape"), args=[ast.Name(id=of), axis]):
                return _parsed(f"{tensor(of)}.shape[{ast.unparse(plain(axis))}]")
            case ast.Call(func=ast.Name(id="stride"), args=[ast.Name(id=of), axis]):
                return _parsed(f"{tensor(of)}.stride({ast.unparse(plain(axis))})")
            case ast.Call(func=ast.Name(id="numel"), args=[ast.Name(id=of)]):
                return _parsed(f"{tensor(of)}.numel()")
            case ast.Call(func=ast.Name(id="aligned"), args=[ast.Name(id=of)]):
                return _parsed(f"aligned({tensor(of)})")
            case ast.Call(func=ast.Name(id="grid"), args=[axis]):
                return _parsed(f"grid_axis({own()}, {ast.unparse(plain(axis))})")
            case ast.Call(func=ast.Name(id="min" | "max"), args=[only]):
                return plain(only)
            case ast.Call(func=function, args=args):
                return ast.Call(function, [plain(a) for a in args], [])
            case ast.Name(id=word):
                return _parsed(name(word))
            case ast.Tuple(elts=items):
                return ast.Tuple([plain(i) for i in items], ast.Load())
            case ast.BinOp(left=left, op=op, right=right):
                return ast.BinOp(plain(left), op, plain(right))
            case ast.UnaryOp(op=op, operand=operand):
                return ast.UnaryOp(op, plain(operand))
            case ast.BoolOp(op=op, values=values):  # the language's `and` and `or` give a truth value
                return ast.Call(ast.Name("bool"), [ast.BoolOp(op, [plain(v) for v in values])], [])
            case ast.Compare(left=left, ops=ops, comparators=right):
                return ast.Compare(plain(left), ops, [plain(r) for r in right])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return ast.IfExp(plain(test), plain(body), plain(orelse))
        return item

    return ast.unparse(plain(node))


def _parsed(code: str) -> ast.expr:
    return parsed(code, "eval").body


def _filled(parts: Sequence[str], width: int = 104) -> list[str]:
    """Arguments in lines of at most about width characters, a comma after each."""
    lines, line = [], ""
    for part in parts:
        if line and len(line) + len(part) + 2 > width:
            lines.append(line)
            line = ""
        line += ("" if not line else " ") + part + ","
    return [*lines, line] if line else lines
