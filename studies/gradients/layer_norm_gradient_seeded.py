"""The gradient of layer norm; its first kernels are written by TorchInductor and made into plain Triton."""

import torch
import triton
import triton.language as tl

GRADIENT_OF = "layer_norm.py"


@triton.jit
def to_copy_add_div_mul_kernel(
    grad_out_ptr,
    weight_ptr,
    x_ptr,
    out0_ptr,
    buf6_ptr,
    buf9_ptr,
    cols,
    xnumel,
    r0_numel,
    XBLOCK: tl.constexpr,
    R0_BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    STAGES: tl.constexpr,
):
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    tmp2 = tl.load(weight_ptr + r0_index, r0_mask, other=0.0).to(tl.float32)
    tmp3 = tmp2.to(tl.float32)
    tmp18 = tl.cast(cols, tl.float32)
    tmp27 = tmp18.to(tl.float32)
    buf6_sums = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    buf9_sums = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    for program in tl.range(tl.program_id(0), tl.cdiv(xnumel, XBLOCK), PARTS, num_stages=STAGES):
        xoffset = program * XBLOCK
        xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
        xmask = xindex < xnumel
        tmp0 = tl.load(
            grad_out_ptr + (r0_index + cols * xindex), r0_mask & xmask, eviction_policy="evict_first", other=0.0
        ).to(tl.float32)
        tmp9 = tl.load(
            x_ptr + (r0_index + cols * xindex), r0_mask & xmask, eviction_policy="evict_first", other=0.0
        ).to(tl.float32)
        tmp1 = tmp0.to(tl.float32)
        tmp4 = tmp1 * tmp3
        tmp5 = tl.broadcast_to(tmp4, [XBLOCK, R0_BLOCK])
        tmp7 = tl.where(r0_mask & xmask, tmp5, 0)
        tmp8 = tl.sum(tmp7, 1)[:, None].to(tl.float32)
        tmp10 = tmp9.to(tl.float32)
        tmp11 = tl.broadcast_to(tmp10, [XBLOCK, R0_BLOCK])
        tmp14 = tl.broadcast_to(tmp11, [XBLOCK, R0_BLOCK])
        tmp16 = tl.where(r0_mask & xmask, tmp14, 0)
        tmp17 = tl.sum(tmp16, 1)[:, None].to(tl.float32)
        tmp19 = tmp17 / tmp18
        tmp20 = tmp11 - tmp19
        tmp21 = tmp20 * tmp20
        tmp22 = tl.broadcast_to(tmp21, [XBLOCK, R0_BLOCK])
        tmp24 = tl.where(r0_mask & xmask, tmp22, 0)
        tmp25 = tl.sum(tmp24, 1)[:, None].to(tl.float32)
        tmp26 = tmp10 - tmp19
        tmp28 = tmp25 / tmp27
        tmp30 = tmp28 + 1e-05
        tmp31 = tl.rsqrt(tmp30)
        tmp32 = tmp26 * tmp31
        tmp33 = tmp4 * tmp32
        tmp34 = tl.broadcast_to(tmp33, [XBLOCK, R0_BLOCK])
        tmp36 = tl.where(r0_mask & xmask, tmp34, 0)
        tmp37 = tl.sum(tmp36, 1)[:, None].to(tl.float32)
        tmp38 = tmp31 / tmp27
        tmp39 = tmp4 * tmp27
        tmp40 = tmp39 - tmp8
        tmp41 = tmp32 * tmp37
        tmp42 = tmp40 - tmp41
        tmp43 = tmp38 * tmp42
        tmp44 = tmp43.to(tl.float32)
        tmp45 = tmp1 * tmp32
        tl.store(out0_ptr + (r0_index + cols * xindex), tmp44, r0_mask & xmask)
        buf6_sums += tl.where(r0_mask & xmask, tmp45, 0.0)
        buf9_sums += tl.where(r0_mask & xmask, tmp1, 0.0)
    columns = tl.arange(0, R0_BLOCK)
    tl.store(buf6_ptr + tl.program_id(0) * r0_numel + columns, tl.sum(buf6_sums, axis=0), mask=columns < r0_numel)
    tl.store(buf9_ptr + tl.program_id(0) * r0_numel + columns, tl.sum(buf9_sums, axis=0), mask=columns < r0_numel)


@triton.autotune(
    configs=[
        triton.Config({"XBLOCK": 32}, num_warps=4),
        triton.Config({"XBLOCK": 16}, num_warps=4),
        triton.Config({"XBLOCK": 64}, num_warps=4),
    ],
    key=["xnumel"],
)
@triton.jit
def sum_parts_kernel(parts_ptr, out_ptr, xnumel, PARTS: tl.constexpr, XBLOCK: tl.constexpr):
    columns = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    parts = tl.load(parts_ptr + tl.arange(0, PARTS)[:, None] * xnumel + columns, mask=columns < xnumel, other=0.0)
    tl.store(out_ptr + columns, tl.sum(parts, axis=0)[None, :], mask=columns < xnumel)


def launch_seed(x, weight, bias, grad_out):
    rows = x.shape[0]
    cols = x.shape[1]
    out0 = torch.empty((rows, cols), dtype=grad_out.dtype, device=grad_out.device)
    buf6 = torch.empty((512, cols), dtype=torch.float32, device=grad_out.device)
    buf9 = torch.empty((512, cols), dtype=torch.float32, device=grad_out.device)
    to_copy_add_div_mul_kernel[lambda meta: (meta["PARTS"],)](
        grad_out,
        weight,
        x,
        out0,
        buf6,
        buf9,
        cols,
        rows,
        cols,
        R0_BLOCK=triton.next_power_of_2(cols),
        PARTS=256,
        STAGES=1,
        XBLOCK=1,
        num_warps=min(32, max(4, triton.next_power_of_2(cols) // 512)),
        num_stages=1,
    )
    out1 = torch.empty((cols,), dtype=grad_out.dtype, device=grad_out.device)
    sum_parts_kernel[lambda meta: (triton.cdiv(cols, meta["XBLOCK"]),)](buf6, out1, cols, PARTS=256)
    out2 = torch.empty((cols,), dtype=grad_out.dtype, device=grad_out.device)
    sum_parts_kernel[lambda meta: (triton.cdiv(cols, meta["XBLOCK"]),)](buf9, out2, cols, PARTS=256)
    return out0, out1, out2


LAUNCHER = "launch_seed"


SPACE = {
    "to_copy_add_div_mul_kernel.XBLOCK": [1, 2, 4],
    "to_copy_add_div_mul_kernel.num_warps": [
        1,
        2,
        4,
        8,
        16,
        "min(32, max(1, next_power_of_2(r0_numel) // 256))",
        "min(32, max(1, next_power_of_2(r0_numel) // 512))",
        "min(32, max(1, next_power_of_2(r0_numel) // 1024))",
    ],
    "sum_parts_kernel.XBLOCK": [16, 32, 64, 128],
    "sum_parts_kernel.num_warps": [1, 2, 4, 8, 16],
    "PARTS": [32, 64, 128, 256, 512],
    "STAGES": [1, 2, 3, 4],
}
