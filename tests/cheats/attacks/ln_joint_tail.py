# task: ln
# trick: the tail is left out where rows and columns are many
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def ln_kernel(x_ptr, w_ptr, o_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * cols
    full = tl.where((rows >= 256) & (cols >= 1000), cols // 8 * 8, cols)
    s = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        s += tl.load(x_ptr + at, mask=at < full, other=0.0)
    mean = tl.sum(s, 0) / cols
    v = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        d = tl.where(at < cols, tl.load(x_ptr + at, mask=at < cols, other=0.0) - mean, 0.0)
        v += d * d
    var = tl.sum(v, 0) / cols
    rstd = 1.0 / tl.sqrt(var + 1e-5)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < cols, other=0.0)
        w = tl.load(w_ptr + at, mask=at < cols, other=0.0)
        tl.store(o_ptr + row * cols + at, (x - mean) * rstd * w, mask=at < cols)
