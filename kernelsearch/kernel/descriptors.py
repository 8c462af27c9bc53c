"""Tensor descriptors that a launch makes on the host: their form in a kernel file, and what the copy engine can take.

The limits are those of `cuTensorMapEncodeTiled` (CUDA Driver API) and of Triton's own `TensorDescriptor`.
"""

from __future__ import annotations

import math
from typing import Any

from kernelsearch.core.types import DescriptorFact

DESCRIPTOR_FORM = '{"a_desc": ("a_ptr", "(shape)", "(strides)", "(block shape)")}, perhaps with a fifth item None'
MAX_RANK = 5
MAX_SIZE = 2**31 - 1
MAX_STRIDE_BYTES = 2**40
MAX_BLOCK = 2**20
"""Elements of a tile in Triton."""
STEP_BYTES = 16
"""Addresses and strides are multiples of this, and a tile's rows are no shorter."""
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


def are_descriptors(specs: Any) -> bool:
    """True for a dict in the form above; a fifth item None is what is passed where there can be no descriptor."""
    return isinstance(specs, dict) and all(
        isinstance(name, str)
        and isinstance(spec, (tuple, list))
        and (len(spec) == 4 or (len(spec) == 5 and spec[4] is None))
        and all(isinstance(text, str) for text in spec[:4])
        for name, spec in specs.items()
    )


def write_kind(fact: DescriptorFact) -> str:
    """Triton's type of a descriptor argument."""
    return f"tensordesc<{fact.dtype}[{', '.join(map(str, fact.block))}]>"


def count_bytes(dtype: str) -> int:
    """Bytes of an element of one of Triton's types."""
    bits = dtype.partition("e")[0] if dtype.startswith("fp8") else dtype
    return _BYTES[bits.lstrip("abcdefghijklmnopqrstuvwxyz")]


def refuse_descriptor(fact: DescriptorFact) -> str:
    """The reason why there can be no such descriptor, as one clause; empty if there can be."""
    rank = len(fact.block)
    if not 1 <= rank <= MAX_RANK or not len(fact.shape) == len(fact.stride) == rank:
        return f"shape, strides and block shape have {len(fact.shape)}, {len(fact.stride)} and {rank} axes, not 1 to 5"
    if fact.dtype == "i1":
        return "there are none of truth values"
    width = count_bytes(fact.dtype)
    if not fact.aligned:
        return f"its address is no multiple of {STEP_BYTES} bytes"
    if any(not 1 <= n <= MAX_SIZE for n in fact.shape):
        return f"its shape is {fact.shape}"
    if fact.stride[-1] != 1:
        return f"its last stride is {fact.stride[-1]}, not 1"
    if any(s * width % STEP_BYTES or not 0 <= s * width < MAX_STRIDE_BYTES for s in fact.stride[:-1]):
        return f"its strides {fact.stride} of {width}-byte elements are no multiples of {STEP_BYTES} bytes"
    if any(n < 1 or n & (n - 1) for n in fact.block) or math.prod(fact.block) > MAX_BLOCK:
        return f"its block shape {fact.block} is not of powers of 2, or has more than {MAX_BLOCK} elements"
    if fact.block[-1] * width < STEP_BYTES:
        return f"its block shape {fact.block} has rows of less than {STEP_BYTES} bytes"
    return ""
