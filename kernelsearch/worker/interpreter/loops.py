"""Loop variables as scalar tensors of 32 or 64 bits, as in compiled code; Triton's interpreter gives Python ints.

Large tensors need `for row in tl.range(first, n_rows, step): x_ptr + row.to(tl.int64) * stride`; a Python int has no
`to`, and it does not wrap around at 32 bits. `tl.static_range` keeps its ints, which are constants of the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


def install() -> None:
    """Replaces `tl.range`, once for this process. `run_programs` replaces `range` in a kernel's own namespace."""
    plain = interpreter._patch_lang_core

    def patch(lang: Any, *scope: Any) -> None:
        plain(lang, *scope)
        lang.range = iterate

    interpreter._patch_lang_core = patch


def iterate(first: Any, last: Any = None, step: Any = None, **_: Any) -> Iterator[Any]:
    """The `range` and `tl.range` of a kernel."""
    indices, kind = iterations_of(first, last, step)
    for index in indices:
        yield make_variable(index, kind)


def iterations_of(first: Any, last: Any = None, step: Any = None) -> tuple[range, Any]:
    """The indices of a loop and the type of its variable: the widest type of its bounds."""
    bounds = (0, first, 1) if last is None else (first, last, 1 if step is None else step)

    def is_wide(bound: Any) -> bool:
        if isinstance(bound, tl.tensor):
            return bound.dtype.primitive_bitwidth > 32
        return not -(2**31) <= to_int(bound) < 2**31

    return range(*map(to_int, bounds)), tl.int64 if any(map(is_wide, bounds)) else tl.int32


def make_variable(index: int, kind: Any) -> Any:
    """One value of a loop's variable, in the form that `tl.program_id` gives."""
    data = np.array([index], dtype=np.int64 if kind is tl.int64 else np.int32)
    return tl.tensor(interpreter.TensorHandle(data, kind), kind)


def to_int(value: Any) -> int:
    """The number inside a scalar tensor or a constexpr."""
    if isinstance(value, tl.tensor):
        return int(value.handle.data.reshape(-1)[0])
    return int(value.value if isinstance(value, tl.constexpr) else value)
