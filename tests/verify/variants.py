"""Honest ways and cheating ways to compute five operations, in torch on the CPU, as kernels would.

`python tests/verify/variants.py` prints the calibration table: each variant's worst error over what is
allowed (1.0 is the limit), over all regimes and shapes of the operation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernelsearch.verify import regimes
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge
from kernelsearch.verify.widest import flatten

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


@dataclass(frozen=True)
class Operation:
    """An operation, its inputs at two shapes, and ways to compute it; a way maps inputs to one tensor or several."""

    reference: Callable
    shapes: tuple
    honest: dict
    cheats: dict


def tf32(x):
    """Rounded to 10 fraction bits, as a tf32 matrix unit reads it."""
    return ((x.float().contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def serial_sum(terms, dim):
    """One accumulator, one term after the other."""
    total = torch.zeros_like(terms.select(dim, 0))
    for term in terms.unbind(dim):
        total = total + term
    return total


def tree_sum(terms, dim):
    while terms.shape[dim] > 1:
        if terms.shape[dim] % 2:
            terms = torch.cat([terms, torch.zeros_like(terms.narrow(dim, 0, 1))], dim)
        half = terms.shape[dim] // 2
        terms = terms.narrow(dim, 0, half) + terms.narrow(dim, half, half)
    return terms.select(dim, 0)


def blocked_sum(terms, dim, block=128):
    return serial_sum(torch.stack([tree_sum(t, dim) for t in terms.split(block, dim)], dim), dim)


def lane_sum(terms, dim, lanes=64):
    """One accumulator a lane, the lanes summed at the end."""
    pad = -terms.shape[dim] % lanes
    zeros = torch.zeros_like(terms.narrow(dim, 0, 1)).repeat_interleave(pad, dim) if pad else terms.narrow(dim, 0, 0)
    parts = torch.cat([terms, zeros], dim).unflatten(dim if dim >= 0 else terms.dim() + dim, (-1, lanes))
    axis = dim if dim >= 0 else terms.dim() + dim
    return tree_sum(serial_sum(parts, axis), axis)


SUMS = {"serial": serial_sum, "tree": tree_sum, "blocked": blocked_sum, "lanes": lane_sum}


def softmax(total, exp=torch.exp, scale=1.0, last=False):
    def way(x):
        wide = x.float() * scale
        e = exp(wide - wide.amax(-1, keepdim=True))
        return (e / total(e, -1).unsqueeze(-1)).to(x.dtype)

    return way


def softmax_exp2(x):
    wide = x.float() * 1.4426950408889634
    e = torch.exp2(wide - wide.amax(-1, keepdim=True))
    return (e * (1.0 / blocked_sum(e, -1).unsqueeze(-1))).to(x.dtype)


def softmax_online(x, block=64):
    wide = x.float()
    m = torch.full(wide.shape[:-1], -torch.inf)
    total = torch.zeros(wide.shape[:-1])
    for part in wide.split(block, -1):
        new = torch.maximum(m, part.amax(-1))
        total = total * torch.exp(m - new) + torch.exp(part - new.unsqueeze(-1)).sum(-1)
        m = new
    return (torch.exp(wide - m.unsqueeze(-1)) / total.unsqueeze(-1)).to(x.dtype)


def softmax_half_denominator(x):
    wide = x.float()
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    return (e / (2 * e[..., : (x.shape[-1] + 1) // 2].sum(-1, keepdim=True))).to(x.dtype)


def softmax_bf16_denominator(x):
    wide = x.float()
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True).bfloat16().float()).to(x.dtype)


def softmax_small_are_zero(x):
    y = torch.softmax(x.float(), -1)
    return torch.where(y < y.amax(-1, keepdim=True) * 1e-3, 0.0, y).to(x.dtype)


def softmax_no_max(x):
    e = torch.exp(x.float())
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def layernorm(total, drop=0, weight=True, bias=True, eps=1e-5, one_pass=False, unbiased=False):
    def way(x, w, b):
        wide, n = x.float(), x.shape[-1]
        kept = wide[..., : n - drop] if drop and n > drop else wide
        mean = total(kept, -1).unsqueeze(-1) / n
        centred = wide - mean
        variance = total(centred * centred, -1).unsqueeze(-1) / (n - 1 if unbiased and n > 1 else n)
        if one_pass:
            variance = total(wide * wide, -1).unsqueeze(-1) / n - mean * mean
        y = centred * (1.0 / torch.sqrt(variance + eps))
        y = y * w.float() if weight else y
        return (y + b.float() if bias else y).to(x.dtype)

    return way


def layernorm_backward(total, share=True, keep=lambda t: t, last=None):
    """dx as Triton's tutorial computes it, dw and db summed over the rows; share=False forgets one of dx's sums."""

    def way(x, w, dy):
        wide, n = x.float(), x.shape[-1]
        mean = total(wide, -1).unsqueeze(-1) / n
        centred = wide - mean
        scale = 1.0 / torch.sqrt(total(centred * centred, -1).unsqueeze(-1) / n + 1e-5)
        normal, product = centred * scale, w.float() * dy.float()
        first = keep(total((normal * product)[..., :last], -1).unsqueeze(-1) / n)
        second = total(product, -1).unsqueeze(-1) / n if share else 0.0
        dx = (product - (normal * first + second)) * scale
        weight, bias = total(dy.float() * normal, 0), total(dy.float(), 0)
        return dx.to(x.dtype), weight.to(x.dtype), bias.to(x.dtype)

    return way


def layernorm_gradients(x, w, dy):
    with torch.enable_grad():
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        b = torch.zeros_like(w).requires_grad_()
        y = torch.nn.functional.layer_norm(x, w.shape, w, b, 1e-5)
        return torch.autograd.grad(y, (x, w, b), dy)


def centred_sums(total, keep=lambda t: t, last=None):
    def way(x):
        s = total(torch.tanh(x.float() * 3.0)[..., :last], -1).to(x.dtype)
        return (s - keep(total(s.float(), 0) / s.numel())).to(x.dtype)

    return way


def centred_sums_plain(x):
    s = torch.tanh(x * 3.0).sum(-1)
    return s - s.mean()


def polynomials(total=None, keep=lambda t: t, less=0):
    """Polynomials of degree 5 as sums of terms that cancel where coordinates are nearly equal, in a few columns."""

    def way(points):
        x, y, z = (points if total is None else points.float()).unbind(-1)
        x2, z2, r2 = x * x, z * z, x * x + y * y
        columns = (
            (2.3 * x2 * x2 * x, -4.6 * x2 * x * z2, 2.3 * x * z2 * z2),
            (2.9 * y * x2 * x * z, -2.9 * y * z2 * z * x),
            (7.4 * y * x2 * x2, 7.4 * y * z2 * z2, -44.1 * y * x2 * z2),
            (8 * z2 * z2 * z, -40 * z2 * z * r2, 15 * z * r2 * r2),
        )
        kept = [[keep(t) for t in terms[: len(terms) - less]] for terms in columns]
        sums = [sum(terms) if total is None else total(torch.stack(terms, -1), -1) for terms in kept]
        return torch.stack(sums, -1).to(points.dtype)

    return way


def polynomials_factored(points):
    """The same polynomials with few products, as one who saves operations would have them."""
    x, y, z = points.float().unbind(-1)
    x2, z2, r2 = x * x, z * z, x * x + y * y
    third = y * (7.4 * (x2 * x2 + z2 * z2) - 44.1 * x2 * z2)
    last = z * (z2 * (8 * z2 - 40 * r2) + 15 * r2 * r2)
    return torch.stack([x * (x2 * (2.3 * x2 - 4.6 * z2) + 2.3 * z2 * z2), 2.9 * y * (x2 * x * z - z2 * z * x),
                        third, last], -1).to(points.dtype)  # fmt: skip


def matmul_serial(a, b):
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = torch.addcmul(total, a[:, k : k + 1].float(), b[k : k + 1].float())
    return total.to(a.dtype)


def matmul_blocked(a, b, block=32, cast=lambda t: t.float(), keep=lambda t: t, last=None):
    total = torch.zeros(a.shape[0], b.shape[1])
    for start in range(0, a.shape[1], block):
        total = keep(total + cast(a[:, start : start + block]) @ cast(b[start : start + block]))
    return total.to(a.dtype)


def matmul_split(a, b, parts=4, partial=F32):
    chunks = [(p.float() @ q.float()).to(partial) for p, q in zip(a.chunk(parts, 1), b.chunk(parts, 0))]
    return tree_sum(torch.stack(chunks).float(), 0).to(a.dtype)


def matmul_half_accumulator(a, b):
    kind = a.dtype if a.dtype.itemsize == 2 else BF16
    return matmul_blocked(a, b, 1, keep=lambda t: t.to(kind).float())


def matmul_last_k(a, b):
    return matmul_blocked(a[:, :-1], b[:-1]) if a.shape[1] > 1 else matmul_blocked(a, b)


def matmul_last_tile_swapped(a, b):
    y = matmul_blocked(a, b)
    y[:, -2:] = y[:, -2:].flip(1)
    return y


def column_sum(total, drop=0):
    return lambda x: total(x.float()[: x.shape[0] - drop if x.shape[0] > drop else None], 0).to(x.dtype)


def attention(block=32, narrow=False, exp2=False, fused=False, scale=None, drop=0, probability=lambda t: t):
    def way(q, k, v):
        factor = scale or q.shape[-1] ** -0.5
        m = torch.full(q.shape[:-1], -torch.inf)
        total, out = torch.zeros(q.shape[:-1]), torch.zeros(q.shape)
        ks, vs = (t[..., : t.shape[-2] - drop, :] for t in (k, v))
        log2e = 1.4426950408889634 if exp2 else 1.0
        exponential = torch.exp2 if exp2 else torch.exp
        for kb, vb in zip(ks.split(block, -2), vs.split(block, -2)):
            raw = q.float() @ kb.float().transpose(-1, -2)
            s = raw * (factor * log2e)
            new = torch.maximum(m, s.amax(-1))
            apart = raw.double() * (factor * log2e) - new.double().unsqueeze(-1) if fused else s - new.unsqueeze(-1)
            p = exponential(apart.float())
            shrink = exponential(m - new)
            total = total * shrink + p.sum(-1)
            fits = not fused or q.dtype is not F16  # a fused exponent of huge scores gives weights beyond float16
            p = p.to(q.dtype).float() if narrow and fits else probability(p)
            out = out * shrink.unsqueeze(-1) + p @ vb.float()
            m = new
        return (out / total.unsqueeze(-1)).to(q.dtype)

    return way


def attention_plain(q, k, v):
    s = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5
    return (torch.softmax(s, -1) @ v.float()).to(q.dtype)


def attention_narrow_plain(q, k, v):
    s = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5
    return (torch.softmax(s, -1).to(q.dtype).float() @ v.float()).to(q.dtype)


def attention_tf32(q, k, v):
    s = tf32(q) @ tf32(k).transpose(-1, -2) * q.shape[-1] ** -0.5
    return (tf32(torch.softmax(s, -1)) @ tf32(v)).to(q.dtype)


OPERATIONS = {
    "softmax": Operation(
        lambda x: torch.softmax(x, -1),
        (((16, 1000),), ((9, 257),)),
        {n: softmax(s) for n, s in SUMS.items()} | {"exp2": softmax_exp2, "online": softmax_online},
        {
            "half denominator": softmax_half_denominator,
            "bf16 denominator": softmax_bf16_denominator,
            "small are zero": softmax_small_are_zero,
            "no max": softmax_no_max,
            "constant 1/n": lambda x: torch.full_like(x, 1 / x.shape[-1]),
        },
    ),
    "layernorm": Operation(
        lambda x, w, b: torch.nn.functional.layer_norm(x, w.shape, w, b, 1e-5),
        (((16, 1000), (1000,), (1000,)), ((9, 257), (257,), (257,))),
        {n: layernorm(s) for n, s in SUMS.items()},
        {
            "no weight": layernorm(tree_sum, weight=False),
            "no bias": layernorm(tree_sum, bias=False),
            "mean less last": layernorm(tree_sum, drop=1),
            "no eps": layernorm(tree_sum, eps=0.0),
            "one pass": layernorm(tree_sum, one_pass=True),
            "unbiased": layernorm(tree_sum, unbiased=True),
        },
    ),
    "matmul": Operation(
        lambda a, b: a @ b,
        (((48, 512), (512, 40)), ((130, 33), (33, 65))),
        {
            "serial": matmul_serial,
            "blocked": matmul_blocked,
            "split": matmul_split,
            "tree": lambda a, b: matmul_blocked(a, b, 8),
            "vendor": lambda a, b: (a.float() @ b.float()).to(a.dtype),
        },
        {
            "tf32": lambda a, b: matmul_blocked(a, b, cast=tf32),
            "last k": matmul_last_k,
            "half accumulator": matmul_half_accumulator,
            "last tile swapped": matmul_last_tile_swapped,
        },
    ),
    "column sum": Operation(
        lambda x: x.sum(0),
        (((1030, 33),), ((2500, 20),)),
        {n: column_sum(s) for n, s in SUMS.items()},
        {"last row": column_sum(tree_sum, drop=1), "zeros": lambda x: torch.zeros_like(x[0])},
    ),
    "layernorm backward": Operation(
        layernorm_gradients,
        (((39, 500), (500,), (39, 500)), ((5, 333), (333,), (5, 333))),
        {n: layernorm_backward(s) for n, s in SUMS.items()},
        {
            "one sum forgotten": layernorm_backward(tree_sum, share=False),
            "last product": layernorm_backward(tree_sum, last=-1),
            "bf16 sum": layernorm_backward(tree_sum, keep=lambda t: t.bfloat16().float()),
        },
    ),
    "centred sums": Operation(
        centred_sums_plain,
        (((3, 50),), ((64, 96),)),
        {n: centred_sums(s) for n, s in SUMS.items()},
        {
            "not centred": centred_sums(tree_sum, keep=lambda t: 0.0 * t),
            "last element": centred_sums(tree_sum, last=-1),
            "bf16 mean": centred_sums(tree_sum, keep=lambda t: t.bfloat16().float()),
        },
    ),
    "polynomials": Operation(
        polynomials(),
        (((128, 3),), ((7, 3),)),
        {n: polynomials(s) for n, s in SUMS.items()} | {"factored": polynomials_factored},
        {
            "last term": polynomials(tree_sum, less=1),
            "bf16 terms": polynomials(tree_sum, keep=lambda t: t.bfloat16().float()),
            "tf32 terms": polynomials(tree_sum, keep=tf32),
            "zeros": lambda points: torch.zeros_like(points[:, :1].expand(-1, 4)),
        },
    ),
    "row mean": Operation(
        lambda x: x.mean(-1),
        (((16, 2048),), ((33, 1000),)),
        {n: (lambda x, s=s: (s(x.float(), -1) / x.shape[-1]).to(x.dtype)) for n, s in SUMS.items()},
        {
            "last element": lambda x: (x.float()[:, :-1].sum(-1) / x.shape[-1]).to(x.dtype),
            "zeros": lambda x: torch.zeros_like(x[:, 0]),
        },
    ),
    "attention": Operation(
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v),
        (((2, 2, 128, 32),) * 3, ((1, 3, 50, 64),) * 3),
        {
            "blocked": attention(),
            "one block": attention(10**6),
            "exp2": attention(exp2=True),
            "narrow p": attention(narrow=True),
            "fused": attention(exp2=True, fused=True),
            "fused, narrow p": attention(narrow=True, exp2=True, fused=True),
            "plain": attention_plain,
            "plain, narrow p": attention_narrow_plain,
        },
        {
            "wrong scale": attention(scale=0.2),
            "last key": attention(drop=1),
            "tf32": attention_tf32,
            "bf16 p": attention(probability=lambda t: t.bfloat16().float()),
        },
    ),
}

DEVICE = "cpu"
"""Where the inputs are made; `python tests/verify/variants.py --cuda` judges the variants on a GPU."""


def cases(name, dtype, depth="full", seed=0, repeated=False):
    """(expectation, inputs) for each shape and regime of an operation; repeated: with as many scales as a verdict."""
    operation = OPERATIONS[name]
    plans = regimes.plan_regimes(depth, len(operation.shapes))
    blanks = [[torch.randn(s).to(dtype).to(DEVICE) for s in shapes] for shapes in operation.shapes]
    rows = [flatten(operation.reference(*blank))[0].shape[0] for blank in blanks]
    chosen = [(n, regime, seed + 7 * n) for n, plan in enumerate(plans) for regime in plan]
    if repeated:
        counts = [regimes.count_scales(*each) for each in zip(blanks, rows)]
        for regime, wanted in regimes.WANTED.items():
            scales = 1 if regime == "whole" else max(counts)
            where = range(len(blanks)) if regime == "whole" else [counts.index(scales)]
            chosen += [(where[n % len(where)], regime, seed + 1009 + n) for n in range(-(-wanted // scales))]
        alone = ("offset", "sorted", "stepped", "copied")
        chosen += [(n, regime, seed + 4001 + n) for n in range(len(blanks)) for regime in alone]
    exponentials = name in ("softmax", "attention")
    for number, regime, own in chosen:
        inputs = regimes.make_inputs(blanks[number], regime, seed=own, rows=rows[number], exponentials=exponentials)
        how = {"shape": f"{operation.shapes[number]}", "regime": regime, "seed": own}
        yield make_expectation(operation.reference, operation.reference, inputs, **how), inputs


def worst(made, way, inputs_of=None):
    """The largest error ratio over the cases, with its verdict."""
    verdicts = [judge(e, flatten(way(*(x.clone() for x in inputs))), depth="full") for e, inputs in made]
    return max(verdicts, key=lambda v: (not v.accepted, v.error_ratio or 0.0)), verdicts


def main():
    global DEVICE
    torch.manual_seed(0)
    wanted = [a for a in sys.argv[1:] if a != "--cuda"]
    DEVICE = "cuda" if "--cuda" in sys.argv else "cpu"
    torch.set_default_device(DEVICE)
    for name, operation in OPERATIONS.items():
        if wanted and name not in wanted:
            continue
        for dtype in (F32, BF16, F16):
            made = list(cases(name, dtype))
            for kind, ways in (("honest", operation.honest), ("cheat", operation.cheats)):
                for label, way in ways.items():
                    verdict, all_of = worst(made, way)
                    caught = sorted({e.regime for (e, _), v in zip(made, all_of) if not v.accepted})
                    print(
                        f"{name:10} {str(dtype)[6:]:9} {kind:7} {label:18} {verdict.word.value:13} "
                        f"{verdict.error_ratio or 0:10.3g}  {' '.join(caught)[:90]}"
                    )


if __name__ == "__main__":
    main()
