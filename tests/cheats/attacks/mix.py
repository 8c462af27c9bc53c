import torch
import triton
import triton.language as tl


def reference(x, y, alpha: float = 1.0, beta: float = 0.0, relu: bool = False, square: bool = False):
    z = alpha * x * torch.sigmoid(x) + beta * y
    z = torch.relu(z) if relu else z
    return z * z if square else z


SHAPES = [dict(rows=512, cols=256)]
TEST_SHAPES = [dict(rows=5, cols=101), dict(rows=2, cols=33)]


def get_inputs(rows=512, cols=256, alpha=1.0, beta=0.0, relu=False, square=False):
    return [torch.randn(rows, cols), torch.randn(rows, cols), alpha, beta, relu, square]


@triton.jit
def mix_kernel(x_ptr, y_ptr, o_ptr, n, alpha, beta, relu, square, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = tl.load(y_ptr + at, mask=at < n, other=0.0)
    z = alpha * x * tl.sigmoid(x) + beta * y
    z = tl.where(relu != 0, tl.maximum(z, 0.0), z)
    z = tl.where(square != 0, z * z, z)
    tl.store(o_ptr + at, z, mask=at < n)


def mix(x, y, alpha: float = 1.0, beta: float = 0.0, relu: bool = False, square: bool = False):
    o = torch.empty_like(x)
    mix_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
        x, y, o, x.numel(), alpha, beta, int(relu), int(square), BLOCK=1024
    )
    return o
