"""Mamba2's chunk states: the sum over a chunk of decay * dt * B (x) X, the second of the scan's five kernels."""

import torch
import triton
import triton.language as tl


def reference(x, b, dt, da_cumsum):
    batch, _, heads, head_dim = x.shape
    chunks, chunk = dt.shape[2], dt.shape[3]
    groups, state = b.shape[2], b.shape[3]
    x = x.reshape(batch, chunks, chunk, heads, head_dim)
    b = b.float().reshape(batch, chunks, chunk, groups, state).repeat_interleave(heads // groups, dim=3)
    decay = torch.exp(da_cumsum[..., -1:] - da_cumsum) * dt  # (batch, heads, chunks, chunk)
    b = (b * decay.permute(0, 2, 3, 1)[..., None]).to(x.dtype)  # the matrix units take 16 bits, as in mamba_ssm
    return torch.einsum("bclhp,bclhn->bchpn", x.float(), b.float())


def get_inputs(batch=8, seq=2048, heads=32, groups=1, head_dim=64, state=64, chunk=64, dtype=torch.bfloat16):
    chunks = seq // chunk
    dt = torch.nn.functional.softplus(torch.randn(batch, heads, chunks, chunk) - 2)
    a = -torch.exp(torch.randn(heads))
    da_cumsum = torch.cumsum(dt * a[None, :, None, None], dim=-1)
    return [
        torch.randn(batch, seq, heads, head_dim, dtype=dtype),
        torch.randn(batch, seq, groups, state, dtype=dtype),
        dt,
        da_cumsum,
    ]


SHAPES = [
    dict(batch=8, seq=2048, heads=32, groups=1, head_dim=64, state=64, chunk=64),
    dict(batch=2, seq=4096, heads=80, groups=1, head_dim=64, state=128, chunk=256),
]
TEST_SHAPES = [
    dict(batch=2, seq=96, heads=4, groups=2, head_dim=32, state=16, chunk=32),
    dict(batch=1, seq=40, heads=3, groups=1, head_dim=48, state=24, chunk=20),
    dict(batch=1, seq=64, heads=1, groups=1, head_dim=64, state=64, chunk=64),
]
DOMAIN = {"dt": "fixed", "da_cumsum": "fixed"}


def flops(batch, seq, heads, groups, head_dim, state, chunk, dtype):
    return 2 * batch * seq * heads * head_dim * state


@triton.jit
def chunk_state_kernel(
    x_ptr,
    b_ptr,
    dt_ptr,
    da_ptr,
    states_ptr,
    seq,
    heads,
    groups,
    head_dim,
    state,
    chunks,
    chunk,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_L: tl.constexpr,
):
    pid_bc = tl.program_id(1)
    h = tl.program_id(2)
    batch = pid_bc // chunks
    c = pid_bc % chunks
    num_n = tl.cdiv(state, BLOCK_N)
    pid_p = tl.program_id(0) // num_n
    pid_n = tl.program_id(0) % num_n
    p = pid_p * BLOCK_P + tl.arange(0, BLOCK_P)
    n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    g = h // (heads // groups)

    t_base = batch * seq + c * chunk
    dt_base = ((batch * heads + h) * chunks + c) * chunk
    da_last = tl.load(da_ptr + dt_base + chunk - 1)
    acc = tl.zeros([BLOCK_P, BLOCK_N], dtype=tl.float32)
    for first in range(0, chunk, BLOCK_L):
        rows = first + tl.arange(0, BLOCK_L)
        known = rows < chunk
        x = tl.load(
            x_ptr + ((t_base + rows)[None, :] * heads + h) * head_dim + p[:, None],
            mask=known[None, :] & (p[:, None] < head_dim),
            other=0.0,
        )
        b = tl.load(
            b_ptr + ((t_base + rows)[:, None] * groups + g) * state + n[None, :],
            mask=known[:, None] & (n[None, :] < state),
            other=0.0,
        ).to(tl.float32)
        da = tl.load(da_ptr + dt_base + rows, mask=known, other=0.0)
        dt = tl.load(dt_ptr + dt_base + rows, mask=known, other=0.0)
        scale = tl.where(known, tl.exp(da_last - da) * dt, 0.0)
        b = (b * scale[:, None]).to(x.dtype)
        acc = tl.dot(x, b, acc)
    out = ((batch * chunks + c) * heads + h) * head_dim * state
    mask = (p[:, None] < head_dim) & (n[None, :] < state)
    tl.store(states_ptr + out + p[:, None] * state + n[None, :], acc, mask=mask)


def chunk_state(x, b, dt, da_cumsum):
    batch, seq, heads, head_dim = x.shape
    groups, state = b.shape[2], b.shape[3]
    chunks, chunk = dt.shape[2], dt.shape[3]
    states = torch.empty(batch, chunks, heads, head_dim, state, dtype=torch.float32, device=x.device)
    grid = lambda meta: (
        triton.cdiv(head_dim, meta["BLOCK_P"]) * triton.cdiv(state, meta["BLOCK_N"]),
        batch * chunks,
        heads,
    )
    chunk_state_kernel[grid](
        x,
        b,
        dt,
        da_cumsum,
        states,
        seq,
        heads,
        groups,
        head_dim,
        state,
        chunks,
        chunk,
        BLOCK_P=64,
        BLOCK_N=64,
        BLOCK_L=32,
        num_warps=4,
        num_stages=2,
    )
    return states
