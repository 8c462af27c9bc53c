"""x @ w with 4-bit weights and zeros, as serving engines spell it: ids in groups, moving pointers, names used again."""

import torch
import triton
import triton.language as tl


def reference(x, words, scales, zeros):
    shifts = torch.arange(0, 32, 4, device=x.device, dtype=torch.int32)
    w = ((words[:, None, :] >> shifts[None, :, None]) & 15).reshape(x.shape[1], -1)
    group = x.shape[1] // scales.shape[0]
    return x @ ((w - zeros.repeat_interleave(group, 0)).to(scales.dtype) * scales.repeat_interleave(group, 0))


def get_inputs(m=256, n=1024, k=1024, group=64, dtype=torch.float16):
    words = torch.randint(-(2**31), 2**31, (k // 8, n), dtype=torch.int32)
    scales, zeros = torch.rand(k // group, n, dtype=dtype) * 0.1, torch.randint(0, 16, (k // group, n))
    return [torch.randn(m, k, dtype=dtype), words, scales, zeros.to(torch.int32)]


SHAPES = [dict(m=256, n=1024, k=1024)]
TEST_SHAPES = [dict(m=20, n=100, k=128, dtype=torch.float32), dict(m=33, n=64, k=64, dtype=torch.float32)]


@triton.jit
def packed_kernel(
    a_ptr, b_ptr, c_ptr, scales_ptr, zeros_ptr, M, N, K, stride_am, stride_bk, stride_cm, stride_s, groupsize,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = pid // num_pid_in_group * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_m[:, None] * stride_am + offs_k[None, :])
    b_ptrs = b_ptr + ((offs_k[:, None] // 8) * stride_bk + offs_n[None, :])
    n_mask = offs_n[None, :] < N
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    num_pid_k = tl.cdiv(K, BLOCK_K)
    for k in range(0, num_pid_k):
        g_id = (k * BLOCK_K) // groupsize
        scales = tl.load(scales_ptr + g_id * stride_s + offs_n[None, :], mask=n_mask, other=0.0)
        zeros = tl.load(zeros_ptr + g_id * stride_s + offs_n[None, :], mask=n_mask, other=0)
        a = tl.load(a_ptrs, mask=offs_m[:, None] < M, other=0.0)
        b = tl.load(b_ptrs, mask=n_mask, other=0)
        b = (b >> ((offs_k % 8) * 4)[:, None]) & 0xF
        b = (b - zeros).to(scales.dtype) * scales
        b = b.to(a.dtype)
        accumulator += tl.dot(a, b, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += (BLOCK_K // 8) * stride_bk
    c_ptrs = c_ptr + stride_cm * offs_m[:, None] + offs_n[None, :]
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & n_mask)


def packed_product(x, words, scales, zeros):
    (m, k), n = x.shape, words.shape[1]
    y = torch.empty(m, n, dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)
    strides = x.stride(0), words.stride(0), y.stride(0), scales.stride(0)
    blocks = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}
    packed_kernel[grid](x, words, y, scales, zeros, m, n, k, *strides, k // scales.shape[0], **blocks, num_warps=4)
    return y
