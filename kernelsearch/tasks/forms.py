"""Shared by the three forms of task file: optional names, shapes, the launcher, and the `Task` made of them."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import reprlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

import torch
from torch.utils._pytree import SequenceKey, keystr, tree_flatten_with_path, tree_leaves, tree_map_only, tree_unflatten

from kernelsearch.core.errors import NoKernelError, TaskError
from kernelsearch.core.parsing import find_nearest, parse_python
from kernelsearch.tasks.module import SEED_LAUNCHER
from kernelsearch.tasks.named_function import explain_method
from kernelsearch.tasks.reach import LIBRARIES, find_kernels, loaded_names
from kernelsearch.tasks.shrink import choose_base, keep_by_shape, shrink_shape
from kernelsearch.tasks.task import Builder, Params, Task, check_inputs
from kernelsearch.tasks.tried_inputs import count_input_elements

PRECISIONS = ("ieee", "tf32x3", "tf32", "half-accumulate")
"""The values of PRECISION; `verify/precision.py` has their meaning."""

DOMAINS = ("positive", "nonnegative", "unit", "finite", "fixed")
"""The values of DOMAIN for an input; `verify/regimes.py` has their meaning."""

Nest = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes of a function of the file one that takes the inputs one by one."""

Bound = tuple[tuple[Any, ...], tuple[str, ...], Nest]
DIFFERENTIATES = re.compile(r"\bautograd\.grad\(|\.backward\(|\.requires_grad_\(")
NEEDS_GRADIENT = re.compile(r"requires? grad")
"""What PyTorch says where something is differentiated and gradients are off."""


@dataclass(frozen=True)
class TaskSource:
    """A task file that was imported."""

    path: Path
    digest: str
    module: ModuleType

    @property
    def name(self) -> str:
        """The name of the user's own file, also where kernels were added to a copy of it."""
        stem = self.path.stem
        return stem.removesuffix("_seeded") if hasattr(self.module, SEED_LAUNCHER) else stem

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self.module, name, default)


def make_task(
    source: TaskSource,
    form: str,
    complete: Callable[[Mapping[str, Any]], Params],
    builder: Builder,
    roots: tuple[Any, ...],
    probe: Builder | None = None,
) -> Task:
    """A Task with the file's shapes; test shapes are made here where the file has none. Raises TaskError.

    complete fills in all parameters of a shape. probe builds the cases on which smaller shapes are tried (default:
    builder).
    """
    given = read_options(source)
    shapes = [complete(s) for s in given.get("SHAPES", [{}])]
    tests, note = given.get("TEST_SHAPES"), ""
    if tests is None:
        elements = keep_by_shape(functools.partial(count_input_elements, probe or builder))
        tests, note = shrink_shape(choose_base(shapes), elements)
    return Task(
        name=source.name,
        path=source.path,
        digest=source.digest,
        form=form,
        shapes=tuple((f"timed:{i}", params) for i, params in enumerate(shapes)),
        test_shapes=tuple((f"test:{i}", complete(params)) for i, params in enumerate(tests)),
        builder=builder,
        module=source.module,
        roots=roots,
        notes=(note,) if note else (),
        precision=given.get("PRECISION", PRECISIONS[0]),
        tolerance=given.get("TOLERANCE"),
        mutates=tuple(given.get("MUTATES", ())),
        domain=dict(given.get("DOMAIN", {})),
        space=source.get("SPACE"),
        config=source.get("CONFIG"),
        constraints=tuple(given.get("CONSTRAINTS", ())),
        baselines=dict(given.get("BASELINES", {})),
    )


