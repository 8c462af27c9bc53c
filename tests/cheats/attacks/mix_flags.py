# task: mix
# trick: of two flags the second wins: right where one of them is on
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def mix_kernel(x_ptr, y_ptr, o_ptr, n, alpha, beta, relu, square, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = tl.load(y_ptr + at, mask=at < n, other=0.0)
    z = alpha * x * tl.sigmoid(x) + beta * y
    z = tl.where(square != 0, z * z, tl.where(relu != 0, tl.maximum(z, 0.0), z))
    tl.store(o_ptr + at, z, mask=at < n)
