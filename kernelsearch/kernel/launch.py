"""Binds a Kernel and a Config to one launch of the task's launcher: steps with their arguments and grids.

The planning half is pure arithmetic over `LaunchFact`s. The specialisation half repeats the rule of
Triton's own binder (`triton.runtime.jit`): an integer 1 and None become constexprs and leave the
parameter list, a multiple of 16 is marked divisible, a pointer is marked when its address is a
multiple of 16 bytes, 2**31 and more becomes 64 bits, an annotated scalar keeps its type. A test compares
it with the installed Triton.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelsearch.core.errors import ExpressionError, KernelsearchError
from kernelsearch.core.types import (
    LAUNCH_OPTIONS,
    ArgFact,
    Config,
    DescriptorFact,
    DtypeFact,
    LaunchFact,
    TensorFact,
    Value,
    content_digest,
)
from kernelsearch.kernel.descriptors import refuse_descriptor, write_kind
from kernelsearch.kernel.expressions import Number, Scope, evaluate, names_in
from kernelsearch.kernel.language import DTYPE_OF
from kernelsearch.kernel.literals import refuse_option
from kernelsearch.kernel.source import Function, Kernel, setting_names_of
from kernelsearch.kernel.unrolling import find_excess

Constant = ArgFact | tuple[Number, ...]
"""A constexpr's value; expressions may give tuples."""
GridOf = Callable[[Mapping[str, Any]], tuple[int, ...]]
"""The launcher's own grid for given constexprs (what Triton calls `meta`)."""

TRITON_DTYPES: dict[str, str] = {
    "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "bool": "i1",
    **{f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16",
}  # fmt: skip
"""torch's dtype names to Triton's."""

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SCRATCH_ELEMENTS = 2**33


class LaunchError(KernelsearchError):
    """A kernel cannot be launched by this launcher: an argument has no value, or the grid is impossible."""


@dataclass(frozen=True)
class Passed:
    """An argument that the launcher passes, by its name there."""

    name: str


@dataclass(frozen=True)
class Scratch:
    """A scratch buffer of the plan, by name."""

    name: str


@dataclass(frozen=True)
class HostDescriptor:
    """A tensor descriptor that the launch makes of a tensor: shape, strides and block shape in elements."""

    base: Passed | Scratch
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    block: tuple[int, ...]


Argument = Passed | Scratch | HostDescriptor | Constant


@dataclass(frozen=True)
class Buffer:
    """A scratch buffer: Triton dtype, shape in elements, and whether it must start as zeros."""

    dtype: str
    shape: tuple[int, ...]
    zero: bool = False


@dataclass(frozen=True)
class LaunchStep:
    """One device launch: arguments in the order of the parameters, constexprs, options, grid; its types, plain names.

    With an empty grid (an axis is 0) it does not happen.
    """

    function: str
    args: Mapping[str, Argument]
    constexprs: Mapping[str, Constant]
    options: Mapping[str, Value]
    grid: tuple[int, int, int]
    types: Mapping[str, str] = field(default_factory=dict)
    plain: Mapping[str, str] = field(default_factory=dict)

    @property
    def scratch(self) -> tuple[str, ...]:
        """The scratch buffers that its arguments are or describe, by name."""
        named = (a.base if isinstance(a, HostDescriptor) else a for a in self.args.values())
        return tuple(a.name for a in named if isinstance(a, Scratch))


@dataclass(frozen=True)
class Plan:
    """The work of one site: buffers to make, outputs to initialise, steps to launch in order."""

    steps: tuple[LaunchStep, ...]
    scratch: Mapping[str, Buffer] = field(default_factory=dict)
    init: Mapping[str, float] = field(default_factory=dict)

    def describe_arguments(self, step: LaunchStep, fact: LaunchFact) -> dict[str, Constant]:
        """Each argument of a step as a fact."""
        return {name: _describe(arg, fact, self.scratch) for name, arg in step.args.items()}


def _describe(arg: Argument, fact: LaunchFact, scratch: Mapping[str, Buffer]) -> Constant:
    match arg:
        case Passed(name=name):
            return fact.args.get(name)
        case Scratch(name=name):
            shape = scratch[name].shape
            return TensorFact(scratch[name].dtype, shape, tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))))
        case HostDescriptor():
            base = _describe(arg.base, fact, scratch)
            assert isinstance(base, TensorFact)
            return DescriptorFact(base.dtype, arg.shape, arg.stride, base.aligned, arg.block)
    return arg