def seed_torch(seed: int) -> None:
    """Seeds torch's random numbers on the CPU and on CUDA's devices.

    `torch.manual_seed` queues a call for each other kind of device too, with this one's stack as text: a millisecond.
    """
    torch.default_generator.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def bind_inputs(path: Path, given: Any, device: str, reference: Any, launcher: Any = None) -> Bound:
    """(The inputs with their tensors on device, the reference's parameters that take them, `Nest`). Raises TaskError.

    Of a list of tensors each element is an input of its own, `weights[0]`, as each of `*weights` is; so is a default.
    """
    inputs = (given,) if isinstance(given, torch.Tensor) else given
    if not isinstance(inputs, (list, tuple)):
        raise TaskError(f"{path.name}: get_inputs must return a list of inputs, not {type(given).__name__}")
    inputs = (*inputs, *_list_defaults(reference, launcher, len(inputs)))
    names = parameter_names(reference)
    if rest := _name_rest(reference):
        names += tuple(f"{rest}[{i}]" for i in range(len(inputs) - len(names)))
    if not len(required_names(reference)) <= len(inputs) <= len(names):
        takes = f"{reference.__name__} takes ({', '.join(names)})"
        raise TaskError(f"{path.name}: get_inputs gives {len(inputs)} inputs, but {takes}")
    apart = [x if any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(x)) else None for x in inputs]
    places, spec = tree_flatten_with_path(apart)
    numbers = [cast(SequenceKey[Any], at[0]).idx for at, _ in places]
    flat = [inputs[i] if len(at) == 1 else leaf for i, (at, leaf) in zip(numbers, places, strict=True)]
    moved = tuple(x.detach().to(device) if isinstance(x, torch.Tensor) else x for x in flat)
    wanted = [isinstance(x, torch.Tensor) and x.requires_grad for x in flat]

    def nest(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function, updated=())
        def call(*values: Any) -> Any:
            leaves = (v.detach().requires_grad_() if w else v for v, w in zip(values, wanted, strict=True))
            return function(*tree_unflatten(leaves, spec))

        return call if any(wanted) or any(len(at) > 1 for at, _ in places) else function

    called = tuple(names[i] + keystr(at[1:]) for i, (at, _) in zip(numbers, places, strict=True))
    check_inputs(path.name, dict(zip(called, moved, strict=True)))
    return moved, called, nest


def limit_gradients(module: ModuleType, function: Any) -> Any:
    """The function without gradients, or with them if its file differentiates or it fails for want of one.

    Results have none. What fails runs twice, which a launcher that has launched kernels had better not.
    """
    needed = bool(DIFFERENTIATES.search(Path(module.__file__ or "").read_text(encoding="utf-8")))

    @functools.wraps(function, updated=())
    def call(*inputs: Any) -> Any:
        nonlocal needed
        try:
            if not needed:
                with torch.no_grad() if torch.is_grad_enabled() else nullcontext():  # the judge's modes make it slow
                    return function(*inputs)
        except RuntimeError as error:
            if not NEEDS_GRADIENT.search(str(error)):
                raise
            needed = True
        with torch.enable_grad():
            return tree_map_only(torch.Tensor, torch.Tensor.detach, function(*inputs))

    return call


def _list_defaults(reference: Any, launcher: Any, given: int) -> tuple[Any, ...]:
    """The numbers that are defaults of both after the first `given` parameters: inputs that get_inputs leaves out."""
    if launcher is None or any(hasattr(f, "_opoverload") for f in (reference, launcher)):
        return ()
    plain, kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, (bool, int, float)
    bare = ([p.replace(annotation=p.empty) for p in _list_parameters(f).values()] for f in (reference, launcher))
    both = zip(*(parameters[given:] for parameters in bare))
    alike = itertools.takewhile(lambda p: type(p[0].default) in kinds and p[0].kind is plain and p[0] == p[1], both)
    return tuple(p.default for p, _ in alike)


def parameter_names(function: Any) -> tuple[str, ...]:
    """The names of a function's parameters; those of a custom operator of torch are in its schema."""
    if hasattr(function, "_opoverload"):
        return tuple(a.name for a in function._opoverload._schema.arguments)
    named = _list_parameters(function)
    return tuple(name for name, p in named.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))


def _name_rest(function: Any) -> str:
    """The name of a function's `*args`, empty without them."""
    named = {} if hasattr(function, "_opoverload") else _list_parameters(function)
    return next((name for name, p in named.items() if p.kind is p.VAR_POSITIONAL), "")


