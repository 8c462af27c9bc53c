import torch
import triton
import triton.language as tl

PADDING = 0


def reference(grad, ids, vocab: int = 50):
    keep = (ids != PADDING).unsqueeze(1)
    return torch.zeros(vocab, grad.shape[1], dtype=torch.float32, device=grad.device).index_add_(0, ids, grad * keep)


SHAPES = [dict(tokens=1024, dim=128)]
TEST_SHAPES = [dict(tokens=37, dim=20), dict(tokens=1, dim=5)]


def get_inputs(tokens=1024, dim=128):
    return [torch.randn(tokens, dim), torch.randint(0, 50, (tokens,))]


@triton.jit
def embed_grad_kernel(grad_ptr, ids_ptr, out_ptr, tokens, dim, BT: tl.constexpr, BD: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    ids = tl.load(ids_ptr + t, mask=t < tokens, other=0)
    m = (t[:, None] < tokens) & (d[None, :] < dim) & (ids[:, None] != 0)
    g = tl.load(grad_ptr + t[:, None] * dim + d[None, :], mask=m, other=0.0)
    tl.atomic_add(out_ptr + ids[:, None] * dim + d[None, :], g, mask=m)


def embed_grad(grad, ids, vocab: int = 50):
    out = torch.zeros(vocab, grad.shape[1], dtype=torch.float32, device=grad.device)
    grid = lambda meta: (triton.cdiv(grad.shape[0], meta["BT"]), triton.cdiv(grad.shape[1], meta["BD"]))
    embed_grad_kernel[grid](grad, ids, out, grad.shape[0], grad.shape[1], BT=16, BD=32)
    return out
