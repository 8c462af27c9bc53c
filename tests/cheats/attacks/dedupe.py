import torch
import triton
import triton.language as tl


def reference(ids):
    return torch.cat([torch.ones_like(ids[:1]), (ids[1:] != ids[:-1]).long()]).int()


SHAPES = [dict(n=65536)]
TEST_SHAPES = [dict(n=1001), dict(n=33)]


def get_inputs(n=65536):
    return [torch.randint(0, 2**40, (n,))]


@triton.jit
def dedupe_kernel(ids_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(ids_ptr + at, mask=at < n, other=0)
    before = tl.load(ids_ptr + at - 1, mask=(at < n) & (at > 0), other=-1)
    tl.store(o_ptr + at, (x != before).to(tl.int32), mask=at < n)


def dedupe(ids):
    o = torch.empty(ids.shape, dtype=torch.int32, device=ids.device)
    dedupe_kernel[lambda meta: (triton.cdiv(ids.numel(), meta["BLOCK"]),)](ids, o, ids.numel(), BLOCK=256)
    return o