def required_names(function: Any) -> tuple[str, ...]:
    """The parameters of a function that have no default."""
    if hasattr(function, "_opoverload"):
        return tuple(a.name for a in function._opoverload._schema.arguments if not a.has_default_value())
    named = _list_parameters(function)
    return tuple(n for n, p in named.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)


def _list_parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters by name; `apply` of an autograd.Function takes those of its `forward` after the context."""
    if not _is_apply(function):
        return inspect.signature(function).parameters
    owner = function.__self__
    named = inspect.signature(owner.forward).parameters
    has_context = owner.setup_context is torch.autograd.Function.setup_context
    return dict(list(named.items())[has_context:])


def _is_apply(value: Any) -> bool:
    owner = value.__self__ if inspect.ismethod(value) else None
    return isinstance(owner, type) and issubclass(owner, torch.autograd.Function) and value.__name__ == "apply"


def find_own_callables(source: TaskSource) -> dict[str, Any]:
    """Functions that the file itself defines or binds at its top level, kernels not among them."""

    def is_own(value: Any) -> bool:
        if isinstance(value, FunctionType):
            return value.__module__.partition(".")[0] not in LIBRARIES
        return hasattr(value, "_opoverload") or _is_apply(value)

    return {name: value for name, value in vars(source.module).items() if is_own(value)}


def find_launcher(source: TaskSource, takes: tuple[str, ...]) -> Any:
    """The launcher: the function in LAUNCHER, else the one with the reference's parameters that reaches a kernel.

    takes are the reference's parameters. A function of that many required parameters under other names counts only when
    no function has those very names. Raises TaskError, which says what to add.
    """
    named = source.get("LAUNCHER")
    if named is not None:
        launcher = source.get(named) if isinstance(named, str) else named
        if not callable(launcher):
            raise TaskError(f"{source.path.name}: LAUNCHER names {named!r}, which is not a function of this file")
        return launcher
    other = {"reference", "get_inputs", "get_init_inputs", "bytes_moved", "flops"}
    launching = {n: f for n, f in find_own_callables(source).items() if n not in other and find_kernels([f])}
    if not launching:
        _refuse_method(source, ", ".join(takes))
        raise NoKernelError(explain_missing_kernel(source))
    exact = {
        n: f
        for n, f in launching.items()
        if parameter_names(f)[: len(takes)] == takes and set(required_names(f)) <= set(takes)
    }
    alike = exact or {n: f for n, f in launching.items() if len(required_names(f)) == len(takes)}
    alike = {n: f for n, f in alike.items() if not _is_apply(f)} or alike  # a function may wrap it
    if len(alike) > 1 and source.name in alike:
        return alike[source.name]
    if len(alike) > 1:
        alike = _not_called_by_others(alike)
    if len(alike) == 1:
        return next(iter(alike.values()))
    names = ", ".join(alike or launching)
    why = (
        "several functions could be the launcher"
        if alike
        else f"no function that launches a kernel takes ({', '.join(takes)})"
    )
    raise TaskError(
        f'{source.path.name}: {why} ({names}); add a line\n    LAUNCHER = "{next(iter(alike or launching))}"'
    )


def _refuse_method(source: TaskSource, given: str) -> None:
    """Raises TaskError where a method of a plain class launches a kernel: given are the reference's parameters."""
    own = (c for c in vars(source.module).values() if isinstance(c, type) and c.__module__ == source.module.__name__)
    for owner in (c for c in own if c.__base__ is object):
        for name, function in vars(owner).items():
            if isinstance(function, FunctionType) and find_kernels([function]):
                how = explain_method(owner.__name__, name, given)
                raise TaskError(
                    f"{source.path.name}: {owner.__name__}.{name}, which launches a kernel, is a method: {how}"
                )


def suggest_seed(source: TaskSource) -> str:
    name = source.path.stem
    return f"let TorchInductor write the first one (`kernelsearch seed {name}.py -o {name}_seeded.py`)"


def explain_missing_kernel(source: TaskSource) -> str:
    return (
        f"{source.path.name} has no kernel that a function of it launches; {suggest_seed(source)}, or add\n"
        "    @triton.jit\n"
        "    def my_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr): ...\n"
        "    def my_launcher(x):  # the reference's parameters\n"
        "        y = torch.empty_like(x)\n"
        "        my_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)\n"
        "        return y"
    )


