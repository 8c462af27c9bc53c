"""What each operation of TTIR does, as a function of a run, its operands' values and the programs that are on.

A value of logical shape S is a tensor whose shape broadcasts to [programs of the chunk, *S]. An axis has size 1 where
all agree, so `splat` and `broadcast` cost nothing, and what all programs share is computed once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch

from kernelsearch.evaluate import arithmetic
from kernelsearch.evaluate.accesses import ACCESSES, State, Step, Value
from kernelsearch.evaluate.arithmetic import dtype_of
from kernelsearch.evaluate.faults import Fault, OutOfBounds, Unsupported
from kernelsearch.evaluate.memory import choose
from kernelsearch.evaluate.sums import LazySum, add, add_up
from kernelsearch.ir.text import Operation

Tensor = torch.Tensor
NOTHING = frozenset("gpu.barrier ttg.barrier tt.print tt.assert ttg.local_barrier".split())
"""Operations that change no value here; assertions count in debug builds only."""
WAITS = frozenset(
    "gpu.barrier ttg.barrier ttg.local_barrier tt.reduce tt.scan tt.dot tt.dot_scaled tt.gather tt.histogram "
    "tt.atomic_rmw tt.atomic_cas".split()
)
"""Operations in which the warps of a program may wait for one another, so that they see what was stored before."""
REFUSED = {
    "tt.elementwise_inline_asm": "inline PTX",
}
"""Operations that only a GPU runs, by the words for them."""


def build_step(op: Operation) -> Step:
    """The step of an operation other than control flow. Raises Unsupported."""
    step = _end_phase(_build_step(op)) if op.name in WAITS else _build_step(op)
    kind = op.types[-1] if op.types else None
    if kind is None or not kind.element.startswith("i") or len(kind.shape) > 1:
        return step
    divisor, length, equal = (re.search(rf"tt\.{n} = dense<(\d+)>", op.text) for n in HINTS)
    if divisor is not None:
        step = _check_multiples(op, step, int(divisor[1]), int(length[1]) if length else math.prod(kind.shape))
    for hint, is_equal in ((length, False), (equal, True)):
        if hint is not None and int(hint[1]) > 1 and math.prod(kind.shape) % int(hint[1]) == 0:
            step = _check_runs(op, step, int(hint[1]), is_equal)
    return step


HINTS = ("divisibility", "contiguity", "constancy")


def _check_runs(op: Operation, step: Step, length: int, equal: bool) -> Step:
    """The step, and whether lanes follow each other as `tl.max_contiguous` says, or are equal (`tl.max_constancy`).

    Rows that wrap round at a tensor's end break a run of the first kind, whose lanes are masked later: most hold.
    """

    def check(run: State, values: list[Value], act: Tensor | None) -> Any:
        made = step(run, values, act)
        lanes = add_up(made).to(torch.int64)
        if lanes.dim() > 1 and lanes.shape[1] > 1:
            part = length if equal else min(length, VECTOR)
            steps = lanes.reshape(lanes.shape[0], -1, part).diff(dim=2)
            holds = (steps == (0 if equal else 1)).all(2)
            holds = holds.all(1) if equal else 2 * holds.sum(1) >= holds.shape[1]
            what = ("max_contiguous", "lie side by side which do not"), ("max_constancy", "are equal which are not")
            said = "`tl.{}` says that lanes {}: a load or store may take one for all".format(*what[equal])
            _must_hold(run, op, holds, act, said)
        return made

    return check


VECTOR = 4
"""Lanes that one load may take together."""


def _check_multiples(op: Operation, step: Step, divisor: int, run_length: int) -> Step:
    """The step, and whether what it gives is a multiple as `tl.multiple_of` says: of a tile the first of each run."""

    def check(run: State, values: list[Value], act: Tensor | None) -> Any:
        made = step(run, values, act)
        first = add_up(made)
        first = first if first.dim() == 1 else first[:, :: max(1, run_length)]
        said = f"`tl.multiple_of` says a multiple of {divisor} of what is none: loads may be misaligned"
        _must_hold(run, op, first % divisor == 0, act, said)
        return made

    return check


def _must_hold(run: State, op: Operation, condition: Tensor, act: Tensor | None, said: str) -> None:
    """Raises Fault where a condition does not hold in a program that is on."""
    broken = run.memory.mask_lanes(~condition, act, condition.dim() - 1)
    if broken is not None and bool(broken.any()):
        raise Fault(said, op.line)


def _end_phase(step: Step) -> Step:
    def end(run: State, values: list[Value], act: Tensor | None) -> Any:
        buffers = run.memory.buffers
        buffers.phase = None if buffers.phase is None else buffers.phase + 1
        return step(run, values, act)

    return end


def _build_step(op: Operation) -> Step:
    if op.name in arithmetic.BINARY:
        return _build_binary(op)
    if op.name in arithmetic.UNARY:
        unary = arithmetic.UNARY[op.name]
        return lambda run, values, act: unary(add_up(values[0]))
    if op.name in arithmetic.CASTS:
        cast = arithmetic.build_cast(op)
        return lambda run, values, act: cast(add_up(values[0]))
    if op.name in NOTHING:
        return lambda run, values, act: []
    if op.name in REFUSED:
        raise Unsupported(REFUSED[op.name])
    build = _BUILDERS.get(op.name)
    if build is None:
        raise Unsupported(op.name)
    return build(op)


def _build_binary(op: Operation) -> Step:
    if op.name == "arith.addi" and op.types[-1].shape and op.types[-1].element != "i1":
        dtype = dtype_of(op.types[-1].element)
        return lambda run, values, act: add(values[0], values[1], dtype)
    binary = arithmetic.BINARY[op.name]
    return lambda run, values, act: binary(add_up(values[0]), add_up(values[1]))


# ---------------------------------------------------------------- values without arithmetic


def _build_constant(op: Operation) -> Step:
    constant = arithmetic.read_constant(op)
    return lambda run, values, act: constant


def _build_program_id(op: Operation) -> Step:
    axis = "xyz".index(op.text.strip()[0])
    return lambda run, values, act: run.ids[axis]


def _build_num_programs(op: Operation) -> Step:
    axis = "xyz".index(op.text.strip()[0])
    return lambda run, values, act: torch.tensor([run.grid[axis]], dtype=torch.int32)


def _build_range(op: Operation) -> Step:
    made = torch.arange(op.integer("start"), op.integer("end"), dtype=torch.int32)[None]
    return lambda run, values, act: made


def _build_splat(op: Operation) -> Step:
    ones = (1,) * len(op.types[-1].shape)
    return lambda run, values, act: add_up(values[0]).reshape(-1, *ones)


def _build_expand(op: Operation) -> Step:
    axis = op.integer("axis") + 1

    def expand(run: State, values: list[Value], act: Tensor | None) -> Value:
        value = values[0]
        if type(value) is LazySum:
            return LazySum([part.unsqueeze(axis) for part in value.parts], value.dtype)
        return value.unsqueeze(axis)

    return expand


def spread(value: Value, shape: tuple[int, ...]) -> Tensor:
    """A value with all lanes of its shape; programs that agree stay one."""
    value = add_up(value)
    return value.expand(value.shape[0], *shape)


def _build_reshape(op: Operation) -> Step:
    old, new = op.types[0].shape, op.types[-1].shape
    if old == new:
        return lambda run, values, act: values[0]
    return lambda run, values, act: (whole := spread(values[0], old)).reshape(whole.shape[0], *new)


def _build_transpose(op: Operation) -> Step:
    order = re.search(r"order = array<i32: ([\d, ]+)>", op.text)
    if order is None:
        raise Unsupported("a transposition without an order")
    axes = (0, *(int(n) + 1 for n in order[1].split(",")))
    return lambda run, values, act: add_up(values[0]).permute(axes)


def _spread_pair(values: list[Value], shape: tuple[int, ...]) -> list[Tensor]:
    return list(torch.broadcast_tensors(*(spread(v, shape) for v in values)))


def _build_join(op: Operation) -> Step:
    shape = op.types[0].shape
    return lambda run, values, act: torch.stack(_spread_pair(values, shape), -1)


def _build_split(op: Operation) -> Step:
    shape = op.types[0].shape
    return lambda run, values, act: list(spread(values[0], shape).unbind(-1))


def _build_cat(op: Operation) -> Step:
    shape = op.types[0].shape
    return lambda run, values, act: torch.cat(_spread_pair(values, shape), 1)


def _build_gather(op: Operation) -> Step:
    axis, (shape, index_shape) = op.integer("axis") + 1, (kind.shape for kind in op.types[:2])

    def gather(run: State, values: list[Value], act: Tensor | None) -> Tensor:
        source, index = spread(values[0], shape), spread(values[1], index_shape)
        count = max(source.shape[0], index.shape[0])
        source, index = source.expand(count, *source.shape[1:]), index.expand(count, *index.shape[1:]).to(torch.int64)
        if bool(((index < 0) | (index >= source.shape[axis])).any()):
            raise OutOfBounds("an index of tl.gather lies outside of its tile", op.line)
        if source.dtype in arithmetic.SMALL_FLOATS:
            return source.view(torch.int8).gather(axis, index).view(source.dtype)
        return source.gather(axis, index)

    return gather


def _build_histogram(op: Operation) -> Step:
    shape, (bins,) = op.types[0].shape, op.types[-1].shape

    def count(run: State, values: list[Value], act: Tensor | None) -> Tensor:
        same = (spread(values[0], shape) & (bins - 1))[..., None] == torch.arange(bins)  # only low bits are compared
        if len(values) > 1:
            same = same & spread(values[1], shape)[..., None]
        return same.sum(1).to(torch.int32)

    return count


# ---------------------------------------------------------------- comparisons, selection, functions


def _build_compare(op: Operation) -> Step:
    kind = op.text.split(",")[0].split()[-1]
    compare = arithmetic.compare_integers if op.name == "arith.cmpi" else arithmetic.compare_floats
    return lambda run, values, act: compare(kind, add_up(values[0]), add_up(values[1]))


def _build_clamp(op: Operation) -> Step:
    plain = "propagateNan = none" in op.text

    def clamp(run: State, values: list[Value], act: Tensor | None) -> Tensor:
        value, low, high = values
        if plain:
            return torch.fmin(torch.fmax(value, low), high)
        return torch.minimum(torch.maximum(value, low), high)

    return clamp


def _build_function(op: Operation) -> Step:
    function = arithmetic.build_function(op)
    return lambda run, values, act: function(*map(add_up, values))


# ---------------------------------------------------------------- reductions, scans, products


def _build_reduce(op: Operation) -> Step:
    axis, shape = op.integer("axis") + 1, op.types[0].shape

    def fold(run: State, values: list[Value], act: Tensor | None) -> list[Tensor]:
        values = [add_up(v) for v in values]
        if len(values) == 1:
            at_once = arithmetic.reduce_at_once(op, values[0], axis, lambda: spread(values[0], shape))
            if at_once is not None:
                return [at_once]
        values = [spread(v, shape).movedim(axis, 1) for v in values]
        while (length := values[0].shape[1]) > 1:  # a tree, each step with the IR's own operation and rounding
            half = length // 2
            values = run.combine(op, [v[:, :half] for v in values], [v[:, half:] for v in values])
        return [v[:, 0] for v in values]

    return fold


def _build_scan(op: Operation) -> Step:
    axis, (shape, element) = op.integer("axis") + 1, (op.types[0].shape, op.types[0].element)
    inner, is_reversed = op.regions[0][-1].ops, bool(op.integer("reverse"))
    is_sum = arithmetic.is_plain(op) and inner[0].name == "arith.addf" and element == "f32"

    def scan(run: State, values: list[Value], act: Tensor | None) -> list[Tensor]:
        values = [spread(v, shape).movedim(axis, 1) for v in values]
        values = [v.flip(1) if is_reversed else v for v in values]
        if is_sum:
            values = [values[0].cumsum(1)]
        else:
            step = 1
            while step < values[0].shape[1]:
                made = run.combine(op, [v[:, :-step] for v in values], [v[:, step:] for v in values])
                values = [torch.cat([v[:, :step], m], 1) for v, m in zip(values, made, strict=True)]
                step *= 2
        return [(v.flip(1) if is_reversed else v).movedim(1, axis) for v in values]

    return scan


def _build_dot(op: Operation) -> Step:
    (left, right, *_), result = op.types, op.types[-1]
    dtype, is_integer = dtype_of(result.element), left.element == "i8"
    wide = torch.float64 if "f64" in (left.element, result.element) or is_integer else torch.float32
    is_tf32 = re.search(r"inputPrecision = tf32\b", op.text) is not None and left.element == "f32"
    # `tf32x3` and `bf16x3` products stand for a float32 one

    def multiply(run: State, values: list[Value], act: Tensor | None) -> Tensor:
        a, b, c = (spread(v, kind.shape) for v, kind in zip(values, (left, right, result), strict=True))
        a, b = a.to(wide), b.to(wide)
        if is_tf32:
            a, b = arithmetic.round_tf32(a), arithmetic.round_tf32(b)
        if is_integer:
            return c + (a @ b).to(torch.int32)
        if c.dtype == wide and a.dim() == 3:
            count = max(a.shape[0], b.shape[0], c.shape[0])
            return torch.baddbmm(*(v.expand(count, *v.shape[1:]) for v in (c, a, b)))
        return (c.to(wide) + torch.matmul(a, b)).to(dtype)

    return multiply


def _build_map(op: Operation) -> Step:
    pack, shape = op.integer("pack", 1), op.types[0].shape

    def apply(run: State, values: list[Value], act: Tensor | None) -> list[Tensor]:
        wide = torch.broadcast_tensors(*(spread(v, shape) for v in values))
        args = [part for v in wide for part in v.reshape(-1, pack).unbind(1)]
        count, lanes = wide[0].shape[0], wide[0][0].numel() // pack
        parts = [add_up(v).expand(count * lanes) for v in run.apply(op, args, lanes)]
        groups = [parts[i : i + pack] for i in range(0, len(parts), pack)]
        return [torch.stack(group, -1).reshape(count, *shape) for group in groups]

    return apply


def _build_scaled_product(op: Operation) -> Step:
    multiply = arithmetic.build_scaled_product(op)
    return lambda run, values, act: multiply(*map(add_up, values))


def _build_assumption(op: Operation) -> Step:
    def check(run: State, values: list[Value], act: Tensor | None) -> list[Tensor]:
        said = "`tl.assume` says what does not hold, so that the compiled code may do anything"
        _must_hold(run, op, add_up(values[0]), act, said)
        return []

    return check


_BUILDERS: dict[str, Callable[[Operation], Step]] = {
    **ACCESSES,
    "arith.constant": _build_constant,
    "tt.get_program_id": _build_program_id,
    "tt.get_num_programs": _build_num_programs,
    "tt.make_range": _build_range,
    "tt.splat": _build_splat,
    "tt.unsplat": lambda op: lambda run, values, act: add_up(values[0]).reshape(-1),
    "tt.broadcast": lambda op: lambda run, values, act: values[0],
    "tt.expand_dims": _build_expand,
    "tt.reshape": _build_reshape,
    "tt.trans": _build_transpose,
    "tt.join": _build_join,
    "tt.split": _build_split,
    "tt.cat": _build_cat,
    "tt.gather": _build_gather,
    "tt.histogram": _build_histogram,
    "arith.cmpi": _build_compare,
    "arith.cmpf": _build_compare,
    "arith.select": lambda op: lambda run, values, act: choose(add_up(values[0]), *values[1:]),
    "math.fma": lambda op: lambda run, values, act: arithmetic.fuse(*map(add_up, values)),
    "tt.clampf": _build_clamp,
    "tt.extern_elementwise": _build_function,
    "tt.reduce": _build_reduce,
    "tt.scan": _build_scan,
    "tt.dot": _build_dot,
    "tt.dot_scaled": _build_scaled_product,
    "tt.map_elementwise": _build_map,
    "llvm.intr.assume": _build_assumption,
}
