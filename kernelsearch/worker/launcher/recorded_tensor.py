"""Writes a recorded tensor as Python: its kind of values, its sizes by name, its layout as views of a larger one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch


def write_tensor(
    label: str, value: torch.Tensor, sizes: Mapping[tuple[str, int], str], numbers: Mapping[str, int]
) -> tuple[str, str]:
    """(A tensor like this one as an expression, what of its layout is not in it or "").

    sizes are the names by input and axis; numbers their values.
    """
    others = {name: n for name, n in numbers.items() if name not in [sizes.get((label, a)) for a in range(value.ndim)]}
    names = [sizes.get((label, axis), str(n)) for axis, n in enumerate(value.shape)]
    order = sorted(range(value.ndim), key=lambda axis: -value.stride()[axis])  # the outermost first
    room = _find_room(value, order)
    if room is None:
        text = _write_values(value, names, others)
        return text, f"{label} had strides {tuple(value.stride())}; it is contiguous here"
    laid_out, views = [names[axis] for axis in order], ""
    for place, axis in enumerate(order):
        if room[axis] > value.shape[axis]:
            views += f".narrow({place}, 0, {names[axis]})"
            laid_out[place] = _enlarge(names[axis], value.shape[axis], room[axis])
    if room[-1] > 1:
        laid_out.append(str(room[-1]))
        views = f"[..., 0]{views}"
    if order != list(range(value.ndim)):
        views += f".permute({', '.join(str(order.index(axis)) for axis in range(value.ndim))})"
    text = _write_values(value, laid_out, others)
    return (f"({text}){views}" if views and "<" in text else f"{text}{views}"), ""


def _find_room(value: torch.Tensor, order: Sequence[int]) -> dict[int, int] | None:
    """The elements that each axis has room for, and under -1 those between neighbours; None for no plain view."""
    room, inside, reach = {axis: value.shape[axis] for axis in order} | {-1: 1}, -1, 1
    for axis in reversed(order):
        size, stride = value.shape[axis], value.stride(axis)
        if size > 1:
            room[inside], rest = divmod(stride, reach)
            if rest or not stride or (inside >= 0 and room[inside] < value.shape[inside]):
                return None
            inside, reach = axis, stride
    return room


def _write_values(value: torch.Tensor, laid_out: Sequence[str], others: Mapping[str, int]) -> str:
    """Random values of the kind that a tensor has: truth values, zeros and ones, whole numbers or any.

    Whole numbers stay below all sizes of other tensors that they were below: they may be indices into these.
    """
    shape = f"({', '.join(laid_out)},)" if laid_out else "()"
    if value.dtype == torch.bool:
        return f"torch.rand({shape}) < 0.5"
    if value.is_floating_point():
        ones = value == 1
        if ones.any() and not ones.all() and (ones | (value == 0)).all():
            return f"torch.randint(0, 2, {shape}).to({value.dtype})"
        return f"torch.randn({', '.join(laid_out) or '()'}, dtype={value.dtype})"
    low, high = (int(value.min()), int(value.max()) + 1) if value.numel() else (0, 1)
    limits = [str(high), *(name for name, size in others.items() if size >= high > 2)]
    limit = f"min({', '.join(limits)})" if len(limits) > 1 else limits[0]
    return f"torch.randint({min(low, 0)}, {limit}, {shape}, dtype={value.dtype})"


def _enlarge(name: str, size: int, space: int) -> str:
    return f"{space // size} * {name}" if space % size == 0 else f"{name} + {space - size}"
