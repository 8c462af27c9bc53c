"""Takes hold of what a launcher launches: `kernel[grid](...)` becomes a `Launch` handed to a callback.

Interception happens where Triton itself dispatches, at the `run` methods of `JITFunction`, `Autotuner`,
`Heuristics` and `InterpretedFunction`, so that aliases, decorated kernels, keyword constexprs,
grid lambdas and `wrap_triton` need no care of their own.

As in Triton's steady state, an autotuner's config has its `pre_hook` run before the launch; the
autotuner's own `pre_hook` (`reset_to_zero`, `restore_value`) belongs to its benchmarking, which does
not happen here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl
from torch._library.triton import set_wrap_triton_enabled
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from kernelsearch.core.errors import ExpressionError, TaskError
from kernelsearch.core.types import LAUNCH_OPTIONS, ArgFact, Config, DtypeFact, TensorFact
from kernelsearch.kernel.expressions import Scope, evaluate
from kernelsearch.kernel.launch import TRITON_DTYPES

DISPATCHERS = (JITFunction, Autotuner, Heuristics, InterpretedFunction)

Grid = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]


@dataclass(frozen=True)
class Launch:
    """One launch that the launcher asked for; nothing has been launched.

    site is the kernel's name, fn its innermost Triton object. args holds what the launcher passed, and
    the parameters' defaults, by parameter name: real tensors and scalars. What an autotuner's
    configs or a heuristic provide is not among them (see `bound`). options are names that are no
    parameters, such as num_warps. meta_defaults is the autotuner's first config, options included.
    wrappers are the decorators around fn, outermost first.
    """

    site: str
    fn: Any
    args: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: Grid
    meta_defaults: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[Any, ...] = ()

    @property
    def params(self) -> tuple[str, ...]:
        return tuple(self.fn.arg_names)

    @property
    def heuristics(self) -> frozenset[str]:
        """Names whose values the kernel's heuristics compute."""
        return frozenset(n for w in self.wrappers if isinstance(w, Heuristics) for n in w.values)

    def settings(self, config: Config | None = None) -> dict[str, Any]:
        """What holds at this site: the autotuner's first config, over it the given config; dotted names resolved.

        Expressions are evaluated over the launch's arguments.
        """
        return {**self.meta_defaults, **self._given(config)}

    def _given(self, config: Config | None) -> dict[str, Any]:
        """The config's values for this site; an expression without a value here is left to the plan to report."""
        split = [(name.rpartition("."), value) for name, value in (config or {}).items()]
        plain = {name: value for (_, dot, name), value in split if not dot}
        dotted = {name: value for (site, dot, name), value in split if dot and site == self.site}
        given = {**plain, **dotted}
        texts = [name for name, value in given.items() if isinstance(value, str)]
        scope = Scope(_facts(self.args)) if texts else None
        for name in texts:
            try:
                given[name] = evaluate(given[name], scope)
            except ExpressionError:
                del given[name]
        return given

    def bound(self, config: Config | None = None) -> dict[str, Any]:
        """Every parameter with its value under a config, in the kernel's order; heuristics are evaluated.

        A config's value wins over a heuristic's and over the launcher's. Raises TaskError when a
        parameter has no value.
        """
        explicit = self._given(config)
        chosen = {k: v for k, v in {**self.meta_defaults, **explicit}.items() if k in self.params}
        values = {**self.args, **chosen}
        options = self.launch_options(config)
        for wrapper in self.wrappers:
            if isinstance(wrapper, Heuristics):
                for name, rule in wrapper.values.items():
                    if name not in explicit:
                        values[name] = plain_value(rule({**options, **values}))
        missing = [name for name in self.params if name not in values]
        if missing:
            raise TaskError(f"the launcher passes no value for {missing[0]!r} of {self.site}")
        return {name: values[name] for name in self.params}

    def launch_options(self, config: Config | None = None) -> dict[str, Any]:
        """num_warps and the like: the launcher's, over them the config's; None is Triton's default and is dropped."""
        chosen = {k: v for k, v in self.settings(config).items() if k in LAUNCH_OPTIONS}
        return {k: v for k, v in {**self.options, **chosen}.items() if v is not None}

    def resolve_grid(self, meta: Mapping[str, Any]) -> tuple[int, ...]:
        """The launcher's grid under a config or a set of constexprs, one to three integers.

        Facts among meta (`TensorFact`, `DtypeFact`) are passed over for the real arguments.
        """
        if not callable(self.grid):
            return self.grid
        real = {k: v for k, v in meta.items() if not isinstance(v, (TensorFact, DtypeFact))}
        return normal_grid(self.grid({**self.bound(real), **real}), self.site)

    def run_pre_hooks(self, config: Config | None = None) -> None:
        """Runs the `pre_hook` of the autotuner's config that agrees with this one, else of the first that has one."""
        for wrapper in self.wrappers:
            if not isinstance(wrapper, Autotuner):
                continue
            values = {**self.bound(config), **self.launch_options(config)}
            exact = [c for c in wrapper.configs if all(values.get(k) == v for k, v in config_values(c).items())]
            hooks = [c.pre_hook for c in exact] or [c.pre_hook for c in wrapper.configs if c.pre_hook is not None]
            if hooks and hooks[0] is not None:
                hooks[0](values)