@dataclass(frozen=True)
class Specialisation:
    """The specialisation of one binary: Triton's signature, constexprs, divisible arguments and options."""

    function: str
    signature: tuple[tuple[str, str], ...]
    constexprs: tuple[tuple[str, Constant], ...]
    divisible: tuple[str, ...]
    options: tuple[tuple[str, Value], ...]

    def key(self, kernel_digest: str, target: str, versions: str) -> str:
        """The compile key: equal keys are the same binary."""
        return content_digest(kernel_digest, repr(self), target, versions)

    def is_at(self, config: Config) -> bool:
        """Whether it has the values of a config, in which a name's value may differ between sites."""
        plain = [(name.rpartition(".")[2], value) for name, value in config.items()]
        names = {name for name, _ in plain}
        return all((n, v) in plain for n, v in (*self.constexprs, *self.options) if n in names)


def make_plan(
    kernel: Kernel, function_names: tuple[str, ...], config: Config, fact: LaunchFact, grid_of: GridOf, num_sms: int
) -> Plan:
    """The plan of one site.

    function_names are the functions launched there, in order (`Kernel.steps_at`). Raises LaunchError
    with one sentence when the kernel cannot be bound.
    """
    try:
        return _Planner(kernel, config, fact, grid_of, num_sms).plan(function_names)
    except ExpressionError as error:
        raise LaunchError(str(error)) from None


