"""Launch skeletons around the first kernel's body, made from nothing but the shapes of a reference.

`rows`: one program a row, the whole row in one block, for references over the last axis that give a tensor like their
widest input, or one number a row. `flat`: blocks of a flat array, for references whose tensors are all alike, element
by element, with rows too long for one block or without rows. All others are refused with the reason: a reference that
contracts two axes, or reduces all of them, needs a skeleton of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from textwrap import indent

from kernelsearch.core.types import TensorFact
from kernelsearch.tasks.outline import Argument, Outline

LONGEST_ROW = 65536
"""Elements of a row that one block may hold."""
FLAT_BLOCK = 1024

MARK = (
    "# ---- The first kernel: the launcher is kernelsearch's own, "
    "the body between loads and store was written by a model."
)


class NoTemplate(ValueError):
    """No skeleton fits the reference; the message says why, as a clause."""


@dataclass(frozen=True)
class Template:
    """A skeleton: a kernel without its body, and a launcher.

    roles maps each input of the body to `tile` (like the widest input), `column` (a value for each column), `row` (one
    for each row), `one` (a single value) or `number` (a Python number, passed as float). result and dtype are the
    output's shape and dtype as expressions of the launcher; reduces: the output has one number a row.
    """

    kind: str
    form: str
    widest: str
    roles: Mapping[str, str]
    parameters: tuple[str, ...]
    reduces: bool
    result: str
    dtype: str
    constants: tuple[float, ...] = ()

    kernel = "first_kernel"

    @property
    def tensors(self) -> list[str]:
        return [n for n, role in self.roles.items() if role != "number"]

    @property
    def numbers(self) -> list[str]:
        return [n for n, role in self.roles.items() if role == "number"]

    @property
    def size(self) -> str:
        """The kernel's argument in its mask."""
        return "n_cols" if self.kind == "rows" else "n"

    def source(self, body: str) -> str:
        """The kernel's text with this body: indented lines, of which the last binds `out`."""
        pointers = [f"{n}_ptr" for n in self.tensors]
        head = ", ".join([*pointers, "out_ptr", self.size, *self.numbers, "BLOCK: tl.constexpr"])
        loads = [f"    {n} = {_LOADS[self.roles[n]].format(n)}.to(tl.float32)" for n in self.tensors]
        at, end = ("row", ")") if self.reduces else ("at", ", mask=mask)")
        store = f"    tl.store(out_ptr + {at}, out.to(out_ptr.dtype.element_ty){end}"
        lines = ["@triton.jit", f"def {self.kernel}({head}):", *_STARTS[self.kind], *loads, body.rstrip("\n"), store]
        return "\n".join(lines) + "\n"

    def kernel_file(self, body: str) -> str:
        return f"import triton\nimport triton.language as tl\n\n\n{self.source(body)}"

    def file(self, original: str, body: str) -> str:
        """A task file: the original's text, then the kernel and the launcher."""
        imports = "import torch\nimport triton\nimport triton.language as tl\n"
        return f"{original.rstrip()}\n\n\n{MARK}\n\n{imports}\n\n{self.source(body)}\n\n{self._launcher()}"

    def _launcher(self) -> str:
        x, arguments = self.widest, ", ".join([*self.tensors, "out", self.size, *(f"float({n})" for n in self.numbers)])
        lines = [f"{n} = {n}.contiguous()" for n in self.tensors]
        lines.append(f"out = torch.empty({self.result}, dtype={self.dtype}, device={x}.device)")
        if self.kind == "rows":
            lines += [f"n_cols = {x}.shape[-1]", "block = triton.next_power_of_2(n_cols)"]
            lines.append(f"{self.kernel}[({x}.numel() // n_cols,)]({arguments}, BLOCK=block, num_warps=4)")
        else:
            lines += [f"n = {x}.numel()", 'grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)']
            lines.append(f"{self.kernel}[grid]({arguments}, BLOCK={FLAT_BLOCK}, num_warps=4)")
        lines.append("return out")
        takes, text = ", ".join(self.parameters), "\n".join(lines) + "\n"
        if self.form == "kernelbench":
            return f"class ModelNew(Model):\n    def forward(self, {takes}):\n" + indent(text, 8 * " ")
        return f"def first_launch({takes}):\n" + indent(text, 4 * " ") + '\n\nLAUNCHER = "first_launch"\n'


