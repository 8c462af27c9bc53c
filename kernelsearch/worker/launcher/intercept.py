"""Intercepts the launches of a launcher: each `kernel[grid](...)` gives a callback a `Launch`.

Interception happens where Triton itself dispatches, at the `run` methods of `JITFunction`, `Autotuner` and
`Heuristics`. So aliases, decorated kernels, keyword constexprs, grid lambdas and `wrap_triton` all work.

As in Triton's steady state, the `pre_hook` of an autotuner's config runs before the launch. The autotuner's own
`pre_hook` (`reset_to_zero`, `restore_value`) belongs to its benchmarking, which does not happen here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl
from torch._library.triton import set_wrap_triton_enabled
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.core.errors import ExpressionError, TaskError
from kernelsearch.core.types import LAUNCH_OPTIONS, ArgFact, Config, DescriptorFact, DtypeFact, Fill, TensorFact
from kernelsearch.kernel.expressions import Scope, evaluate
from kernelsearch.kernel.launch import TRITON_DTYPES
from kernelsearch.worker.launcher.standin import replace_attributes
from kernelsearch.worker.launcher.tensors import TORCH_DTYPES

DISPATCHERS = (JITFunction, Autotuner, Heuristics)

Grid = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]


@dataclass(frozen=True)
class Launch:
    """One launch by the launcher, not executed.

    site is the kernel's name, fn its innermost Triton object. args has the launcher's arguments and the parameters'
    defaults by parameter name: real tensors and scalars. It lacks the values that an autotuner's configs provide, and
    of those that a heuristic provides it has what the launcher passes for the heuristic to read. options are names that
    are not parameters, such as num_warps. meta_defaults is the autotuner's first config, options included. wrappers are
    the decorators around fn, outermost first. keywords are the names of what was not passed by place; kept is that of
    `LaunchFact`, once it is known; so are fills.
    """

    site: str
    fn: Any
    args: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: Grid
    meta_defaults: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[Any, ...] = ()
    keywords: frozenset[str] = frozenset()
    kept: tuple[int, ...] | None = None
    fills: Mapping[str, tuple[Fill, ...]] = field(default_factory=dict)

    @property
    def params(self) -> tuple[str, ...]:
        return tuple(self.fn.arg_names)

    @property
    def heuristics(self) -> frozenset[str]:
        """Names whose values the kernel's heuristics compute."""
        return frozenset(n for w in self.wrappers if isinstance(w, Heuristics) for n in w.values)

    def _own_values(self, config: Config | None) -> dict[str, Any]:
        """The config's values for this site; leaves out expressions without a value here: the plan reports them."""
        split = [(name.rpartition("."), value) for name, value in (config or {}).items()]
        values: dict[str, Any] = {name: value for (_, dot, name), value in split if not dot}
        values |= {name: value for (site, dot, name), value in split if dot and site == self.site}
        texts = [name for name, value in values.items() if isinstance(value, str)]
        if not texts:
            return values
        scope = Scope(_facts(self.args))
        for name in texts:
            try:
                values[name] = evaluate(values[name], scope)
            except ExpressionError:
                del values[name]
        return values

    def bind_parameters(self, config: Config | None = None) -> dict[str, Any]:
        """Every parameter with its value under a config, in the kernel's order; heuristics are evaluated.

        A config's value wins over a heuristic's and over the launcher's. Raises TaskError if a parameter has no value.
        """
        values, _ = self.resolve(config)
        missing = [name for name in self.params if name not in values]
        if missing:
            raise TaskError(f"the launcher passes no value for {missing[0]!r} of {self.site}")
        return {name: values[name] for name in self.params}

    def resolve_options(self, config: Config | None = None) -> dict[str, Any]:
        """num_warps and so on: the config's, else a heuristic's, else the launcher's; None is Triton's default."""
        return self.resolve(config)[1]

    def resolve(self, config: Config | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """(Parameters that have a value, options) under a config: a heuristic may compute either."""
        explicit = self._own_values(config)
        settings = {**self.meta_defaults, **explicit}
        values = {**self.args, **{k: v for k, v in settings.items() if k in self.params}}
        options = {**self.options, **{k: v for k, v in settings.items() if k in LAUNCH_OPTIONS}}
        for wrapper in self.wrappers:
            for name, rule in wrapper.values.items() if isinstance(wrapper, Heuristics) else ():
                if name not in explicit:
                    computed = unwrap_constexpr(rule({**options, **values}))
                    (values if name in self.params else options)[name] = computed
        return values, {k: v for k, v in options.items() if v is not None}

    def prune_configs(self) -> Launch:
        """The launch with the configs that its autotuner's `early_config_prune` keeps for these arguments."""
        tuner = next((w for w in self.wrappers if isinstance(w, Autotuner)), None)
        if tuner is None or tuner.early_config_prune is None:
            return self
        passed = {**self.options, **self.args}
        by_place = {n: v for n, v in self.args.items() if n not in self.keywords}
        kept = tuner.early_config_prune(tuner.configs, by_place, **{n: passed[n] for n in self.keywords if n in passed})
        return replace(self, kept=tuple(i for i, c in enumerate(tuner.configs) if any(c is k for k in kept)))

    def resolve_grid(self, meta: Mapping[str, Any]) -> tuple[int, ...]:
        """The launcher's grid under a config or a set of constexprs, one to three integers.

        The real arguments replace facts in meta (`TensorFact`, `DtypeFact`).
        """
        if not callable(self.grid):
            return self.grid
        real = {k: v for k, v in meta.items() if not isinstance(v, (TensorFact, DtypeFact))}
        return normalise_grid(self.grid({**real, **self.bind_parameters(real)}), self.site)

    def list_tiles(self, config: Config) -> tuple[str, ...]:
        """The parameters that the launcher's grid reads, if it is a function."""
        if not callable(self.grid):
            return ()
        meta = _ReadMeta({**self.resolve_options(config), **self.bind_parameters(config)})
        self.grid(meta)
        return tuple(sorted(meta.read))

    @property
    def has_hooks(self) -> bool:
        """True if a config of its autotuner has a `pre_hook`."""
        return any(c.pre_hook is not None for w in self.wrappers if isinstance(w, Autotuner) for c in w.configs)

    def run_pre_hooks(self, config: Config | None = None) -> None:
        """Runs the `pre_hook` of the autotuner's config that equals this one, else of the first that has one."""
        for wrapper in self.wrappers:
            if not isinstance(wrapper, Autotuner) or all(c.pre_hook is None for c in wrapper.configs):
                continue
            values = {**self.bind_parameters(config), **self.resolve_options(config)}
            exact = [c for c in wrapper.configs if all(values.get(k) == v for k, v in flatten_config(c).items())]
            hooks = [c.pre_hook for c in exact] or [c.pre_hook for c in wrapper.configs if c.pre_hook is not None]
            if hooks and hooks[0] is not None:
                hooks[0](values)


class _ReadMeta(dict[str, Any]):
    """What a grid function is given; read has the names that it looked up."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


@contextmanager
def intercept_launches(on_launch: Callable[[Launch], Any]) -> Iterator[None]:
    """Within the context, each launch of a kernel goes to on_launch, each `.warmup(...)` is answered, nothing runs."""

    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        if warmup:
            return CompiledStandIn(self, {k: v for k, v in kwargs.items() if k not in unwrap_kernel(self).arg_names})
        launch = bind(self, args, kwargs, grid)
        result = on_launch(launch)
        return result if result is not None else CompiledStandIn(self, launch.options)

    with ExitStack() as stack:
        for kind in DISPATCHERS:
            stack.enter_context(replace_attributes(kind, run=run))
        # `torch.library.wrap_triton` then returns the kernel itself, as inside an eager custom operator
        stack.enter_context(set_wrap_triton_enabled(False))
        yield


class CompiledStandIn:
    """Stand-in for the object that `.warmup(...)` and a launch return: it has resources and can be launched.

    Tutorials compute the occupancy from its resources before they choose a grid. The numbers are assumptions.
    """

    n_regs = 32
    n_spills = 0
    n_max_threads = 1024

    def __init__(self, kernel: Any, options: Mapping[str, Any]) -> None:
        self._kernel = kernel
        self._options = dict(options)
        warps = options.get("num_warps", 4)
        self.metadata = SimpleNamespace(shared=0, name=unwrap_kernel(kernel).__name__, num_warps=warps)
        self.asm: dict[str, Any] = {}

    def _init_handles(self) -> None:
        """Nothing is loaded."""

    def result(self) -> CompiledStandIn:
        return self

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, stream: Any = None) -> Any:
            return self._kernel.run(*args, grid=grid, warmup=False, **self._options)

        return launch


def unwrap_kernel(kernel: Any) -> Any:
    """Triton's own object for a decorated kernel."""
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def bind(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> Launch:
    """The Launch of one call. Raises TypeError for a call that Triton would refuse."""
    anatomy = _anatomy(kernel)
    names, site = anatomy.names, anatomy.fn.__name__
    if len(args) > len(names):
        raise TypeError(f"{site} takes {len(names)} arguments, but {len(args)} were given")
    passed = dict(zip(names, args, strict=False))
    twice = [n for n in kwargs if n in passed]
    if twice:
        raise TypeError(f"{site} got two values for {twice[0]!r}")
    passed.update((k, v) for k, v in kwargs.items() if k in names)
    options = {k: unwrap_constexpr(v) for k, v in kwargs.items() if k not in names}
    bound = {**anatomy.defaults, **{n: _as_tensor(unwrap_constexpr(v), f"{n!r} of {site}") for n, v in passed.items()}}
    own_args = {n: unwrap_constexpr(bound[n]) for n in names if n in bound and n not in anatomy.tuned}
    fixed_grid = grid if callable(grid) else normalise_grid(grid, site)
    return Launch(site, anatomy.fn, own_args, options, fixed_grid, anatomy.meta, anatomy.wrappers, frozenset(kwargs))


@dataclass(frozen=True)
class _Anatomy:
    """The part of a Launch that is the same for every launch of a kernel; its autotuner sets the tuned names.

    defaults are those of the parameters that no decorator sets.
    """

    kernel: Any
    fn: Any
    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    tuned: frozenset[str]
    meta: Mapping[str, Any]
    wrappers: tuple[Any, ...]


_ANATOMIES: dict[int, _Anatomy] = {}


def _anatomy(kernel: Any) -> _Anatomy:
    """The kernel's anatomy, kept by kernel object: an intercepted launch in a timed call must cost little."""
    known = _ANATOMIES.get(id(kernel))
    if known is None or known.kernel is not kernel:
        known = _ANATOMIES[id(kernel)] = _examine(kernel)
    return known


def _examine(kernel: Any) -> _Anatomy:
    fn, wrappers = kernel, tuple[Any, ...]()
    while not isinstance(fn, JITFunction):
        fn, wrappers = fn.fn, (*wrappers, fn)
    tuners = [w for w in wrappers if isinstance(w, Autotuner)]
    first = flatten_config(tuners[0].configs[0]) if tuners else {}
    # Words and dtypes are not tuned: they count as the launcher's own arguments.
    words = {k: v for k, v in first.items() if not isinstance(v, (bool, int, float))}
    tuned = {name for w in tuners for c in w.configs for name in c.kwargs} - set(words)
    ruled = {name for w in wrappers if isinstance(w, Heuristics) for name in w.values}
    signature = inspect.signature(fn.fn)
    defaults = {n: p.default for n, p in signature.parameters.items() if p.default is not p.empty and n not in ruled}
    meta = {k: v for k, v in first.items() if k not in words}
    return _Anatomy(kernel, fn, tuple(fn.arg_names), {**defaults, **words}, frozenset(tuned), meta, wrappers)


def flatten_config(config: triton.Config) -> dict[str, Any]:
    """A `triton.Config` as a flat dict, without the options that are None."""
    options = {name: getattr(config, name, None) for name in LAUNCH_OPTIONS}
    return {**config.kwargs, **{k: v for k, v in options.items() if v is not None}}


def unwrap_constexpr(value: Any) -> Any:
    """The value inside a `tl.constexpr`, anything else as it is."""
    return value.value if isinstance(value, tl.constexpr) else value


def _as_tensor(value: Any, what: str) -> Any:
    """The tensor behind an object that Triton takes for a pointer, such as `triton.reinterpret` makes; others as is."""
    if isinstance(value, torch.Tensor) or not hasattr(value, "data_ptr"):
        return value
    base = next((v for v in vars(value).values() if isinstance(v, torch.Tensor)), None)
    if base is None:
        raise TaskError(f"argument {what} is a {type(value).__name__} that holds no tensor: pass a tensor")
    name = value.dtype.name if isinstance(value.dtype, tl.dtype) else str(value.dtype).removeprefix("torch.")
    dtype = TORCH_DTYPES.get(TRITON_DTYPES.get(name, name))
    if dtype is None or dtype.itemsize != base.dtype.itemsize:
        was = str(base.dtype).removeprefix("torch.")
        raise TaskError(
            f"argument {what} is {was} that is read as {name}: only dtypes of PyTorch of the same size are supported"
        )
    with torch._C.DisableTorchFunction():
        start = value.data_ptr() - base.data_ptr()
        typed = base.view(dtype)
        if not start:
            return typed
        first = typed.storage_offset() + start // dtype.itemsize
        return typed.as_strided((typed.untyped_storage().nbytes() // dtype.itemsize - first,), (1,), first)


def normalise_grid(grid: Any, site: str) -> tuple[int, ...]:
    """A grid as one to three ints."""
    if not isinstance(grid, (tuple, list)) or not 1 <= len(grid) <= 3:
        raise TaskError(f"the grid of {site} is {grid!r}, not a tuple of one to three integers")
    return tuple(int(g) for g in grid)


def as_arg_fact(value: Any, what: str) -> ArgFact:
    """One argument as data. Raises TaskError for a type that the project cannot pass to a kernel."""
    if isinstance(value, torch.Tensor):
        return as_tensor_fact(value)
    if isinstance(value, TensorDescriptor):
        return as_descriptor_fact(value)
    if isinstance(value, tl.dtype):
        return DtypeFact(value.name)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TaskError(
        f"argument {what} is a {type(value).__name__}: only tensors, numbers, words and dtypes are supported"
    )


def as_tensor_fact(tensor: torch.Tensor) -> TensorFact:
    """A tensor as data; a tensor without data counts as aligned if its offset is."""
    name = str(tensor.dtype).removeprefix("torch.")
    # Below the function modes, where a stand-in tensor still shows its real device.
    with torch._C.DisableTorchFunction():
        address = tensor.storage_offset() * tensor.itemsize if tensor.is_meta else tensor.data_ptr()
        return TensorFact(TRITON_DTYPES.get(name, name), tuple(tensor.shape), tuple(tensor.stride()), address % 16 == 0)


def as_descriptor_fact(descriptor: TensorDescriptor) -> DescriptorFact:
    """A descriptor as data: the dtype and alignment of its tensor, its own shape and strides, its tile."""
    base = as_tensor_fact(descriptor.base)
    sizes = (tuple(map(int, part)) for part in (descriptor.shape, descriptor.strides, descriptor.block_shape))
    shape, stride, block = sizes
    rounds = getattr(descriptor, "round_f32_to_tf32", False)
    return DescriptorFact(base.dtype, shape, stride, base.aligned, block, descriptor.padding, rounds)


def _facts(args: Mapping[str, Any]) -> dict[str, ArgFact]:
    known = (torch.Tensor, TensorDescriptor, bool, int, float, str)
    return {n: as_arg_fact(v, n) for n, v in args.items() if v is None or isinstance(v, known)}
