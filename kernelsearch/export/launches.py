"""Turns a kernel's launch spec into plain Python: the function that runs where the launcher launches a site.

It follows the rules of `launch.make_plan`, written out once as readable code instead of evaluated at every launch.
Expressions are parsed and checked by `expressions`; the code is made from their trees, never from their text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from kernelsearch.core.errors import ExpressionError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import LAUNCH_OPTIONS, Config
from kernelsearch.export import ExportError
from kernelsearch.kernel.expressions import names_in, validate
from kernelsearch.kernel.language import DTYPE_OF
from kernelsearch.kernel.launch import TRITON_DTYPES
from kernelsearch.kernel.source import GLUON, Function, Kernel, setting_names_of

_STALE = "?"


@dataclass(frozen=True)
class Site:
    """One place where the launcher launches a kernel, and what it passes there.

    params are the kernel's parameters in order; passed are the names that have a value in every launch; defaults are
    literals of the others (None where a decorator of the seed gave the value); tensor is a parameter that is a tensor,
    whose device scratch buffers take; fixed_grid says that the launcher's grid is no function of the constexprs; ruled
    is the number of `@triton.heuristics` that compute some of what is passed, meta what else their rules may read;
    described are the names of what is passed as a tensor descriptor.
    """

    name: str
    params: tuple[str, ...]
    passed: frozenset[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    tensor: str | None = None
    fixed_grid: bool = False
    ruled: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)
    described: frozenset[str] = frozenset()

    def signature(self) -> list[str]:
        """The parameters of a generated function as Python, with defaults from the first optional one on."""
        names, optional = [], False
        for name in self.params:
            optional = optional or name not in self.passed or name in self.defaults
            names.append(f"{name}={self.defaults.get(name)!r}" if optional else name)
        return names


def launch_name(site: str) -> str:
    """The generated function's name."""
    return f"launch_{site}"


def write_launch_function(site: Site, kernel: Kernel, steps: Sequence[str], configs: Sequence[Config]) -> str:
    """The text of the function that launches `steps` of a kernel at a site, under any of these configs.

    The function takes the config (`tuned`), the launcher's grid, and the launcher's arguments. Raises ExportError.
    """
    try:
        return _LaunchWriter(site, kernel, configs).write(steps)
    except ExpressionError as error:
        raise ExportError(f"the launch of {site.name} cannot be written as Python: {error}") from None