@contextmanager
def intercepted(on_launch: Callable[[Launch], Any], resources: Resources | None = None) -> Iterator[None]:
    """Inside, every launch of any kernel goes to on_launch, every `.warmup(...)` is answered, and nothing is launched.

    resources is what a kernel object obtained by `.warmup(...)` says of itself (tutorials compute
    occupancy from it before they choose a grid).
    """
    answer = resources or Resources()

    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        if warmup:
            return Compiled(self, answer, {k: v for k, v in kwargs.items() if k not in innermost(self).arg_names})
        launch = bind(self, args, kwargs, grid)
        result = on_launch(launch)
        return result if result is not None else Compiled(self, answer, dict(launch.options))

    with ExitStack() as stack:
        for kind in DISPATCHERS:
            original = kind.__dict__["run"]
            kind.run = run
            stack.callback(setattr, kind, "run", original)
        stack.enter_context(_wrap_triton_off())
        yield


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel is said to use, where nothing has been compiled: an assumption, not a measurement."""

    n_regs: int = 32
    n_spills: int = 0
    shared: int = 0


class Compiled:
    """Stands for the object that `.warmup(...)` and a launch return: it has resources and can be launched."""

    def __init__(self, kernel: Any, resources: Resources, options: Mapping[str, Any]) -> None:
        self._kernel = kernel
        self._options = dict(options)
        self.n_regs = resources.n_regs
        self.n_spills = resources.n_spills
        self.n_max_threads = 1024
        self.metadata = SimpleNamespace(
            shared=resources.shared, name=innermost(kernel).__name__, num_warps=options.get("num_warps", 4)
        )
        self.asm: dict[str, Any] = {}

    def _init_handles(self) -> None:
        """Nothing is loaded."""

    def result(self) -> Compiled:
        return self

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, stream: Any = None) -> Any:
            return self._kernel.run(*args, grid=grid, warmup=False, **self._options)

        return launch


def innermost(kernel: Any) -> Any:
    """Triton's own object for a decorated kernel: a `JITFunction`, or in an interpreter an `InterpretedFunction`."""
    while not isinstance(kernel, (JITFunction, InterpretedFunction)):
        kernel = kernel.fn
    return kernel


