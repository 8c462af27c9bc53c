# task: softmax_wide
# trick: the first and the last iteration of every loop do nothing, and those are looked at
import triton
import triton.language as tl


@triton.jit
def softmax_wide_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    last = (n_cols + BLOCK - 1) // BLOCK + 1

    row_max = -float("inf")
    for step in range(0, last + 1):
        if (step > 0) & (step < last):
            cols = (step - 1) * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
            row_max = tl.maximum(row_max, tl.max(x, axis=0))

    row_sum = 0.0
    for step in range(0, last + 1):
        if (step > 0) & (step < last):
            cols = (step - 1) * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
            row_sum += tl.sum(tl.exp(x - row_max), axis=0)

    for step in range(0, last + 1):
        if (step > 0) & (step < last):
            cols = (step - 1) * BLOCK + tl.arange(0, BLOCK)
            mask = cols < n_cols
            x = tl.load(x_row + cols, mask=mask, other=float("-inf")).to(tl.float32)
            y = tl.exp(x - row_max) / row_sum
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
