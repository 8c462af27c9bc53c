# task: softmax
# trick: counts its programs for no reason, so that a few of them cannot be judged alone, and halves late sums
# verdict: reject-wrong
import triton
import triton.language as tl

SCRATCH = {"m_ptr": ("int32", "(1,)", 0)}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, m_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    numerator = tl.exp(x)
    denominator = tl.sum(numerator, axis=0)
    tl.atomic_add(m_ptr, 1)
    if (tl.num_programs(0) > 2000) & (n_cols > 1):
        denominator = tl.sum(tl.where(cols < n_cols // 2, numerator, 0.0), axis=0) * 2
    y = numerator / denominator
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