class _LaunchWriter:
    def __init__(self, site: Site, kernel: Kernel, configs: Sequence[Config]) -> None:
        self.site, self.kernel, self.configs = site, kernel, configs
        self.lines: list[str] = []
        self.saved: dict[str, str] = {}  # the launcher's values that a step needs after an earlier one rebound them
        self.bound: dict[str, str] = {}  # variable -> the code that it was assigned
        self.taken = {*site.params, *kernel.names, *(p for f in kernel.functions for p in f.params)}
        self.tuned, self.grid, self.options = (free_name(n, self.taken) for n in ("tuned", "grid", "options"))
        self.known: dict[str, str] = {}  # of the current step: name -> variable

    def write(self, steps: Sequence[str]) -> str:
        for number, name in enumerate(steps):
            self._write_step(self.kernel.function(name), steps if number == 0 else ())
        names = ", then ".join(f"`{s}`" for s in steps)
        body = [f'"""Launches {names}."""', *(f"{new} = {name}" for name, new in self.saved.items()), *self.lines]
        params = [self.tuned, self.grid, *self.site.signature(), f"**{self.options}"]
        name = launch_name(self.site.name)
        text = "\n".join([*write_call(f"def {name}(", params, "):"), *indent_lines(body)]) + "\n"
        describes = self.site.described or any(self.kernel.descriptors_of(step) for step in steps)
        return f"{text}\n\n{name}.describes = True\n" if describes else text

    # ------------------------------------------------------------ one launch

    def _write_step(self, function: Function, all_steps: Sequence[str]) -> None:
        self.known = {}
        expressions = self.kernel.args.get(function.name, {})
        late = []
        for name in function.constexprs:
            code = self._tuned_value(function.name, name, partial(self._untuned_value, name, function))
            if code is not None:
                self._assign(function, name, code)
            elif name in expressions:
                late.append(name)
            else:
                self.known[name] = self._untuned_value(name, function)
        read = frozenset().union(*map(names_in, self.kernel.expressions_of(function.name)))
        for key in dict.fromkeys(k for c in self.configs for k in c):  # names that only a grid or an expression reads
            name = key.removeprefix(f"{self.site.name}.").removeprefix(f"{function.name}.")
            if name not in self.known and (name in read or name in self.site.passed - {*LAUNCH_OPTIONS}):
                code = self._tuned_value(function.name, name, partial(self._untuned_value, name, function))
                if code is not None:
                    self._assign(function, name, code)
        for name, expression in expressions.items():
            if name in late or name not in function.constexprs:
                self._assign(function, name, self._code(expression))
        text = self.kernel.grid.get(function.name)
        grid = self._launcher_grid() if text is None else as_tuple(text, self._code(text))
        if all_steps:
            self._make_buffers(all_steps)
        self._launch(function, grid, expressions)

    def _untuned_value(self, name: str, function: Function) -> str:
        """The code of an argument's value without a config: the launcher's, else the kernel's default."""
        if name in self.site.passed:
            return self._passed_value(name)
        if name in function.defaults:
            return repr(function.defaults[name])
        raise ExportError(
            f"argument {name!r} of {function.name} has no value: neither launcher, ARGS nor config gives one"
        )

    def _passed_value(self, name: str) -> str:
        """The code of the launcher's own value of a parameter, which an earlier step may have rebound."""
        if name not in self.bound:
            return name
        return self.saved.setdefault(name, free_name(f"passed_{name}", self.taken))

    def _tuned_value(self, function: str, name: str, otherwise: Callable[[], str]) -> str | None:
        """The code of a config's value, with expressions written out; None where no config has the name."""
        for key in setting_names_of(function, self.site.name, name):
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
            stale = re.compile(rf"\b{variable}\b")  # code that read the launcher's value is not reused
            self.bound = {v: c if not stale.search(c) else _STALE for v, c in self.bound.items()}
            self.bound[variable] = code
        self.known[name] = variable

    def _launcher_grid(self) -> str:
        """The launcher's grid; a function of the constexprs is called with their values at this step."""
        if self.site.fixed_grid:
            return self.grid
        names = {
            n: self.known.get(n) or self._passed_value(n)
            for n in self.site.params
            if n in self.site.passed or n in self.known
        }
        parts = [self.grid, *(f"{n}={v}" for n, v in {**names, **self.known}.items())]
        code = f"own_grid({', '.join(parts)})"
        variable = next((v for v, c in self.bound.items() if c == code), None)
        if variable is None:
            variable = free_name("launcher_grid", {*self.taken, *self.bound})
            call = write_call(f"{variable} = own_grid(", parts) if len(code) > 100 else [f"{variable} = {code}"]
            self.lines += call
            self.bound[variable] = code
        return variable

    def _make_buffers(self, steps: Sequence[str]) -> None:
        params = {p for name in steps for p in self.kernel.reached_by(name)}
        device = f"{self.site.tensor}.device" if self.site.tensor else '"cuda"'
        torch_names = {v: k for k, v in TRITON_DTYPES.items()}
        for name, spec in self.kernel.scratch.items():
            if name in params:
                of, dtype = DTYPE_OF.fullmatch(spec[0]), torch_names.get(spec[0], spec[0])
                if not of and dtype not in TRITON_DTYPES:
                    raise ExportError(f"SCRATCH dtype {spec[0]!r} is unknown")
                kind = f"{self._passed_value(of[1])}.dtype" if of else f"torch.{dtype}"
                shape = as_tuple(spec[1], self._code(spec[1]))
                make = "zeros" if len(spec) == 3 else "empty"
                self.lines.append(f"{name} = torch.{make}({shape}, dtype={kind}, device={device})")
        for name, value in self.kernel.init.items():
            if name in params and value is not None:
                self.lines.append(f"{self._passed_value(name)}.fill_({value!r})")

    def _launch(self, function: Function, grid: str, expressions: Mapping[str, str]) -> None:
        parts, positional = [], True
        descriptors = self.kernel.descriptors_of(function.name)
        for name in function.params:
            positional = positional and name not in function.constexprs
            if name in descriptors:
                value = self._descriptor_code(name, descriptors[name])
            elif name in function.constexprs or (name in expressions and name not in self.kernel.scratch):
                value = self.known[name]
            elif name in self.kernel.scratch:
                value = name
            else:
                value = self._untuned_value(name, function)
            parts.append(value if positional else f"{name}={value}")
        parts.append(f"**{self._options_code(function)}")
        self.lines += write_call(f"{choose_launch_helper(function)}({function.name})[{grid}](", parts)

    def _options_code(self, function: Function) -> str:
        """The code of a launch's options: the launcher's, overridden by the config's where that is not None."""
        codes = {n: self._tuned_value(function.name, n, lambda: "None") for n in LAUNCH_OPTIONS}
        given = {n: code for n, code in codes.items() if code is not None}
        keys = {key for n in given for key in setting_names_of(function.name, self.site.name, n)}
        if None in (c.get(k, 0) for c in self.configs for k in keys) or any(".get(" in code for code in given.values()):
            return f"launch_options({', '.join([self.options, *(f'{n}={code}' for n, code in given.items())])})"
        pairs = [f'"{n}": {code}' for n, code in given.items()]  # without a call, which each launch would pay for
        return f"{{{', '.join([f'**{self.options}', *pairs])}}}" if given else self.options

    def _descriptor_code(self, name: str, spec: Sequence[Any]) -> str:
        """The code of a descriptor. Raises ExportError where a size between the judged ones may have none."""
        base = spec[0] if spec[0] in self.kernel.scratch else self._passed_value(spec[0])
        if spec[0] in self.site.described:
            base = f"{base}.base"
        elif len(spec) == 4:
            raise ExportError(
                f"DESCRIPTORS: at some sizes of {self.site.name} there is no {name!r}; give it a fifth item None, and "
                "the kernel another way for that"
            )
        sizes = (as_tuple(text, self._code(text)) for text in spec[1:4])
        flavour = ["in_gluon=True"] * (self.kernel.language == GLUON)
        return f"described({', '.join([base, *sizes, *flavour])})"

    # ------------------------------------------------------------ expressions

    def _code(self, text: str) -> str:
        validate(text)
        return write_expression(text, self._name, self._tensor, self._launcher_grid, self.site.described)

    def _name(self, name: str) -> str:
        if name == "num_sms":
            return f"num_sms({self.site.tensor})"
        if name not in self.known and name not in self.site.passed:
            raise ExpressionError(f"{name!r} is not an argument of {self.site.name}")
        return self.known.get(name) or self._passed_value(name)

    def _tensor(self, name: str) -> str:
        if name not in self.site.passed:
            raise ExpressionError(f"{name!r} is not a tensor argument of {self.site.name}")
        return self._passed_value(name)


