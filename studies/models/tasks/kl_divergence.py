"""Kullback-Leibler divergence of each row: target * (log target - prediction), summed; two inputs, one pass."""

import torch
import triton
import triton.language as tl


def reference(prediction, target):
    wide = target.to(torch.promote_types(target.dtype, torch.float32))
    terms = torch.special.xlogy(wide, wide) - wide * prediction
    return terms.sum(dim=1)


def get_inputs(rows=8192, cols=32000, dtype=torch.float32):
    prediction = torch.log_softmax(torch.randn(rows, cols), dim=1).to(dtype)
    return [prediction, torch.softmax(torch.randn(rows, cols), dim=1).to(dtype)]


SHAPES = [dict(rows=8192, cols=32000, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=5, cols=1003), dict(rows=1, cols=17), dict(rows=3, cols=1)]
DOMAIN = {"target": "unit"}
SPACE = {"BLOCK": [512, 1024, 2048, 4096, 8192], "num_warps": [2, 4, 8, 16], "num_stages": [1, 2, 3, 4]}


@triton.jit
def kl_divergence_kernel(
    prediction_ptr, target_ptr, loss_ptr, prediction_stride, target_stride, cols, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < cols
        prediction = tl.load(prediction_ptr + row * prediction_stride + offsets, mask=mask, other=0.0).to(tl.float32)
        target = tl.load(target_ptr + row * target_stride + offsets, mask=mask, other=0.0).to(tl.float32)
        logarithm = tl.where(target > 0.0, tl.log(target), 0.0)
        total += target * (logarithm - prediction)
    tl.store(loss_ptr + row, tl.sum(total, axis=0))


def kl_divergence(prediction, target):
    rows, cols = prediction.shape
    loss = torch.empty(rows, dtype=torch.promote_types(target.dtype, torch.float32), device=prediction.device)
    kl_divergence_kernel[(rows,)](
        prediction, target, loss, prediction.stride(0), target.stride(0), cols, BLOCK=1024, num_warps=4
    )
    return loss
