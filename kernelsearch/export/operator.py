"""The module with a task's public function and its torch operator, written for the task's own inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence

from kernelsearch.core.types import Evidence
from kernelsearch.export.domain import annotation, cases_text, default_text, verified_text
from kernelsearch.export.examine import Input
from kernelsearch.export.modules import place_of
from kernelsearch.export.part import Part


def operator_module(part: Part) -> str:
    """The text of a task folder's `__init__.py`."""
    e = part.examined
    names = [i.name for i in e.inputs]
    inputs = ", ".join(names) + ("," if len(names) == 1 else "")
    passed = ", ".join(names)
    switch = _free("fallback", names)
    typed = ", ".join(f"{i.name}: {annotation(i)}" for i in e.inputs)
    public = ", ".join(f"{i.name}: {annotation(i)}{default_text(i)}" for i in _defaults_last(e.inputs))
    tensors = [i.name for i in e.inputs if i.is_tensor]
    optional = [i.name for i in e.inputs if i.is_tensor and "Optional" in annotation(i)]
    key = ", ".join(_key(n, n in optional) if n in tensors else n for n in names)
    gradient = " or ".join(
        f"({n} is not None and {n}.requires_grad)" if n in optional else f"{n}.requires_grad" for n in tensors
    )
    many = e.outputs is not None and e.in_tuple
    body = f"TASK.traced(({inputs}), fallback, wrapped)"
    wrap = ["wrapped = {", *(f"    {name}: wrap_triton({name})," for _, _, name in wrapped_names(part)), "}"]
    if e.outputs is None:
        back = ", ".join(e.returned) + ("," if e.in_tuple and len(e.returned) == 1 else "") if e.returned else "None"
        returns = (
            f"tuple[{', '.join(['Tensor'] * len(e.returned))}]" if e.in_tuple else "Tensor" if e.returned else "None"
        )
        op_returns, op_body = "None", [body]
    else:
        back = ""
        returns = op_returns = f"tuple[{', '.join(['Tensor'] * e.outputs)}]" if many else "Tensor"
        op_body = [f"return tuple({body})" if many else f"return {body}"]
    key = f"{key}{',' if len(names) == 1 and key.count(',') == 0 else ''}"
    lines = [
        f'"""{part.name}: the public function, its operator, and what it chooses from."""',
        "",
        *(["from typing import Optional", ""] if any("Optional" in annotation(i) for i in e.inputs) else []),
        "import torch",
        "from torch import Tensor",
        "from torch.library import triton_op, wrap_triton",
        "",
        "from .._build import NAMESPACE",
        "from .._dispatch import _PLAIN, Case, Task, Verified, _compiling, _modes, _transforms, forward_only, strict",
        *(["from .._launch import with_config"] if "with_config" in str(launch_rows(part)) else []),
        *imports(part),
        "",
        f"VERIFIED = {verified_text(part)}",
        f"CASES = {cases_text(part)}",
        "TASK = Task(",
        f'    "{part.name}", {tuple(names)!r}, task.{e.launcher}, {place_of(part, "reference")}.{e.reference},',
        f"    {place_of(part, 'get_inputs')}.get_inputs, VERIFIED,",
        "    launches={",
        *[f'        "{k}": {v},' for k, v in launch_rows(part)],
        "    },",
        f"    cases=CASES, mutates={e.task.mutates!r}, precision={e.task.precision!r}, tolerance={_tolerance(part)!r},",
        f"    seed=({part.module_of(part.seed.digest)}.SITES, {part.module_of(part.seed.digest)}.CONFIG),",
        ")",
        "",
        "",
        f'@triton_op(f"{{NAMESPACE}}::{part.name}", mutates_args={tuple(e.task.mutates)!r})',
        f"def _operator({typed}, fallback: bool) -> {op_returns}:",
        *[f"    {line}" for line in (*wrap, *op_body)],
        "",
        "",
        *([] if e.outputs is None else ["_operator.register_autograd(forward_only(TASK.name))", "", ""]),
        f"def {part.name}({public}, *, {switch}: bool = True) -> {returns}:",
        *[f"    {line}".rstrip() for line in _docstring(part, switch)],
        f"    allowed = {switch} and not strict.on",
        f"    if torch.is_grad_enabled() and {gradient if len(tensors) == 1 else f'({gradient})'}:",
        *[f"        {line}" for line in _ending(f"TASK.with_gradient(({inputs}), allowed)", back)],
        f"    if _compiling() or _modes() or _transforms() or {_other_than_plain(tensors)}:",
        *[f"        {line}" for line in _ending(f"_operator({passed}, allowed)", back)],
        *[f"    {line}" for line in _ending(f"TASK.direct(({key}), ({inputs}), allowed)", back)],
        "",
        "",
        f"TASK.operator, TASK.public = _operator, {part.name}",
    ]
    return "\n".join(lines).replace("\n\n\n\n", "\n\n\n") + "\n"