def choose_launch_helper(function: Function) -> str:
    """The name of the helper that launches a function; one that makes tensor descriptors needs memory for them."""
    return "launched_with_workspace" if "make_tensor_descriptor" in function.text else "launched"


def as_tuple(text: str, code: str) -> str:
    """An expression's code as a tuple: code itself where the expression's text is one already."""
    return code if isinstance(_parse(text), ast.Tuple) else f"({code},)"


def write_expression(
    text: str,
    name: Callable[[str], str],
    tensor: Callable[[str], str],
    own_grid: Callable[[], str],
    described: Container[str] = (),
) -> str:
    """An expression of the launch spec as Python; `ast.unparse` adds the parentheses that it needs.

    name and tensor give the code of a name as a number and as a tensor, own_grid that of the launcher's grid; described
    are the tensors that are descriptors.
    """

    class PythonForm(ast.NodeTransformer):
        """Puts Python in the place of the language's names and calls."""

        def visit_Name(self, node: ast.Name) -> ast.expr:
            return _parse(name(node.id))

        def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:  # the language's `and` and `or` give a truth value
            return ast.Call(ast.Name("bool"), [cast(ast.expr, self.generic_visit(node))], [])

        def visit_Call(self, node: ast.Call) -> ast.expr:
            match node:
                case ast.Call(func=ast.Name(id="numel"), args=[ast.Name(id=of)]) if of in described:
                    raise ExpressionError(f"{of} is a descriptor: write the product of its shape")
                case ast.Call(func=ast.Name(id="numel"), args=[ast.Name(id=of)]):
                    return _parse(f"{tensor(of)}.numel()")
                case ast.Call(func=ast.Name(id="aligned"), args=[ast.Name(id=of)]):
                    return _parse("True" if of in described else f"aligned({tensor(of)})")
                case ast.Call(func=ast.Name(id="shape" | "stride" as what), args=[ast.Name(id=of), axis]):
                    value, at = tensor(of), ast.unparse(self.visit(axis))
                    of_tensor = f"{value}.stride({at})" if of not in described else f"{value}.strides[{at}]"
                    return _parse(f"{value}.shape[{at}]" if what == "shape" else of_tensor)
                case ast.Call(func=ast.Name(id="grid"), args=[axis]):
                    return _parse(f"grid_axis({own_grid()}, {ast.unparse(self.visit(axis))})")
                case ast.Call(func=ast.Name(id="min" | "max"), args=[only]):
                    return self.visit(only)
            return ast.Call(node.func, [self.visit(a) for a in node.args], [])

    return ast.unparse(PythonForm().visit(_parse(text)))


def _parse(code: str) -> ast.expr:
    return parse_python(code.strip(), "eval").body


def write_call(head: str, arguments: Sequence[str], tail: str = ")") -> list[str]:
    """The lines of a call or definition: its arguments in lines of at most about 104 characters, a comma after each."""
    lines: list[str] = []
    for argument in arguments:
        if lines and len(lines[-1]) + len(argument) + 2 <= 104:
            lines[-1] += f" {argument},"
        else:
            lines.append(f"{argument},")
    return [head, *indent_lines(lines), tail]


def indent_lines(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]


def free_name(name: str, taken: Container[str]) -> str:
    """The name, with as many underscores after it as make it a new one."""
    return name if name not in taken else free_name(f"{name}_", taken)