@dataclass(frozen=True)
class _Planner:
    kernel: Kernel
    config: Config
    fact: LaunchFact
    grid_of: GridOf
    num_sms: int

    def plan(self, names: tuple[str, ...]) -> Plan:
        bound = [self._bind(self.kernel.function(name)) for name in names]
        scope = bound[0][1] if bound else self._make_scope({})
        used = {name for step, _ in bound for name in step.scratch}
        scratch = {n: self._make_buffer(spec, scope) for n, spec in self.kernel.scratch.items() if n in used}
        params = {p for name in names for p in self.kernel.reached_by(name)}
        init = {n: v for n, v in self.kernel.init.items() if n in params and v is not None}
        return Plan(tuple(step for step, _ in bound), scratch, init)

    def _make_scope(self, constexprs: Mapping[str, Constant]) -> Scope:
        known = {**self.fact.args, **constexprs}
        return Scope(known, self.num_sms, lambda: self.grid_of(known))

    def _find_setting(self, function: str, name: str) -> str | None:
        """The config's key for a function's constexpr or option; None when the config does not set it."""
        return next((key for key in setting_names_of(function, self.fact.site, name) if key in self.config), None)

    def _read_setting(self, key: str, scope: Scope) -> Any:
        value = self.config[key]
        return evaluate(value, scope) if isinstance(value, str) else value

    def _bind(self, function: Function) -> tuple[LaunchStep, Scope]:
        expressions = self.kernel.args.get(function.name, {})
        without_expression = {**function.defaults, **self.fact.args}
        known: dict[str, Constant] = {}
        for name in function.constexprs:
            if (key := self._find_setting(function.name, name)) is not None:
                known[name] = self._read_setting(key, self._make_scope(known))
            elif name not in expressions:
                known[name] = self._require(without_expression, name, function)
        read = frozenset().union(*map(names_in, self.kernel.expressions_of(function.name)))
        passed = self.fact.args.keys() - {*LAUNCH_OPTIONS}
        for key in self.config:  # names that only the launcher's grid or an expression still knows
            name = key.removeprefix(f"{self.fact.site}.").removeprefix(f"{function.name}.")
            if name not in known and (name in read or name in passed):
                strongest = self._find_setting(function.name, name) or key
                known[name] = self._read_setting(strongest, self._make_scope(known))
        for name, text in expressions.items():
            if name not in known or name not in function.constexprs:
                known[name] = evaluate(text, self._make_scope(known))
        values: dict[str, Argument] = dict(function.defaults)
        values |= {name: Passed(name) for name in self.fact.args} | {name: known[name] for name in expressions}
        values |= {name: Scratch(name) for name in self.kernel.scratch}
        for name, spec in self.kernel.descriptors_of(function.name).items():
            values[name] = self._make_descriptor(name, spec, self._make_scope(known))
        parameters = (name for name in function.params if name not in function.constexprs)
        args = {name: self._require(values, name, function) for name in parameters}
        scope = self._make_scope(known)
        constexprs = {n: known[n] for n in function.constexprs}
        if function.text and (excess := find_excess(self.kernel.code, function.name, tuple(constexprs.items()))):
            raise LaunchError(excess)  # a worker that gets no text gets what was counted
        options, grid = self._make_options(function.name, scope), self._make_grid(function.name, scope)
        step = LaunchStep(function.name, args, constexprs, options, grid, function.types, function.plain)
        return step, scope

    @staticmethod
    def _require(values: Mapping[str, Any], name: str, function: Function) -> Any:
        if name not in values:
            raise LaunchError(
                f"argument {name!r} of {function.name} has no value: the launcher does not pass it, "
                "nor do ARGS, SCRATCH, DESCRIPTORS or CONFIG"
            )
        return values[name]

    def _make_options(self, function: str, scope: Scope) -> dict[str, Value]:
        options = dict(self.fact.options)
        for name in LAUNCH_OPTIONS:
            key = self._find_setting(function, name)
            if key is not None and (value := self._read_setting(key, scope)) is not None:
                options[name] = value
            if refusal := refuse_option(name, options.get(name)):
                raise LaunchError(f"{function}: {refusal}")
        return options

    def _make_grid(self, function: str, scope: Scope) -> tuple[int, int, int]:
        """A function's grid; it may be empty where the launcher's own is: then Triton skips the launch."""
        text = self.kernel.grid.get(function)
        size = evaluate(text, scope) if text is not None else self.grid_of(scope.args)
        grid = tuple(size) if isinstance(size, (tuple, list)) else (size,)
        whole = [g for g in grid if isinstance(g, int)]
        if not 1 <= len(grid) <= 3 or len(whole) < len(grid):
            raise LaunchError(f"the grid of {function} is {grid!r}, not one to three integers")
        x, y, z = (*whole, 1, 1)[:3]
        is_empty = 0 in whole and (text is None or 0 in self.grid_of(scope.args))
        if any(not (0 if is_empty else 1) <= g <= most for g, most in zip((x, y, z), MAX_GRID, strict=True)):
            raise LaunchError(f"the grid of {function} is {grid}; axes go from 1 to {MAX_GRID}")
        return x, y, z

    def _make_descriptor(self, name: str, spec: tuple[Any, ...], scope: Scope) -> HostDescriptor | None:
        """The descriptor of that name; None where there can be none and the kernel takes None instead."""
        base = Scratch(spec[0]) if spec[0] in self.kernel.scratch else Passed(spec[0])
        if isinstance(base, Passed) and not isinstance(self.fact.args.get(spec[0]), TensorFact):
            raise LaunchError(f"DESCRIPTORS: {name!r} is made of {spec[0]!r}, which is neither a tensor nor in SCRATCH")
        shape, stride, block = (self._read_sizes(name, text, scope) for text in spec[1:4])
        made = HostDescriptor(base, shape, stride, block)
        scratch = (
            {base.name: self._make_buffer(self.kernel.scratch[base.name], scope)} if isinstance(base, Scratch) else {}
        )
        described, tensor = (_describe(what, self.fact, scratch) for what in (made, base))
        assert isinstance(described, DescriptorFact) and isinstance(tensor, TensorFact)
        reason = refuse_descriptor(described)
        if reason and len(spec) == 4:
            raise LaunchError(
                f"DESCRIPTORS: {name!r} cannot be made here: {reason}; give it a fifth item None, and the kernel "
                f"another way for `{name} is None`"
            )
        if not reason and described.extent > tensor.extent:  # the copy engine would go there, for some tiles only
            raise LaunchError(f"DESCRIPTORS: {name!r} of shape {shape} reaches beyond the end of {spec[0]!r}")
        return None if reason else made

    @staticmethod
    def _read_sizes(name: str, text: str, scope: Scope) -> tuple[int, ...]:
        given = evaluate(text, scope)
        sizes = given if isinstance(given, tuple) else (given,)
        whole = tuple(int(n) for n in sizes if isinstance(n, int))
        if len(whole) < len(sizes):
            raise LaunchError(f"DESCRIPTORS: {text!r} of {name!r} gives {given!r}, not integers")
        return whole

    def _make_buffer(self, spec: tuple[Any, ...], scope: Scope) -> Buffer:
        shape = evaluate(spec[1], scope)
        given = shape if isinstance(shape, tuple) else (shape,)
        shape = tuple(n for n in given if isinstance(n, int))
        of = DTYPE_OF.fullmatch(spec[0])
        fact = self.fact.args.get(of[1]) if of else None
        dtype = fact.dtype if isinstance(fact, TensorFact) else TRITON_DTYPES.get(spec[0], spec[0])
        if dtype not in TRITON_DTYPES.values():
            raise LaunchError(f"SCRATCH dtype {spec[0]!r} is unknown")
        if len(shape) < len(given) or any(n <= 0 for n in shape) or math.prod(shape) > MAX_SCRATCH_ELEMENTS:
            raise LaunchError(f"SCRATCH shape {given} is empty, too large or not of integers")
        return Buffer(dtype, shape, len(spec) == 3)


