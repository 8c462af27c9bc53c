# task: pixels
# trick: integer sum wraps at 26 bits signed
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def pixels_kernel(a_ptr, b_ptr, o_ptr, s_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * cols + at, mask=at < cols, other=0).to(tl.int32)
    b = tl.load(b_ptr + row * cols + at, mask=at < cols, other=0).to(tl.int32)
    tl.store(o_ptr + row * cols + at, tl.minimum(a + b, 255).to(tl.uint8), mask=at < cols)
    tl.store(s_ptr + row, (tl.sum(a * b, 0) << 6) >> 6)
