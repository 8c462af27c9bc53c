# task: layernorm
# trick: none: mean and variance in two passes over tiles
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, x_stride, y_stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tile = tl.arange(0, 128)
    total = tl.zeros([128], dtype=tl.float32)
    for start in range(0, n_cols, 128):
        mask = start + tile < n_cols
        total += tl.load(x_ptr + row * x_stride + start + tile, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n_cols
    squares = tl.zeros([128], dtype=tl.float32)
    for start in range(0, n_cols, 128):
        mask = start + tile < n_cols
        x = tl.load(x_ptr + row * x_stride + start + tile, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(mask, x - mean, 0.0)
        squares += centred * centred
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for start in range(0, n_cols, 128):
        mask = start + tile < n_cols
        x = tl.load(x_ptr + row * x_stride + start + tile, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + start + tile, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + start + tile, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * weight + bias
        tl.store(y_ptr + row * y_stride + start + tile, y.to(y_ptr.dtype.element_ty), mask=mask)