def specialise(step: LaunchStep, fact: LaunchFact, scratch: Mapping[str, Buffer]) -> Specialisation:
    """The specialisation that Triton's binder would choose for these arguments."""
    signature: list[tuple[str, str]] = []
    constexprs = dict(step.constexprs)
    divisible: list[str] = []
    for name, arg in step.args.items():
        value, flag = _describe(arg, fact, scratch), step.plain.get(name)
        kind, is_divisible = _specialise_value(value, flag != "do_not_specialize")
        if name in step.types and value is not None:  # it has this type whatever its value is, and 1 stays an argument
            kind = step.types[name]
        constexprs |= {name: value} if kind == "constexpr" else {}
        divisible += [name] if is_divisible and not flag else []
        signature.append((name, kind))
    signature.extend((name, "constexpr") for name in step.constexprs)
    return Specialisation(
        step.function,
        tuple(signature),
        tuple(sorted(constexprs.items())),
        tuple(divisible),
        tuple(sorted(step.options.items())),
    )


def _specialise_value(value: Constant, ones: bool = True) -> tuple[str, bool]:
    """(Triton type, or `constexpr` if it becomes one, as ones do; True if divisible by 16) of one argument."""
    match value:
        case DescriptorFact():
            return write_kind(value), False
        case TensorFact(dtype=dtype, aligned=aligned):
            return f"*{dtype}", aligned
        case bool():
            return "u1", False
        case float():
            return "fp32", False
        case None | str() | DtypeFact():
            return "constexpr", False
        case 1 if ones:
            return "constexpr", False
        case int():
            kind = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
            return kind, value % 16 == 0
    raise LaunchError(f"an argument of type {type(value).__name__} cannot be passed to a kernel")


@dataclass(frozen=True)
class BoundLaunch:
    """One bound launch of the launcher: the kernel that runs, whether that is the seed, and the plan."""

    kernel: Kernel
    of_seed: bool
    plan: Plan

    def specialise_steps(self, fact: LaunchFact) -> tuple[Specialisation, ...]:
        return tuple(specialise(step, fact, self.plan.scratch) for step in self.plan.steps)


def bind_launch(
    kernel: Kernel,
    config: Config,
    seed: Kernel,
    seed_config: Config,
    sites: tuple[str, ...],
    fact: LaunchFact,
    grid_of: GridOf,
    num_sms: int,
) -> BoundLaunch:
    """The plan of one launch: the candidate's where it redefines the site, else the seed's. Raises LaunchError.

    A kernel that redefines no site is refused: it would never run, and the seed would be judged in its place.
    """
    if all(kernel.steps_at(site, sites) is None for site in sites):
        entries, wanted = ", ".join(kernel.entries), " or ".join(sites)
        raise LaunchError(
            f"the launcher launches {wanted}, but this file has {entries}: a kernel has the name of the "
            "launch that it replaces"
        )
    if shared := kernel.find_shared_scratch(sites):
        raise LaunchError(f"SCRATCH: {shared!r} is taken at two launches of the launcher; each has its own")
    for source, settings in ((kernel, config), (seed, seed_config)):
        names = source.steps_at(fact.site, sites)
        if names is not None:
            return BoundLaunch(source, source is not kernel, make_plan(source, names, settings, fact, grid_of, num_sms))
    raise LaunchError(f"the launcher launches {fact.site!r}, which neither this kernel nor the seed defines")
