"""The KernelBench form: a task's `ModelNew` as a class of the package, and the operator that its forward pass calls."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

import torch

from kernelsearch.core.types import Evidence
from kernelsearch.export.domain import annotation, cases_text, set_text, verified_text
from kernelsearch.export.errors import ExportError
from kernelsearch.export.operator import imports, launch_rows, wrapped_names
from kernelsearch.export.part import Part
from kernelsearch.export.ship import reads
from kernelsearch.export.texts import class_name
from kernelsearch.tasks.kernelbench import overridden


def module_files(part: Part) -> str:
    """The text of a task folder's `__init__.py` for a task whose launcher is a module. Raises ExportError."""
    e = part.examined
    judged, dtypes = _judged(part)
    names = [i.name for i in e.inputs]
    if not all(i.is_tensor and annotation(i) == "Tensor" for i in e.inputs):
        raise ExportError(f"{e.task.path.name} cannot be shipped: every input of its module must be a tensor")
    if e.outputs is None or e.task.mutates:
        raise ExportError(f"{e.task.path.name} cannot be shipped: a module that changes its inputs is not supported")
    typed = ", ".join(f"{n}: Tensor" for n in names)
    inputs = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
    returns = f"tuple[{', '.join(['Tensor'] * e.outputs)}]" if e.in_tuple else "Tensor"
    body = f"TASK.traced_module({inputs}, state, init, fallback, wrapped)"
    key = ", ".join(f"{n}.shape, {n}.stride(), {n}.dtype, {n}.device" for n in names)
    asked = " or ".join(f"{n}.requires_grad" for n in names)
    kind = class_name(part.name)
    seed = part.module_of(part.seed.digest)
    weak = part.chosen.weakest is not Evidence.CONFIRMED
    lines = [
        f'"""{part.name}: the public module, its operator, and what it chooses from."""',
        "",
        "from typing import Any",
        "",
        "import torch",
        "from torch import Tensor",
        "from torch.library import triton_op, wrap_triton",
        "",
        "from .._build import NAMESPACE",
        "from .._dispatch import _PLAIN, Case, Verified, _compiling, _modes, _transforms, forward_only, strict",
        *(["from .._launch import with_config"] if "with_config" in str(launch_rows(part)) else []),
        "from .._module import ModuleTask",
        *imports(part),
        "",
        f"VERIFIED = {verified_text(part)}",
        f"CASES = {cases_text(part)}",
        "TASK = ModuleTask(",
        f'    "{part.name}", {tuple(names)!r}, None, None, task.get_inputs, VERIFIED,',
        "    launches={",
        *[f'        "{k}": {v},' for k, v in launch_rows(part)],
        "    },",
        f"    cases=CASES, precision={e.task.precision!r}, seed=({seed}.SITES, {seed}.CONFIG),",
        "    kind=task.ModelNew, model=task.Model, file=task,",
        f"    judged=frozenset({set_text(judged)}), dtypes=frozenset({set_text(dtypes)}),",
        ")",
        "",
        "",
        f'@triton_op(f"{{NAMESPACE}}::{part.name}", mutates_args=())',
        f"def _operator({typed}, state: list[Tensor], init: str, fallback: bool) -> {returns}:",
        "    wrapped = {",
        *[f"        {name}: wrap_triton({name})," for _, _, name in wrapped_names(part)],
        "    }",
        f"    return {f'tuple({body})' if e.in_tuple else body}",
        "",
        "",
        "_operator.register_autograd(forward_only(TASK.name))",
        "",
        "",
        f"class {kind}(task.ModelNew):",
        f'    """`Model` of {e.task.path.name}, by kernels found by a search.',
        *(["", f"    NOT CONFIRMED: the speed-ups are {part.chosen.weakest.value} only."] if weak else []),
        "",
        "    Made with the same values as `Model`, with weights of the same names.",
        "    Where a call was not verified (other devices, dtypes, sizes, values, a gradient) the reference runs with this",
        "    module's weights; with fallback=False, or after `strict()`, NotVerified is raised instead.",
        '    """',
        "",
        "    def __init__(self, *args: Any, **kwargs: Any) -> None:",
        "        super().__init__(*args, **kwargs)",
        "        self._made_with = TASK.made(args, kwargs)",
        "",
        f"    def forward(self, {typed}, *, fallback: bool = True) -> {returns}:",
        "        allowed = fallback and not strict.on",
        "        state = [*self.parameters(), *self.buffers()]",
        f"        if torch.is_grad_enabled() and ({asked} or any(s.requires_grad for s in state)):",
        '            TASK.refuse(allowed, "the kernels are forward only, and a gradient is asked for")',
        f"            return TASK.by_reference({inputs}, self, self._made_with)",
        f"        if _compiling() or _modes() or _transforms() or not _PLAIN.issuperset(map(type, ({', '.join(names)}, *state))):",
        f"            return _operator({', '.join(names)}, state, self._made_with, allowed)",
        f"        key = {key}, self._made_with, tuple((s.dtype, s.device) for s in state)",
        f"        return TASK.direct_module(key, {inputs}, self, self._made_with, allowed)",
        "",
        "",
        *([f"{part.name} = {kind}"] if part.name != kind else []),
        f"TASK.attach({kind}, _operator)",
    ]
    return "\n".join(lines) + "\n"


def _judged(part: Part) -> tuple[list[str], list[str]]:
    """(The values that the judged modules were made with, as JSON, the dtypes of their weights). Raises ExportError."""
    task = part.examined.task
    file, module = task.path.name, task.module
    params = {key: task.params(key) for key in task.keys}
    varying = {n for n in next(iter(params.values())) if len({p[n] for p in params.values()}) > 1}
    read = sorted(varying & reads(task.path.read_text(encoding="utf-8"), ("Model", "ModelNew")))
    if read:
        raise ExportError(
            f"{file} cannot be shipped: its modules read the shape parameter {read[0]}, "
            "which a user's call does not set; pass it to __init__, or take it from the input"
        )
    judged, dtypes = set(), set()
    for key in task.keys:
        with overridden(module, params[key]):
            init = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
            with torch.device("meta"):
                new, model = module.ModelNew(*init), module.Model(*init)
        judged.add(_text(module.ModelNew, init))
        _same_weights(new, model, file)
        dtypes |= {str(s.dtype).removeprefix("torch.") for s in (*new.parameters(), *new.buffers())}
    return sorted(judged), sorted(dtypes)


def _text(kind: type, init: Any) -> str:
    """As `ModuleTask.made` says it in the package."""
    bound = inspect.signature(kind.__init__).bind(None, *init)
    bound.apply_defaults()
    return json.dumps([bound.args[1:], bound.kwargs], sort_keys=True)


def _same_weights(new: torch.nn.Module, model: torch.nn.Module, file: str) -> None:
    """The reference must be able to run with the new module's weights, and nothing may be hidden in attributes."""
    own, theirs = _shapes(new), _shapes(model)
    lost = [n for n in theirs if own.get(n) != theirs[n]]
    if lost:
        raise ExportError(
            f"{file} cannot be shipped: ModelNew has no weight {lost[0]} of Model's shape, "
            "so that the reference could not stand in for it"
        )
    for module in new.modules():
        hidden = [n for n, v in vars(module).items() if isinstance(v, torch.Tensor)]
        if hidden:
            raise ExportError(
                f"{file} cannot be shipped: ModelNew keeps the tensor {hidden[0]} outside of parameters and buffers"
            )


def _shapes(module: torch.nn.Module) -> Mapping[str, tuple[int, ...]]:
    return {n: tuple(v.shape) for n, v in (*module.named_parameters(), *module.named_buffers())}
