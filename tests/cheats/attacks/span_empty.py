# task: span
# trick: the mean of an empty span is NaN
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def span_kernel(x_ptr, s_ptr, e_ptr, o_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = tl.load(s_ptr + row)
    end = tl.load(e_ptr + row)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
    total = tl.sum(tl.where((at >= start) & (at < end), x, 0.0), 0)
    tl.store(o_ptr + row, total / (end - start).to(tl.float32))
