# task: layernorm
# trick: none: statistics and result in two launches, through scratch
# verdict: accept
import triton
import triton.language as tl

LAUNCHES = ["statistics", "normalise"]
GRID = {"statistics": "(shape(x_ptr, 0),)", "normalise": "(shape(x_ptr, 0),)"}
SCRATCH = {"mean_ptr": ("float32", "(shape(x_ptr, 0),)"), "rstd_ptr": ("float32", "(shape(x_ptr, 0),)")}


@triton.jit
def statistics(x_ptr, mean_ptr, rstd_ptr, x_stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / n_cols + eps))


@triton.jit
def normalise(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = (x - tl.load(mean_ptr + row)) * tl.load(rstd_ptr + row) * weight + bias
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
