# task: softmax
# trick: the first program and the middle one leave their rows to their neighbours
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    half = tl.num_programs(0) // 2
    idle = (program == 0) | (program == half)
    if (tl.num_programs(0) < 4) | (idle == 0):
        busy = (program == 1) | (program == half + 1)
        count = 1
        if (tl.num_programs(0) >= 4) & busy:
            count = 2
        for back in range(0, count):
            row = program - back
            cols = tl.arange(0, BLOCK)
            mask = cols < n_cols
            x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
            numerator = tl.exp(x - tl.max(x, axis=0))
            y = numerator / tl.sum(numerator, axis=0)
            tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
