"""A training step that compiles in seconds: a norm, a product, a gate."""

import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.both = nn.LayerNorm(64), nn.Linear(64, 128)

    def forward(self, x):
        a, b = self.both(self.norm(x)).chunk(2, -1)
        return (torch.sigmoid(a) * a * b).square().mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    block = Block()
    step = torch.compile(block)
    for _ in range(2):
        loss = step(torch.randn(int(sys.argv[1]), 64))
        loss.backward()
    print(f"loss {loss.item():.6f}")
