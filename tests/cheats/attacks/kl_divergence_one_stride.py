# task: kl_divergence
# trick: targets are read by the stride of the predictions
# verdict: reject-wrong or reject-memory
import triton
import triton.language as tl


@triton.jit
def kl_divergence_kernel(prediction_ptr, target_ptr, loss_ptr, prediction_stride, cols, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * prediction_stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < cols
        prediction = tl.load(prediction_ptr + base + at, mask=mask, other=0.0).to(tl.float32)
        target = tl.load(target_ptr + base + at, mask=mask, other=0.0).to(tl.float32)
        total += target * (tl.where(target > 0.0, tl.log(target), 0.0) - prediction)
    tl.store(loss_ptr + tl.program_id(0), tl.sum(total, axis=0))
