"""A loop's variable is a scalar tensor of 32 or 64 bits, as in compiled code, where the interpreter gives a Python int.

`for row in tl.range(first, n_rows, step): x_ptr + row.to(tl.int64) * stride` is what large tensors need; a Python int
has no `to`, and does not wrap around as 32 bits do. `tl.static_range` keeps its ints: they are the compiler's constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_plain_core = interpreter._patch_lang_core


def install() -> None:
    """Once for this process: `tl.range`. The builtin `range` is a matter of a kernel's namespace (`run_programs`)."""
    interpreter._patch_lang_core = _patched_core


def _patched_core(lang: Any, *scope: Any) -> None:
    _plain_core(lang, *scope)
    lang.range = ranged


def ranged(first: Any, last: Any = None, step: Any = None, **_: Any) -> Iterator[Any]:
    """`range` and `tl.range` of a kernel."""
    indices, kind = iterations(first, last, step)
    for index in indices:
        yield variable(index, kind)


def iterations(first: Any, last: Any = None, step: Any = None) -> tuple[range, Any]:
    """The numbers that a loop goes through, and the type of its variable: the widest of its bounds'."""
    bounds = (0, first, 1) if last is None else (first, last, 1 if step is None else step)

    def wide(bound: Any) -> bool:
        if isinstance(bound, tl.tensor):
            return bound.dtype.primitive_bitwidth > 32
        return not -(2**31) <= plain_int(bound) < 2**31

    return range(*map(plain_int, bounds)), tl.int64 if any(map(wide, bounds)) else tl.int32


def variable(index: int, kind: Any) -> Any:
    """One value of a loop's variable, as `tl.program_id` gives its own."""
    data = np.array([index], dtype=np.int64 if kind is tl.int64 else np.int32)
    return tl.tensor(interpreter.TensorHandle(data, kind), kind)


def plain_int(value: Any) -> int:
    """The number inside a scalar tensor or a constexpr."""
    handle = getattr(value, "handle", None)
    if handle is not None:
        return int(handle.data.reshape(-1)[0])
    return int(getattr(value, "value", value))