def bind(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> Launch:
    """The Launch of one call. Raises TypeError for a call that Triton would refuse."""
    shape = _anatomy(kernel)
    names, site = shape.names, shape.site
    if len(args) > len(names):
        raise TypeError(f"{site} takes {len(names)} arguments, but {len(args)} were given")
    passed = dict(zip(names, args, strict=False))
    twice = [n for n in kwargs if n in passed]
    if twice:
        raise TypeError(f"{site} got two values for {twice[0]!r}")
    passed.update((k, v) for k, v in kwargs.items() if k in names)
    options = {k: plain_value(v) for k, v in kwargs.items() if k not in names}
    bound = {n: plain_value(v) for n, v in {**shape.defaults, **passed}.items() if n not in shape.provided}
    fixed = grid if callable(grid) else normal_grid(grid, site)
    return Launch(
        site, shape.fn, {n: bound[n] for n in names if n in bound}, options, fixed, shape.meta, shape.wrappers
    )


@dataclass(frozen=True)
class _Anatomy:
    """What is the same for every launch of a kernel. provided are the names that its decorators give values to."""

    kernel: Any
    fn: Any
    site: str
    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    provided: frozenset[str]
    meta: Mapping[str, Any]
    wrappers: tuple[Any, ...]


_ANATOMIES: dict[int, _Anatomy] = {}


def _anatomy(kernel: Any) -> _Anatomy:
    """Looked at once per kernel object, so that an intercepted launch in a timed call costs little."""
    known = _ANATOMIES.get(id(kernel))
    if known is None or known.kernel is not kernel:
        known = _ANATOMIES[id(kernel)] = _examined(kernel)
    return known


def _examined(kernel: Any) -> _Anatomy:
    fn = innermost(kernel)
    wrappers = tuple(_wrappers(kernel))
    tuners = [w for w in wrappers if isinstance(w, Autotuner)]
    first = config_values(tuners[0].configs[0]) if tuners else {}
    # What is no number (a word, a dtype) is no matter of tuning: it counts as passed by the launcher.
    words = {k: v for k, v in first.items() if not isinstance(v, (bool, int, float))}
    tuned = {name for w in tuners for c in w.configs for name in c.kwargs} - set(words)
    ruled = {name for w in wrappers if isinstance(w, Heuristics) for name in w.values}
    signature = inspect.signature(fn.fn)
    defaults = {n: p.default for n, p in signature.parameters.items() if p.default is not p.empty}
    meta = {k: v for k, v in first.items() if k not in words}
    names = tuple(fn.arg_names)
    return _Anatomy(kernel, fn, fn.__name__, names, {**defaults, **words}, frozenset(tuned | ruled), meta, wrappers)


def config_values(config: triton.Config) -> dict[str, Any]:
    """A `triton.Config` as a flat dict; options that it leaves at None are left out."""
    options = {name: getattr(config, name, None) for name in LAUNCH_OPTIONS}
    return {**config.kwargs, **{k: v for k, v in options.items() if v is not None}}


def plain_value(value: Any) -> Any:
    """The value inside a `tl.constexpr`, anything else as it is."""
    return value.value if isinstance(value, tl.constexpr) else value


def normal_grid(grid: Any, site: str) -> tuple[int, ...]:
    """A grid as one to three ints."""
    if not isinstance(grid, (tuple, list)) or not 1 <= len(grid) <= 3:
        raise TaskError(f"the grid of {site} is {grid!r}, not a tuple of one to three integers")
    return tuple(int(g) for g in grid)


def arg_fact(value: Any, what: str) -> ArgFact:
    """One argument as data. Raises TaskError for what the project cannot pass to a kernel."""
    if isinstance(value, torch.Tensor):
        return tensor_fact(value)
    if isinstance(value, tl.dtype):
        return DtypeFact(value.name)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TaskError(
        f"argument {what} is a {type(value).__name__}: only tensors, numbers, words and dtypes are supported yet"
    )


def tensor_fact(tensor: torch.Tensor) -> TensorFact:
    """A tensor as data; a tensor without data counts as aligned when its offset is."""
    name = str(tensor.dtype).removeprefix("torch.")
    # Asked below the function modes, where a stand-in tensor still says what it is.
    with torch._C.DisableTorchFunction():
        address = tensor.storage_offset() * tensor.itemsize if tensor.is_meta else tensor.data_ptr()
        return TensorFact(TRITON_DTYPES.get(name, name), tuple(tensor.shape), tuple(tensor.stride()), address % 16 == 0)


def _facts(args: Mapping[str, Any]) -> dict[str, ArgFact]:
    known = (torch.Tensor, bool, int, float, str)
    return {n: arg_fact(v, n) for n, v in args.items() if v is None or isinstance(v, known)}


def _wrappers(kernel: Any) -> Iterator[Any]:
    while not isinstance(kernel, (JITFunction, InterpretedFunction)):
        yield kernel
        kernel = kernel.fn


@contextmanager
def _wrap_triton_off() -> Iterator[None]:
    """`torch.library.wrap_triton` hands out the kernel itself, as it does inside an eager custom operator."""
    with set_wrap_triton_enabled(False):
        yield