def _not_called_by_others(functions: Mapping[str, Any]) -> dict[str, Any]:
    """The functions that no other of these calls: a wrapper hides the function that it wraps."""
    called: set[str] = set()
    for name, function in functions.items():
        code = getattr(function, "__code__", None)
        called |= {n for n in functions if n != name and code is not None and n in loaded_names(code)}
    return {n: f for n, f in functions.items() if n not in called}


# ---------------------------------------------------------------- optional names


def read_options(source: TaskSource) -> dict[str, Any]:
    """The file's options that are not None. Raises TaskError for a value of the wrong kind, or a misspelt name."""
    _refuse_misspelt(source)
    given = {name: value for name in OPTIONS if (value := source.get(name)) is not None}
    for name, value in given.items():
        is_right, expected = OPTIONS[name]
        if not is_right(value):
            raise TaskError(f"{source.path.name}: {name} must be {expected}, not {reprlib.repr(value)}")
    wrong = [limit for limit in given.get("DOMAIN", {}).values() if limit not in DOMAINS and not _is_range(limit)]
    if wrong:
        known = f"{', '.join(DOMAINS)}, or a range such as (-8, 8)"
        raise TaskError(f"{source.path.name}: a domain is one of {known}, not {wrong[0]!r}")
    names = {name: (value,) for name, value in given.items() if OPTIONS[name][0] is _is_names and type(value) is str}
    return {**given, **names}


def _refuse_misspelt(source: TaskSource) -> None:
    """Raises TaskError for an unused upper-case name that is close to an option's and has a value of its kind."""
    tree = parse_python(source.path.read_text(encoding="utf-8"))
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    known: dict[str, Callable[[Any], bool]] = {n: is_right for n, (is_right, _) in OPTIONS.items()}
    known |= {"SPACE": _is_mapping, "CONFIG": _is_mapping, "LAUNCHER": lambda value: isinstance(value, str)}
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        for name in (t.id for t in targets if isinstance(t, ast.Name) and t.id.isupper() and t.id not in known):
            near, value = find_nearest(name, known), source.get(name)
            if near and name not in read and (known[near](value) or known[near]([value])):
                raise TaskError(
                    f"{source.path.name}: nothing reads {name}: did you mean {near}? Rename it, or delete it"
                )


def _is_range(value: Any) -> bool:
    """Whether a value is a pair of finite numbers, the smaller first."""
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2
    return is_pair and all(type(v) in (int, float) and abs(v) < float("inf") for v in value) and value[0] < value[1]


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_shape_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(map(_is_mapping, value))


def _is_text_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value)


def _is_factor(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")


def _is_names(value: Any) -> bool:
    return isinstance(value, (str, tuple, list)) and all(isinstance(n, str) for n in value)


_SHAPES = (_is_shape_list, "a list of dicts, such as [dict(rows=7, cols=1000)]")
OPTIONS = {
    "SHAPES": _SHAPES,
    "TEST_SHAPES": _SHAPES,
    "CONSTRAINTS": (_is_text_list, 'a list of expressions, such as ["BM * BN <= 16384"]'),
    "PRECISION": (lambda value: isinstance(value, str) and value in PRECISIONS, f"one of {', '.join(PRECISIONS)}"),
    "TOLERANCE": (_is_factor, "a number above 0 that multiplies the allowed error"),
    "MUTATES": (_is_names, 'names of inputs, such as ("x",)'),
    "DOMAIN": (_is_mapping, 'a dict such as {"x": "positive"}'),
    "BASELINES": (_is_mapping, "a dict of functions by name"),
    "GRADIENT_OF": (lambda value: isinstance(value, str), 'the name of a file, such as "rmsnorm.py"'),
    "GRADIENTS": (_is_names, 'names of inputs, such as ("x",)'),
    "SAVED": (_is_mapping, 'a dict such as {"y": 0}'),
}
"""Optional names: whether a value is of the right kind, and what it must be."""