def choose_template(outline: Outline) -> Template:
    """The skeleton that fits a reference at all of its shapes. Raises NoTemplate."""
    if outline.stateful:
        raise NoTemplate("its Model has weights of its own, which no skeleton passes to a kernel")
    first = next(iter(outline.inputs.values()))
    taken = [n for n in first if _OURS.fullmatch(n)]
    if taken:
        raise NoTemplate(f"its parameter {taken[0]} has a name that the skeleton needs: call it something else")
    strange = [n for n, v in first.items() if not isinstance(v, (TensorFact, float, int)) or isinstance(v, bool)]
    if strange:
        raise NoTemplate(f"its input {strange[0]} is neither a tensor nor a number")
    tensors = [n for n, v in first.items() if isinstance(v, TensorFact)]
    if any(not _is_floating(inputs[n]) for inputs in outline.inputs.values() for n in tensors):
        raise NoTemplate("one of its inputs holds no floating-point numbers")
    if any(len(o) != 1 or not _is_floating(o[0]) for o in outline.outputs.values()):
        raise NoTemplate("it does not return one floating-point tensor")
    cases = [(outline.inputs[key], outline.outputs[key][0]) for key in outline.outputs]
    widest = max(tensors, key=lambda n: [prod(inputs[n].shape) for inputs, _ in cases], default=None)
    if widest is None or any(not inputs[widest].shape or 0 in inputs[widest].shape for inputs, _ in cases):
        raise NoTemplate("it has no input tensor with a last axis")
    result, reduces = _result(widest, cases)
    alike = all(inputs[n].shape == inputs[widest].shape for inputs, _ in cases for n in tensors) and not reduces
    flat = alike and any(len(i[widest].shape) == 1 or i[widest].shape[-1] > LONGEST_ROW for i, _ in cases)
    if not flat and any(inputs[widest].shape[-1] > LONGEST_ROW for inputs, _ in cases):
        raise NoTemplate(f"its rows are longer than {LONGEST_ROW} elements, which do not fit into one block")
    roles = {n: _role(n, widest, cases) if n in tensors else "number" for n in first}
    kind = "flat" if flat else "rows"
    dtype = _dtype(widest, cases)
    return Template(kind, outline.form, widest, roles, tuple(first), reduces, result, dtype, outline.constants)


_OURS = re.compile(r"row|cols|mask|at|out|n|n_cols|block|grid|meta|BLOCK|tl|triton|torch|[ts]\d+")
_STARTS = {
    "rows": [
        "    row = tl.program_id(0).to(tl.int64)",
        "    cols = tl.arange(0, BLOCK)",
        "    mask = cols < n_cols",
        "    at = row * n_cols + cols",
    ],
    "flat": ["    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)", "    mask = at < n"],
}
_LOADS = {
    "tile": "tl.load({0}_ptr + at, mask=mask, other=0.0)",
    "column": "tl.load({0}_ptr + cols, mask=mask, other=0.0)",
    "row": "tl.load({0}_ptr + row)",
    "one": "tl.load({0}_ptr)",
}

Case = tuple[Mapping[str, Argument], TensorFact]


def _result(widest: str, cases: list[Case]) -> tuple[str, bool]:
    """(the output's shape as an expression of the launcher, True if it has one number a row)."""
    shapes = [(tuple(inputs[widest].shape), tuple(out.shape)) for inputs, out in cases]
    for text, reduces, of in (
        (f"{widest}.shape", False, lambda s: s),
        (f"{widest}.shape[:-1]", True, lambda s: s[:-1]),
        (f"(*{widest}.shape[:-1], 1)", True, lambda s: (*s[:-1], 1)),
    ):
        if all(of(shape) == out for shape, out in shapes):
            return text, reduces
    shape, out = shapes[0]
    raise NoTemplate(f"it makes {list(out)} of {list(shape)}, neither a tensor of that shape nor one number a row")


def _role(name: str, widest: str, cases: list[Case]) -> str:
    """The role of an input for a row of the widest one, at all shapes."""
    shapes = [(tuple(inputs[name].shape), tuple(inputs[widest].shape)) for inputs, _ in cases]
    for role, fits in (
        ("tile", lambda s, x: s == x),
        ("column", lambda s, x: s == x[-1:]),
        ("row", lambda s, x: s in (x[:-1], (*x[:-1], 1))),
        ("one", lambda s, x: prod(s) == 1),
    ):
        if all(fits(s, x) for s, x in shapes):
            return role
    raise NoTemplate(f"its input {name} of shape {list(shapes[0][0])} is nothing that one row of {widest} needs")


def _dtype(widest: str, cases: list[Case]) -> str:
    if all(out.dtype == inputs[widest].dtype for inputs, out in cases):
        return f"{widest}.dtype"
    kinds = {out.dtype for _, out in cases}
    if len(kinds) > 1:
        raise NoTemplate("its output has another dtype than its input, and not always the same")
    return f"torch.{_TORCH[kinds.pop()]}"


_TORCH = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def _is_floating(fact: Argument) -> bool:
    return isinstance(fact, TensorFact) and fact.dtype in _TORCH
