"""A Llama of a few layers in plain torch (RMSNorm, rotary positions, grouped queries, SwiGLU), trained for some steps.

    kernelsearch collect llama.py --db llama.db
    kernelsearch optimize --db llama.db --hours 0.3
    kernelsearch apply llama.py --db llama.db

The sizes are those of Llama 3 8B; `--layers 2 --width 64 --heads 4 --kv-heads 2 --hidden 160 --vocabulary 256` is one
for a CPU.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

import kernelsearch


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.head, narrow = width // heads, width // heads * kv_heads
        self.before, self.between = RMSNorm(width), RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(width, narrow, bias=False), nn.Linear(width, narrow, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        y = self.before(x)
        q, k, v = (p(y).view(batch, length, -1, self.head).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers=1, width=64, heads=4, kv_heads=2, hidden=160, vocabulary=256, longest=8192):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(vocabulary, width), RMSNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads, hidden) for _ in range(layers))
        self.out = nn.Linear(width, vocabulary, bias=False)
        head = width // heads
        angles = torch.arange(longest)[:, None] / 500000 ** (torch.arange(0, head, 2) / head)
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, labels):
        x, length = self.embedding(tokens), tokens.shape[1]
        cos, sin = self.cos[:length].to(x.dtype), self.sin[:length].to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.out(self.norm(x)).float().flatten(0, 1), labels.flatten())


def main():
    parser = argparse.ArgumentParser()
    sizes = dict(layers=4, width=4096, heads=32, kv_heads=8, hidden=14336, vocabulary=128256, batch=2, length=4096)
    for name, size in {**sizes, "steps": 3}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size)
    parser.add_argument("--kernels", metavar="DB", help="use the kernels of this database")
    options = vars(parser.parse_args())
    kernels = options.pop("kernels")
    steps, batch, length = (options.pop(name) for name in ("steps", "batch", "length"))
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = Llama(**options).to(torch.bfloat16)
        step = torch.compile(model, options=kernelsearch.options(kernels) if kernels else None)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(steps):
            started = time.perf_counter()
            tokens = torch.randint(0, options["vocabulary"], (batch, length))
            loss = step(tokens, tokens.roll(-1, 1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"loss {loss.item():.4f}  {1000 * (time.perf_counter() - started):.1f} ms")


if __name__ == "__main__":
    main()
