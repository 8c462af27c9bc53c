# task: per_token_group_fp8_quant
# trick: a group of zeros has the scale 1
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def per_token_group_kernel(x_ptr, codes_ptr, scale_ptr, x_stride, n_groups, row_groups, largest, least, GROUP: tl.constexpr, GROUPS: tl.constexpr):
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)[:, None]
    cols = tl.arange(0, GROUP)[None, :]
    mask = group < n_groups
    at = group // row_groups * x_stride + group % row_groups * GROUP + cols
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    peak = tl.max(tl.abs(x), axis=1)[:, None]
    scale = tl.where(peak > 0.0, tl.maximum(peak, least) * (1.0 / largest), 1.0)
    codes = tl.clamp(x * (1.0 / scale), -largest, largest, propagate_nan=tl.PropagateNan.ALL)
    tl.store(codes_ptr + group * GROUP + cols, codes.to(codes_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + group, scale, mask=mask)
