LANGUAGE = "gluon"
GRID = "(min(num_sms * 4, n_rows),)"
ARGS = {"n_rows": "shape(x_ptr, 0)"}
CONFIG = {"num_warps": 4}

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: gl.constexpr, n_rows):
    layout: gl.constexpr = gl.BlockedLayout([8], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    kept = gl.allocate_shared_memory(gl.float32, [BLOCK], shared)
    cols = gl.arange(0, BLOCK, layout)
    for row in range(gl.program_id(0), n_rows, gl.num_programs(0)):
        x = gl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=-float("inf")).to(gl.float32)
        e = gl.exp(x - gl.max(x, 0))
        kept.store(e)
        total = gl.sum(e, 0)
        y = kept.load(layout) / total
        gl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