def _ending(call: str, back: str) -> list[str]:
    """Calls and returns the result; where inputs are given back, these, whoever computed."""
    return [call, f"return {back}"] if back else [f"return {call}"]


def _other_than_plain(names: Sequence[str]) -> str:
    """Whether one of these is no ordinary tensor, as code; written out, because each call pays for it."""
    return " or ".join(f"type({name}) not in _PLAIN" for name in names)


def _free(word: str, taken: list[str]) -> str:
    return word if word not in taken else _free(word + "_", taken)


def _key(name: str, optional: bool) -> str:
    facts = f"{name}.shape, {name}.stride(), {name}.dtype, {name}.device"
    return f"None if {name} is None else ({facts})" if optional else facts


def _defaults_last(inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """The inputs; a default counts only where no later input is without one."""
    last = max((n for n, i in enumerate(inputs) if not default_text(i)), default=-1)
    return tuple(Input(i.name, i.values) if n < last else i for n, i in enumerate(inputs))


def imports(part: Part) -> list[str]:
    modules = sorted({"task", place_of(part, "reference"), place_of(part, "get_inputs")})
    kernels = sorted(part.module_of(d) for d in part.kernels)
    found = [f"from . import {', '.join([*kernels, *modules])}"]
    found += [f"from .{module} import {kernel} as {name}" for module, kernel, name in wrapped_names(part)]
    return found


def launch_rows(part: Part) -> list[tuple[str, str]]:
    """For each kernel of the table the launch functions by site, as Python; sites that it leaves alone are the seed's."""
    seed = part.module_of(part.seed.digest)
    rows = []
    for digest in part.kernels:
        module, own = part.module_of(digest), part.sites_of(digest)
        rest = [s.name for s in part.examined.sites if s.name not in own]
        keys = [(digest, "SITES")]
        if part.tuned(digest):
            keys += [(part.table_key(digest, shape), f"SITES_{n}") for n, (shape, _) in enumerate(part.buckets(digest))]
        for key, sites in keys:
            others = "".join(f'"{s}": with_config({seed}.SITES["{s}"], {seed}.CONFIG), ' for s in rest)
            rows.append((key, f"{{{others}**{module}.{sites}}}" if rest else f"{module}.{sites}"))
    return rows


def wrapped_names(part: Part) -> list[tuple[str, str, str]]:
    """(Module, kernel, its name here) of all that is launched.

    The operator's body wraps each by a plain name: there torch looks for the kernels whose source its caches depend on.
    """
    names: list[tuple[str, str]] = []
    for digest in part.kernels:
        module = part.module_of(digest)
        steps = {f for _, functions in part.sites_of(digest).values() for f in functions}
        names += [(module, f) for f in sorted(steps)]
        if part.tuned(digest):
            names += [(module, f"{f}_{n}") for n, _ in enumerate(part.buckets(digest)) for f in sorted(steps)]
    return [(module, f, f"{f}_{module.rpartition('_')[2]}") for module, f in names]


def _tolerance(part: Part) -> float:
    value = part.examined.task.tolerance
    return float(value) if isinstance(value, (int, float)) else 1.0


def _docstring(part: Part, switch: str) -> list[str]:
    e = part.examined
    kinds = ", ".join(sorted({f"{f.evidence.value} on {f.device}" for f in part.chosen.found}))
    lines = [f'"""`{e.reference}` of {e.task.path.name}, by kernels found by a search ({kinds}).', ""]
    if part.chosen.weakest is not Evidence.CONFIRMED:
        lines += [f"NOT CONFIRMED: the speed-ups are {part.chosen.weakest.value} only.", ""]
    for i in e.inputs:
        if i.is_tensor:
            axes = {len(v.shape) for v in i.values if v is not None}
            dtypes = sorted({v.dtype for v in i.values if v is not None})
            lines.append(f"{i.name}: {'/'.join(map(str, sorted(axes)))} axes, {' or '.join(dtypes)}.")
    if e.task.mutates:
        lines.append(f"Changes {', '.join(e.task.mutates)}.")
    return [
        *lines,
        "Where a call was not verified (other devices, dtypes, layouts, larger sizes, a gradient) the reference runs;",
        f"with {switch}=False, or after `strict()`, NotVerified is raised instead. `explain` says which.",
        '"""',
    ]
