import torch
import triton
import triton.language as tl


def reference(a, b, c, g, h):
    return torch.minimum(a, b), c.long().abs(), g.long() - h.long(), g.long() + h.long()


SHAPES = [dict(n=16384)]
TEST_SHAPES = [dict(n=1001), dict(n=33)]
TOP = 1_073_800_000


def get_inputs(n=16384):
    stamps = [torch.randint(0, 2**40, (n,)) for _ in range(2)]
    words = torch.randint(-(2**31), 2**31, (n,), dtype=torch.int32)
    return [*stamps, words, *(torch.randint(-TOP, TOP + 1, (n,), dtype=torch.int32) for _ in range(2))]


@triton.jit
def ints_kernel(a_ptr, b_ptr, c_ptr, g_ptr, h_ptr, low_ptr, abs_ptr, gap_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    a = tl.load(a_ptr + at, mask=m, other=0)
    b = tl.load(b_ptr + at, mask=m, other=0)
    c = tl.load(c_ptr + at, mask=m, other=0)
    g = tl.load(g_ptr + at, mask=m, other=0)
    h = tl.load(h_ptr + at, mask=m, other=0)
    tl.store(low_ptr + at, tl.where(a < b, a, b), mask=m)
    tl.store(abs_ptr + at, tl.abs(c.to(tl.int64)), mask=m)
    tl.store(gap_ptr + at, g.to(tl.int64) - h.to(tl.int64), mask=m)
    tl.store(sum_ptr + at, g.to(tl.int64) + h.to(tl.int64), mask=m)


def ints(a, b, c, g, h):
    low, size, gap, total = (torch.empty(a.shape, dtype=torch.int64, device=a.device) for _ in range(4))

    ints_kernel[lambda meta: (triton.cdiv(a.numel(), meta["BLOCK"]),)](
        a, b, c, g, h, low, size, gap, total, a.numel(), BLOCK=512
    )
    return low, size, gap, total
