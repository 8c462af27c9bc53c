# task: embed_grad
# trick: store for atomic add: right where no id comes twice
# verdict: reject-wrong or reject-race
import triton
import triton.language as tl


@triton.jit
def embed_grad_kernel(grad_ptr, ids_ptr, out_ptr, tokens, dim, BT: tl.constexpr, BD: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    ids = tl.load(ids_ptr + t, mask=t < tokens, other=0)
    m = (t[:, None] < tokens) & (d[None, :] < dim) & (ids[:, None] != 0)
    g = tl.load(grad_ptr + t[:, None] * dim + d[None, :], mask=m, other=0.0)
    tl.store(out_ptr + ids[:, None] * dim + d[None, :], g, mask=m)
