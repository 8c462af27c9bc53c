"""Functions of libdevice for Triton's interpreter, whose own stubs return None.

Types are the library's own, from Triton's declarations. What is not known raises an error that names it.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np
import triton.language.extra.cuda.libdevice as declared
import triton.language.extra.libdevice as stubs
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.evaluate.libdevice import DIRECTED, FUNCTIONS, Compute
from kernelsearch.kernel.language import LIBDEVICE
from kernelsearch.worker.launcher.standin import replace_attributes


def install() -> None:
    """Replaces the stubs in this process; to be called once."""
    for name in LIBDEVICE:
        if hasattr(declared, name):
            function = _make_function(name, getattr(declared, name), FUNCTIONS.get(name))
            setattr(declared, name, function)
            setattr(stubs, name, function)


def _make_function(name: str, declaration: Any, compute: Compute | None) -> Any:
    @wraps(declaration)
    def function(*args: Any, **_: Any) -> Any:
        def create(library: Any, path: Any, symbol: Any, handles: list[Any], kind: Any, is_pure: Any = True) -> Any:
            if name in DIRECTED and interpreter._get_np_dtype(kind) != np.float32:
                raise NotImplementedError("directed rounding of float64 is not known here without a GPU")
            return _apply(compute, handles, kind)

        if compute is None:
            raise NotImplementedError(f"libdevice.{name} is not known here without a GPU")
        with replace_attributes(builder, create_extern_elementwise=create):
            return declaration(*args, _semantic=interpreter.interpreter_semantic)

    return function


def _apply(compute: Compute, handles: list[Any], kind: Any) -> Any:
    """The handle of a result, made by the builder's own operations, so that it is counted and followed like theirs."""
    dtype = np.dtype(interpreter._get_np_dtype(kind))

    def exactly(*arrays: Any) -> Any:
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        return np.asarray(compute(*wide)).astype(dtype)

    exactly.is_special = True
    is_wider = dtype.itemsize > min(h.data.dtype.itemsize for h in handles)
    if len(handles) > 3 or is_wider:  # no operation of the builder takes or gives these
        return TensorHandle(exactly(*(h.data for h in handles)), kind.scalar)
    apply = (builder.unary_op, builder.binary_op, builder.ternary_op)[len(handles) - 1]
    return TensorHandle(apply(*handles, exactly).data, kind.scalar)
