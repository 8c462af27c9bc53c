# task: layernorm
# trick: none: Welford one tile after the other, per lane, merged at the end
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, x_stride, y_stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, 64)
    mean = tl.zeros([64], dtype=tl.float32)
    m2 = tl.zeros([64], dtype=tl.float32)
    count = tl.zeros([64], dtype=tl.float32)
    for start in range(0, n_cols, 64):
        here = start + lanes < n_cols
        x = tl.load(x_ptr + row * x_stride + start + lanes, mask=here, other=0.0).to(tl.float32)
        count += tl.where(here, 1.0, 0.0)
        delta = x - mean
        mean += tl.where(here, delta / tl.maximum(count, 1.0), 0.0)
        m2 += tl.where(here, delta * (x - mean), 0.0)
    whole = tl.sum(mean * count, axis=0) / n_cols
    spread = mean - whole
    rstd = tl.rsqrt((tl.sum(m2, axis=0) + tl.sum(count * spread * spread, axis=0)) / n_cols + eps)
    for start in range(0, n_cols, 64):
        here = start + lanes < n_cols
        x = tl.load(x_ptr + row * x_stride + start + lanes, mask=here, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + start + lanes, mask=here, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + start + lanes, mask=here, other=0.0).to(tl.float32)
        y = (x - whole) * rstd * weight + bias
        tl.store(y_ptr + row * y_stride + start + lanes, y.to(y_ptr.dtype.element_ty), mask=here)
