"""Descriptor arguments of a binary: the machine's parameters that each becomes, and how the copy engine reads it.

From Hopper on, Triton passes a tensor map and then shape and strides; before, the address, 64-bit sizes, flags, and
shape and strides once more (`triton/backends/nvidia/driver.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

MAP = "map"
"""The kind of a parameter that is a tensor map of 128 bytes."""
_ON_THE_HOST = {8: 10, 9: 8, 10: 9}
"""CUDA's numbers of element types, by those that Triton's compiler writes for the device, where they differ."""
TF32 = 11


@dataclass(frozen=True)
class TensorMap:
    """What `cuTensorMapEncodeTiled` is told of a descriptor argument beside address, shape and strides."""

    swizzle: int
    element_bytes: int
    element_type: int
    box: tuple[int, ...]

    @classmethod
    def read(cls, meta: Mapping[str, Any]) -> TensorMap:
        """From Triton's metadata of one descriptor."""
        kind = meta["elem_type"]
        return cls(meta["swizzle"], meta["elem_size"], _ON_THE_HOST.get(kind, kind), tuple(meta["block_size"]))


def is_descriptor_kind(kind: str) -> bool:
    return kind.startswith("tensordesc")


def count_axes(kind: str) -> int:
    """The axes of a descriptor's tiles; a Gluon one has its layout behind them."""
    return kind.partition("[")[2].partition("]")[0].count(",") + 1


def expand_kinds(kinds: Sequence[str], mapped: bool) -> Iterator[tuple[int, str]]:
    """The machine's parameters of a signature: (index of the argument, kind) of each."""
    for index, kind in enumerate(kinds):
        if not is_descriptor_kind(kind):
            yield index, kind
            continue
        dtype, rank = kind.removeprefix("tensordesc<").partition("[")[0], count_axes(kind)
        pointer = [f"*{dtype}", *["i64"] * 2 * rank, *["i1"] * len(list_flags())]
        for part in (*([MAP] if mapped else pointer), *["i32"] * rank, *["i64"] * rank):
            yield index, part


def name_parameters(params: Sequence[tuple[str, str]], mapped: bool) -> tuple[str, ...]:
    """The names of the machine's parameters: an argument's own, then `x_desc.1` and so on for its sizes."""
    seen: Counter[str] = Counter()
    names = []
    for index, _ in expand_kinds([kind for _, kind in params], mapped):
        name = params[index][0]
        names.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return tuple(names)


@cache
def list_flags() -> tuple[str, ...]:
    """The flags of a descriptor that this version of Triton has, in the order in which it passes them."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    known = {f.name for f in fields(TensorDescriptor)}
    return tuple(name for name in ("padding", "round_f32_to_tf32") if name in known)
