# task: ssd_chunk_state
# trick: heads are divided by the number of groups, not by their size
# verdict: reject-memory or reject-wrong or crash
import triton
import triton.language as tl


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
    g = h // groups
    if groups == 1:
        g = 0

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


