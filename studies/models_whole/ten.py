"""Ten models with random weights: `kernelsearch collect ten.py MODEL [--size 4] [--steps 2] [--forward]`.

Those of `transformers` are as they come; the others are what a team might write itself. size scales widths, depths and
batches from 1, which a CPU takes in seconds.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

import kernelsearch


def make_language_model(name, size, **more):
    """A causal language model of `transformers`, with its inputs."""
    import transformers

    config = {"llama": "LlamaConfig", "mixtral": "MixtralConfig", "gpt2": "GPT2Config", "mamba2": "Mamba2Config"}[name]
    config = getattr(transformers, config)(vocab_size=1024 * size, **more)
    model = transformers.AutoModelForCausalLM.from_config(config)
    tokens = torch.randint(0, 1024 * size, (2 * size, 128 * size))
    return model, lambda: model(input_ids=tokens, labels=tokens, use_cache=False).loss


def make_llama(size):
    sizes = dict(
        hidden_size=128 * size, intermediate_size=352 * size, num_hidden_layers=2, num_attention_heads=4 * size
    )
    return make_language_model("llama", size, num_key_value_heads=2 * size, **sizes)


def make_mixtral(size):
    sizes = dict(
        hidden_size=128 * size, intermediate_size=256 * size, num_hidden_layers=2, num_attention_heads=4 * size
    )
    return make_language_model("mixtral", size, num_key_value_heads=2 * size, num_local_experts=4, **sizes)


def make_gpt2(size):
    return make_language_model("gpt2", size, n_embd=128 * size, n_layer=2, n_head=4 * size)


def make_mamba2(size):
    sizes = dict(hidden_size=64 * size, num_heads=8 * size, head_dim=16, state_size=16, n_groups=1, chunk_size=32)
    return make_language_model("mamba2", size, num_hidden_layers=2, **sizes)


def make_vit(size):
    import transformers

    sizes = dict(hidden_size=96 * size, num_hidden_layers=2, num_attention_heads=4, intermediate_size=192 * size)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(image_size=64, patch_size=8, **sizes))
    images, labels = torch.randn(4 * size, 3, 64, 64), torch.randint(0, 2, (4 * size,))
    return model, lambda: model(pixel_values=images, labels=labels).loss


def make_convnext(size):
    import transformers

    widths = [24 * size, 48 * size, 96 * size, 192 * size]
    model = transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(hidden_sizes=widths, depths=[1, 1, 2, 1], image_size=64)
    )
    images, labels = torch.randn(4 * size, 3, 64, 64), torch.randint(0, 2, (4 * size,))
    return model, lambda: model(pixel_values=images, labels=labels).loss


class UNetBlock(nn.Module):
    """A residual block of a diffusion model: two convolutions, a time embedding, attention over pixels."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(3))
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.time, self.qkv, self.out = nn.Linear(width, width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, time):
        y = self.first(F.silu(self.norms[0](x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        x = x + self.second(F.silu(self.norms[1](y)))
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norms[2](x).flatten(2).transpose(1, 2)).chunk(3, -1)
        q, k, v = (t.reshape(b, h * w, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c))
        return x + y.transpose(1, 2).reshape(b, c, h, w)


def make_unet(size):
    model = UNetBlock(64 * size)
    x, time = torch.randn(2 * size, 64 * size, 16, 16), torch.randn(2 * size, 64 * size)
    return model, lambda: F.mse_loss(model(x, time), x)


class MinGPT(nn.Module):
    """A small GPT with its attention written out, as in Karpathy's minGPT."""

    def __init__(self, width, vocabulary, longest, heads=4):
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", torch.ones(longest, longest).tril() > 0)

    def forward(self, tokens):
        b, n = tokens.shape
        x = self.tokens(tokens) + self.places(torch.arange(n, device=tokens.device))
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (t.reshape(b, n, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).masked_fill(~self.mask[:n, :n], float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))
        y = self.up(self.norms[1](x))
        x = x + self.down(0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y**3))))
        return self.head(self.norms[2](x))


def make_mingpt(size):
    model, tokens = MinGPT(64 * size, 512 * size, 128 * size), torch.randint(0, 512 * size, (2 * size, 128 * size))
    return model, lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


class Recommender(nn.Module):
    """Embeddings of several features, their pairwise products, two small networks (DLRM)."""

    def __init__(self, width, features=6, rows=1000):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(features))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (features + 1) * features // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.tril_indices(features + 1, features + 1, -1))

    def forward(self, dense, picked):
        x = self.bottom(dense)
        every = torch.stack([x, *(table(picked[:, i]) for i, table in enumerate(self.tables))], 1)
        products = (every @ every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat((x, products), 1)).squeeze(1)


def make_recommender(size):
    model = Recommender(16 * size)
    dense, picked = torch.rand(64 * size, 13).log1p(), torch.randint(0, 1000, (64 * size, 6, 3))
    labels = torch.randint(0, 2, (64 * size,)).float()
    return model, lambda: F.binary_cross_entropy_with_logits(model(dense, picked), labels)


class Conformer(nn.Module):
    """A block of a speech model on log-mel frames: gated convolutions over time beside a feed-forward network."""

    def __init__(self, width, mels=80):
        super().__init__()
        self.stem = nn.Conv1d(mels, width, 3, stride=2, padding=1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gate, self.mix = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 15, padding=7, groups=width)
        self.batch, self.point, self.out = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1), nn.Linear(width, 64)

    def forward(self, frames):
        x = F.gelu(self.stem(frames)).transpose(1, 2)
        x = x + 0.5 * self.down(F.silu(self.up(self.norms[0](x))))
        y = F.glu(self.gate(self.norms[1](x).transpose(1, 2)), 1)
        x = x + self.point(F.silu(self.batch(self.mix(y)))).transpose(1, 2)
        return self.out(self.norms[2](x)).log_softmax(-1)


def make_audio(size):
    model, frames = Conformer(64 * size), torch.randn(2 * size, 80, 200)
    labels = torch.randint(0, 64, (2 * size, 100))
    return model, lambda: F.nll_loss(model(frames).flatten(0, 1), labels.flatten())


MODELS = {name.removeprefix("make_"): make for name, make in list(globals().items()) if name.startswith("make_")}
del MODELS["language_model"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--forward", action="store_true", help="inference alone")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="by autocast")
    parser.add_argument("--kernels", metavar="DB", help="use the kernels of this database")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    with torch.device(device):
        model, loss_of = MODELS[options.model](options.size)
        model.to(device).train(not options.forward)
        model.compile(options=kernelsearch.options(options.kernels) if options.kernels else None)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(options.steps):
            started = time.perf_counter()
            with torch.autocast(device, torch.bfloat16, enabled=options.dtype == "bfloat16"):
                if options.forward:
                    with torch.no_grad():
                        loss = loss_of()
                else:
                    loss = loss_of()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
            print(f"loss {loss.item():.5f}  {1000 * (time.perf_counter() - started):.1f} ms")


if __name__ == "__main__":
    main()
