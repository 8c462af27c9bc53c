"""Numbers of a reference that a kernel gets in float32: an optimiser's step as everybody writes it."""

import math

import pytest
import torch

from kernelsearch.verify import regimes
from kernelsearch.verify.error_samples import measure_condition
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge

BETA = 0.999
ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


def update(m, v, g, beta1, beta2):
    return beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g


def adam(p, g, m, v, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = update(m, v, g, beta1, beta2)
    return p - lr * m / (torch.sqrt(v) + eps), m, v


def adamw(p, g, m, v, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    p = p * (1 - lr * 0.01)
    m, v = update(m, v, g, beta1, beta2)
    return p - lr * (m / (1 - beta1**10)) / ((v / (1 - beta2**10)).sqrt() + eps), m, v


def literal_adam(p, g, m, v):
    lr, beta1, beta2, eps = 1e-3, 0.9, 0.999, 1e-8
    return adam(p, g, m, v, lr, beta1, beta2, eps)


def in_place(p, g, m, v):
    for old, new in zip((p, m, v), adam(p, g, m, v)):
        old.copy_(new)


def compute_step(p, g, m, v, decay=0.0, corrected=False, wrong=0.0):
    """An optimiser's step as a kernel computes it, with all of its scalars in float32."""
    dtype = p.dtype
    p, g, m, v = (t.float() for t in (p, g, m, v))
    lr, beta1, beta2, eps, decay = (torch.tensor(s) for s in (*ADAM.values(), decay))
    first, second = (torch.tensor(1 - ADAM[b] ** 10 if corrected else 1.0) for b in ("beta1", "beta2"))
    m = m * beta1 + (1 - beta1) * g
    v = v * beta2 + (1 - beta2 + wrong) * g * g
    p = p - lr * decay * p - lr * (m / first) / (torch.sqrt(v / second) + eps)
    return [t.to(dtype) for t in (p, m, v)]


WAYS = {
    "adam": (adam, {}),
    "literals": (literal_adam, {}),
    "in place": (in_place, {}),
    "adamw": (adamw, {"decay": 0.01, "corrected": True}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WAYS)
def test_no_seed_rejects_an_optimisers_step(name, dtype):
    reference, how = WAYS[name]
    caught = 0
    for seed in range(4):
        blank = [torch.randn(200, dtype=dtype) for _ in range(4)]
        for regime in ("mixed", "scaled", "outlier"):
            inputs = regimes.make_inputs(blank, regime, 71 * seed, names="pgmv", domain={"v": "nonnegative"}, rows=200)
            mutates = (0, 2, 3) if reference is in_place else ()
            expected = make_expectation(reference, reference, inputs, regime=regime, seed=seed, mutates=mutates)
            verdict = judge(expected, compute_step(*inputs, **how), depth="full")
            assert verdict.accepted and verdict.error_ratio < 0.6, (seed, regime, verdict)
            caught += not judge(expected, compute_step(*inputs, **how, wrong=1e-5), depth="full").accepted
    assert caught >= (8 if dtype == torch.float32 else 0)  # bfloat16 hides one percent of one term


def named(x):
    return x * (1 - BETA)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.beta = 0.999

    def forward(self, x):
        return x * (1 - self.beta)


@pytest.mark.parametrize("kind", ["module", "model", "input"])
def test_numbers_are_found_where_they_are_and_put_back(kind):
    model = Model()
    wrapped = lambda *inputs: model(*inputs)  # noqa: E731
    wrapped.model = lambda: model
    reference = {"module": named, "model": wrapped, "input": lambda x, beta: x * (1 - beta)}[kind]
    more = [0.999] if kind == "input" else []
    x = torch.ones(64, dtype=torch.float64)

    def condition(scalars_of):
        def make_inputs():
            return [x.clone(), *more]

        (moved,) = measure_condition(
            lambda inputs: [reference(*inputs)],
            make_inputs,
            [reference(x, *more)],
            eps=2.0**-24,
            seed=3,
            scalars_of=scalars_of,
        )
        return float(moved.max()) / 2.0**-24 / (1 - BETA)

    assert condition(reference) > 500  # 1 - 0.999 errs by a thousand times its own rounding
    assert kind == "input" or condition(None) < 4
    assert math.isclose(BETA, 0.999) and type(BETA) is float and type(model.beta) is float
