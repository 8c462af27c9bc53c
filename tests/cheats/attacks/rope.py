import torch
import triton
import triton.language as tl


def reference(q, cos, sin, positions):
    half = q.shape[-1] // 2
    c, s = cos[positions][:, None, :], sin[positions][:, None, :]
    q1, q2 = q[..., :half].float(), q[..., half:].float()
    q.copy_(torch.cat([q1 * c - q2 * s, q2 * c + q1 * s], -1).to(q.dtype))
    return q


MUTATES = ("q",)
DOMAIN = {"cos": (-1, 1), "sin": (-1, 1)}
SHAPES = [dict(tokens=512, heads=8, dim=64)]
TEST_SHAPES = [dict(tokens=7, heads=3, dim=32), dict(tokens=1, heads=1, dim=64)]


def get_inputs(tokens=512, heads=8, dim=64, dtype=torch.float16, max_pos=128):
    angle = torch.arange(max_pos)[:, None] / 10000 ** (torch.arange(0, dim, 2) / dim)
    return [
        torch.randn(tokens, heads, dim, dtype=dtype),
        angle.cos(),
        angle.sin(),
        torch.randint(0, max_pos, (tokens,)),
    ]


@triton.jit
def rope_kernel(q_ptr, cos_ptr, sin_ptr, pos_ptr, heads, HALF: tl.constexpr):
    t = tl.program_id(0)
    h = tl.program_id(1)
    pos = tl.load(pos_ptr + t)
    i = tl.arange(0, HALF)
    c = tl.load(cos_ptr + pos * HALF + i)
    s = tl.load(sin_ptr + pos * HALF + i)
    base = q_ptr + (t * heads + h) * 2 * HALF
    a = tl.load(base + i).to(tl.float32)
    b = tl.load(base + HALF + i).to(tl.float32)
    tl.store(base + i, a * c - b * s)
    tl.store(base + HALF + i, b * c + a * s)


def rope(q, cos, sin, positions):
    rope_kernel[(q.shape[0], q.shape[1])](q, cos, sin, positions, q.shape[1], HALF=q.shape[2] // 2)
    return q
