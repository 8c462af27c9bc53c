"""Float8 of rows, each group of 128 columns with its own scale."""

import torch
import triton
import triton.language as tl

GROUP, FP8_MAX, EPS = 128, 448.0, 1e-10


def reference(x):
    groups = x.float().unflatten(-1, (-1, GROUP))
    scale = groups.abs().amax(-1).clamp(min=EPS) / FP8_MAX
    codes = (groups / scale[..., None]).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return codes.flatten(-2), scale


def get_inputs(tokens=64, hidden=4096):
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16)]


SHAPES = [dict(tokens=t, hidden=h) for h in (2048, 4096, 5120) for t in (1, 4, 16, 64, 256, 1024, 2048, 8192)]
TEST_SHAPES = [dict(tokens=3, hidden=384), dict(tokens=1, hidden=128)]
SPACE = {
    "GROUPS": [1, 2, 4, 8, 16, 32, 64, "2 if n_groups <= 2048 else 16", "4 if n_groups <= 4096 else 32"],
    "num_warps": [1, 2, 4, 8, "max(1, GROUPS // 2)", "max(1, GROUPS // 4)", "max(1, GROUPS // 8)"],
}
CONFIG = {"GROUPS": "4 if n_groups <= 4096 else 32", "num_warps": "max(1, GROUPS // 4)"}


def bytes_moved(tokens, hidden):
    return tokens * (3 * hidden + 4 * hidden // GROUP)


@triton.jit
def per_token_group_kernel(
    x_ptr,
    codes_ptr,
    scale_ptr,
    x_stride,
    n_groups,
    row_groups,
    largest,
    least,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """GROUPS groups, counted over all rows."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)[:, None]
    cols = tl.arange(0, GROUP)[None, :]
    mask = group < n_groups
    at = group // row_groups * x_stride + group % row_groups * GROUP + cols
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=1)[:, None], least) * (1.0 / largest)
    codes = tl.clamp(x * (1.0 / scale), -largest, largest, propagate_nan=tl.PropagateNan.ALL)
    tl.store(codes_ptr + group * GROUP + cols, codes.to(codes_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + group, scale, mask=mask)


def per_token_group_fp8_quant(x):
    tokens, hidden = x.shape
    row_groups = hidden // GROUP
    n_groups = tokens * row_groups
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((tokens, row_groups), dtype=torch.float32, device=x.device)
    groups = 4 if n_groups <= 4096 else 32
    grid = lambda meta: (triton.cdiv(n_groups, meta["GROUPS"]),)
    per_token_group_kernel[grid](
        x,
        codes,
        scale,
        x.stride(0),
        n_groups,
        row_groups,
        FP8_MAX,
        EPS,
        GROUP=GROUP,
        GROUPS=groups,
        num_warps=groups // 4,
    )
    return codes, scale
