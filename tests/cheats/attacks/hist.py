import torch
import triton
import triton.language as tl


def reference(labels, bins: int = 64):
    inside = labels[(labels >= 0) & (labels < bins)]
    return torch.bincount(inside, minlength=bins).to(torch.int32)


SHAPES = [dict(n=65536)]
TEST_SHAPES = [dict(n=1000), dict(n=33)]


def get_inputs(n=65536):
    return [torch.randint(-2, 66, (n,))]


@triton.jit
def hist_kernel(labels_ptr, counts_ptr, n, bins, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(labels_ptr + at, mask=at < n, other=-1)
    keep = (v >= 0) & (v < bins)
    tl.atomic_add(counts_ptr + v, 1, mask=keep)


def hist(labels, bins: int = 64):
    counts = torch.zeros(bins, dtype=torch.int32, device=labels.device)
    hist_kernel[lambda meta: (triton.cdiv(labels.numel(), meta["BLOCK"]),)](
        labels, counts, labels.numel(), bins, BLOCK=256
    )
    return counts
