# task: softmax
# trick: none: four programs a row sum up its parts, and scale them in a second launch
# verdict: accept
import triton
import triton.language as tl

GRID = {"part": "(grid(0), SPLIT)", "finish": "(grid(0), SPLIT)"}
SCRATCH = {"m_ptr": ("float32", "(grid(0), SPLIT)"), "s_ptr": ("float32", "(grid(0), SPLIT)")}
LAUNCHES = ["part", "finish"]
CONFIG = {"SPLIT": 4, "CHUNK": 64}


@triton.jit
def part(x_ptr, m_ptr, s_ptr, x_stride, n_cols, SPLIT: tl.constexpr, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    p = tl.program_id(1)
    m = -float("inf")
    s = 0.0
    for start in range(p * CHUNK, n_cols, CHUNK * SPLIT):
        cols = start + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - new) + tl.sum(tl.exp(x - new), axis=0)
        m = new
    tl.store(m_ptr + row * SPLIT + p, m)
    tl.store(s_ptr + row * SPLIT + p, s)


@triton.jit
def finish(x_ptr, y_ptr, m_ptr, s_ptr, x_stride, y_stride, n_cols, SPLIT: tl.constexpr, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, SPLIT)
    ms = tl.load(m_ptr + row * SPLIT + i)
    m = tl.max(ms, axis=0)
    s = tl.sum(tl.where(ms == -float("inf"), 0.0, tl.load(s_ptr + row * SPLIT + i) * tl.exp(ms - m)), axis=0)
    for start in range(tl.program_id(1) * CHUNK, n_cols, CHUNK * SPLIT):
        cols = start + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * y_stride + cols, (tl.exp(x - m) / s).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
