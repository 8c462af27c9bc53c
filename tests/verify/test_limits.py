"""Limits where errors cancel, where few elements are judged, below the least normal number, and on any machine."""

import threading
from dataclasses import fields
from functools import partial

import pytest
import torch
import variants

from kernelsearch.verify import pieces, regimes
from kernelsearch.verify.error_samples import RoundingMode, measure_condition
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge
from turns import take_turn

SEEDS = 12
"""Before limits knew of what cancels, two seeds in five rejected the first of these, and one in sixty the second."""
CANCELLING = [
    ("layernorm backward", torch.float32),
    ("centred sums", torch.float32),
    ("centred sums", torch.float16),
    ("polynomials", torch.float32),
    ("polynomials", torch.bfloat16),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, dtype", take_turn(CANCELLING, 3))
def test_no_seed_rejects_what_cancels(name, dtype):
    for seed in range(SEEDS):
        made = list(variants.cases(name, dtype, seed=1000 + 31 * seed))
        for label in ("tree", "blocked", "lanes"):
            verdict, _ = variants.worst(made, variants.OPERATIONS[name].honest[label])
            assert verdict.accepted and verdict.error_ratio < 0.75, (seed, label, verdict)


def scaled_product(x, w, scale):
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * scale) @ w.T


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_no_seed_rejects_a_rounding_that_a_whole_tile_shares(dtype):
    """Inputs of one value make all columns of a product alike: its row is one sample of each rounding, not 100."""
    caught = 0
    for seed in range(SEEDS * 2):
        blank = [torch.ones(shape, dtype=dtype) for shape in ((5, 64), (100, 64))]
        x, w = regimes.make_inputs(blank, "offset", seed=seed, rows=5)
        scale = (torch.randn(64, generator=torch.Generator().manual_seed(seed)) * 0.2).to(dtype)
        made = make_expectation(scaled_product, scaled_product, [x, w, scale], regime="offset", seed=seed)
        norm = torch.rsqrt(x.float().square().mean(-1, keepdim=True))
        narrow = (((x * scale).float() @ w.float().T) * norm).to(dtype)  # the product of two inputs has 16 bits
        for label, got in (("eager", scaled_product(x, w, scale)), ("narrow", narrow)):
            verdict = judge(made, [got], depth="full")
            assert verdict.accepted and verdict.error_ratio < 0.75, (seed, label, verdict)
        short = (((x * scale)[:, :-1].float() @ w[:, :-1].float().T) * norm).to(dtype)
        caught += not judge(made, [short], depth="full").accepted
    assert caught > SEEDS


@pytest.mark.parametrize("causal", [False, True])
def test_no_seed_rejects_weights_of_16_bits_before_one_large_value(causal):
    """Most of an element's error is then the rounding of one weight, which torch makes or not, as its backend does."""
    attend = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=causal)
    caught, seen = 0, torch.ones(33, 33, dtype=torch.bool).tril()
    for seed in range(SEEDS):
        q, k, v = torch.randn(3, 16, 33, 16, generator=torch.Generator().manual_seed(seed)).half()
        v = regimes.make_inputs([q, k, v], "outlier", seed=seed, rows=16)[2]
        made = make_expectation(attend, attend, [q, k, v], regime="outlier", seed=seed)
        scores = q.float() @ k.float().mT / 4
        scores = scores.masked_fill(~seen, -torch.inf) if causal else scores
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))

        def attention(kind, weights=weights, v=v):
            return ((weights.to(kind).float() @ v.float()) / weights.sum(-1, keepdim=True)).half()

        verdict = judge(made, [attention(torch.float16)], depth="full")
        assert verdict.accepted and verdict.error_ratio < 0.8, (seed, verdict)
        caught += not judge(made, [attention(torch.bfloat16)], depth="full").accepted
    assert caught > SEEDS // 2


def wide_softmax(x):
    return torch.softmax(x, -1)


def tensors_of(expected):
    parts = [part for output in expected.outputs for part in (output, output.limits)]
    return [value for part in parts for f in fields(part) if isinstance(value := getattr(part, f.name), torch.Tensor)]


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_limits_are_the_same_with_any_number_of_threads_and_at_load(busy):
    """A sum of a million numbers is cut among the threads that torch has: each number of them rounds in its own way."""
    (x,) = regimes.make_inputs([torch.randn(10**6 + 7)], "randn", 5)

    def sums(x):
        return torch.stack([x[k:].sum() for k in range(8)])

    def limits(threads):
        torch.set_num_threads(threads)
        return tensors_of(make_expectation(sums, sums, [x], seed=5, draws=2))

    before, done = torch.get_num_threads(), threading.Event()
    burners = [threading.Thread(target=lambda: [sum(range(2000)) for _ in iter(done.is_set, True)]) for _ in range(3)]
    try:
        alone = limits(1)
        for burner in burners if busy else ():
            burner.start()
        assert all(torch.equal(a, b) for a, b in zip(alone, limits(2), strict=True))
        assert torch.get_num_threads() == 2
    finally:
        done.set()
        torch.set_num_threads(before)
        for burner in burners if busy else ():
            burner.join()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("regime", ["large", "huge", "outlier", "mixed"])
def test_what_is_flushed_to_zero_is_no_error(dtype, regime):
    least = torch.finfo(torch.float32).tiny
    (x,) = regimes.make_inputs([torch.randn(9, 5003).to(dtype)], regime, 3, rows=9)
    expected = make_expectation(wide_softmax, wide_softmax, [x], regime=regime, seed=3)
    right = wide_softmax(x)
    flushed = torch.where(right.abs() < least, 0.0, right)
    kept, other = judge(expected, [right]), judge(expected, [flushed])
    assert kept.accepted and other.accepted and other.error_ratio <= max(kept.error_ratio, 0.9)
    (limits,) = (o.limits for o in expected.outputs)
    assert bool((limits.element >= least).all()) and bool((limits.rms >= least).all())


def test_a_zero_is_an_error_where_the_answer_is_a_normal_number():
    x = torch.full((4, 256), -82.0)
    x[:, 0] = 0.0
    expected, right = make_expectation(wide_softmax, wide_softmax, [x]), wide_softmax(x)
    assert judge(expected, [right]).accepted
    verdict = judge(expected, [torch.where(right < 1e-30, 0.0, right)])
    assert not verdict.accepted and 0 < verdict.detail["expected"] < 1e-34


def test_a_tile_that_one_element_carries_may_err_as_much_as_the_element():
    """All others are 0: one element errs now and then by more than the rms of many, which once had the same limit."""
    x = torch.full((4, 256), -200.0)
    x[:, 40], x[:, 41] = 30.0, 29.0
    for regime in ("randn", "negative"):
        (limits,) = (o.limits for o in make_expectation(wide_softmax, wide_softmax, [x], regime=regime, seed=3).outputs)
        carried = limits.rms * limits.counts.sqrt()
        assert bool((carried[::2] >= limits.element[:, 40]).all())


def mish_in_steps(x):
    return x * torch.tanh(torch.log1p(torch.exp(x)))


def mish_in_place(x):
    return torch.nn.functional.mish(x.clone(), inplace=True)


def gate(x):
    return torch.nn.functional.glu(torch.cat((x, x), -1), -1)


@pytest.mark.parametrize(
    "mish", [torch.nn.functional.mish, mish_in_steps, mish_in_place, torch.nn.functional.silu, gate]
)
def test_what_is_flushed_on_the_way_may_be_missing_afterwards(mish):
    """exp(-87.5) is below 2**-126, and the Mish of -87.5 above: a GPU's exponential gives 0, but eager's does not."""
    least = torch.finfo(torch.float32).tiny
    x = torch.linspace(-90.0, -80.0, 4096).reshape(16, 256)
    expected = make_expectation(mish, mish, [x], regime="mixed")
    power = torch.exp(x)
    result, right = x * torch.tanh(torch.log1p(power.masked_fill(power < least, 0.0))), expected.outputs[0].expected
    assert bool((right[result == 0].abs() > 16 * least).any())
    assert judge(expected, [result]).accepted
    for wrong in (torch.zeros_like(x), result.masked_fill(x < -86.0, 0.0), 2 * result):
        assert not judge(expected, [wrong]).accepted


@pytest.mark.parametrize("columns", [16, 256])
def test_what_is_flushed_ahead_of_a_mean_may_be_missing_too(columns):
    def compute(x):
        return torch.nn.functional.silu(x).mean(-1)

    x = torch.linspace(-88.1, -87.6, 64 * columns).reshape(64, columns)
    expected, power = make_expectation(compute, compute, [x], regime="mixed"), torch.exp(x)
    flushed = (x * power.masked_fill(power < torch.finfo(torch.float32).tiny, 0.0)).mean(-1)
    assert judge(expected, [flushed]).accepted


def test_a_logarithm_of_what_is_flushed_keeps_its_limits():
    """The movement of a flush is no rounding's: behind a logarithm it once allowed 3.6 where eager errs by 1e-4."""
    for compute, x, off in (
        (lambda x: torch.log(torch.softmax(x, -1)), torch.linspace(0.0, -99.0, 512).repeat(6, 1), 0.5),
        (lambda x: torch.log(torch.sigmoid(x)), torch.linspace(-88.4, -87.4, 512).repeat(6, 1), 0.1),
        (lambda x: torch.log(torch.exp(-x * x).sum(-1, keepdim=True)), 9.36 + 0.01 * torch.rand(6, 1024), 0.05),
    ):
        expected, right = make_expectation(compute, compute, [x], regime="large"), compute(x)
        assert judge(expected, [right]).accepted
        assert not judge(expected, [torch.where(right < -70.0, right + off, right)]).accepted


def test_the_element_that_is_named_is_one_that_errs():
    (x,) = regimes.make_inputs([torch.randn(8, 300)], "large", 1)
    expected = make_expectation(wide_softmax, wide_softmax, [x], regime="large")
    limits, off = expected.outputs[0].limits, wide_softmax(x).clone()
    off[3] += 0.9 * limits.element[3].float() * (off[3] > 1e-30)
    off[3, 0] += 1e-44
    verdict = judge(expected, [off])
    assert "rms" in verdict.reason and verdict.detail["expected"] > 1e-6, verdict


def test_rounding_mode_moves_what_is_computed_and_no_count():
    x = torch.randn(64, dtype=torch.float64)
    places = torch.arange(64, dtype=torch.float64)
    with RoundingMode(2.0**-24, 7):
        product, picked, total = x * 3.7, (places + 1.0).long(), x.clone()
        total += 0.3
        kept = x.view(8, 8)
    apart = ((product - x * 3.7) / (x * 3.7)).abs()
    assert bool((apart > 0.59 * 2.0**-24).all()) and bool((apart < 1.31 * 2.0**-24).all())
    assert torch.equal(picked, torch.arange(64) + 1) and torch.equal(kept.reshape(-1), x)
    with RoundingMode(2.0**-24, 7):
        saturated = 1 + torch.tanh(torch.full((64,), -30.0, dtype=torch.float64))
    assert bool((saturated.abs() > 0.59 * 2.0**-24).all())
    moved = ((total - (x + 0.3)) / (x + 0.3)).abs()
    assert bool((moved > 0.59 * 2.0**-24).all()) and bool((moved < 1.31 * 2.0**-24).all())


def test_values_that_cancel_do_not_move_alike():
    """As a softmax's argument and its row's maximum: with one size of movement 1 of 64 differences stood still."""
    x = torch.full((2, 40_000), 1000.0, dtype=torch.float64)
    (moved,) = measure_condition(
        lambda v: [v[0][0] - v[0][1]], lambda: [x.clone()], [x[0] - x[1]], eps=2.0**-24, seed=3
    )
    assert float(moved.min()) > 0.09 * 1000 * 2.0**-24


def test_a_rounding_may_pass_the_edge_of_a_relu():
    """One sum in each row lies just below 0, all others far below: moves of one unit leave that row's answers at 0."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 128, 577, generator=generator)
    x[..., -1] = -50 - x.double().sum(-1).float()
    near = torch.arange(64), torch.randint(0, 128, (64,), generator=generator)
    below = 4e-6 * torch.rand(64, generator=generator)
    x[(*near, -1)] = 0.0
    x[(*near, 0)] = 0.0
    for place in (-1, 0):  # a second addend takes what the first one's rounding leaves
        x[(*near, place)] = (-below - x[near].double().sum(-1)).float()
    right = make_expectation(rectified_sum, rectified_sum, [x], regime="randn", seed=1)
    wrong = 0
    for order in range(4):
        total = torch.zeros(64, 128)
        for place in torch.randperm(577, generator=generator):
            total += x[..., place]
        wrong += int(((total > 0) & (right.outputs[0].expected == 0)).sum())
        assert judge(right, [total.relu()]).accepted, order
    assert wrong, "no rounding passed the edge: the test shows nothing"
    total[near] += 1e-4
    assert not judge(right, [total.relu()]).accepted


def rectified_sum(x):
    return torch.relu(x.sum(-1))


def test_a_rounding_may_take_a_step_that_lies_within_it():
    """A quotient next to a tie: eager and float64 round it to one side, a kernel that divides to the other."""
    points = ((torch.arange(-4000, 4000).double() + 0.5) / 7.5).float()
    points = torch.cat([points, torch.nextafter(points, points + 1), torch.nextafter(points, points - 1)])
    right, eager = to_steps(points.double()), to_steps(points)
    made = torch.round(points / (1 / torch.tensor(7.5))) / 7.5
    ties = points[(eager == right.float()) & (made != eager)][:32]
    assert len(ties) == 32
    x = torch.randn(32, 256, generator=torch.Generator().manual_seed(0))
    x[torch.arange(32), torch.arange(32) * 7] = ties
    expected = make_expectation(to_steps, to_steps, [x], regime="randn", seed=3)
    assert judge(expected, [torch.round(x / (1 / torch.tensor(7.5))) / 7.5]).accepted
    wrong = to_steps(x)
    wrong[3, 4] += 1 / 7.5
    assert not judge(expected, [wrong]).accepted


def to_steps(x):
    return torch.round(x * 7.5) / 7.5


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_what_is_left_of_gelu_far_below_zero_is_expected_and_accepted(approximate):
    """In float64 torch's own form is 0 from -8.3 on; a kernel that is more exact must not be wrong there."""

    def reference(v):
        return torch.nn.functional.gelu(v, approximate=approximate)

    x = -8.4 - 0.6 * torch.rand(64)
    right = 0.5 * x * torch.special.erfc(-x * 0.5**0.5)
    if approximate == "tanh":
        right = x * torch.sigmoid(1.5957691216 * (x + 0.044715 * x * x * x))
    assert right.all() and not reference(x.double()).any()
    for answer in (right, reference(x)):
        verdict = judge(make_expectation(reference, reference, [x]), [answer])
        assert verdict.accepted, verdict


def sum_in_float16(x, w):
    """A product whose partial sums of 64 terms are added up in float16, as `tl.sum` of float16 blocks does."""
    terms = (x[:, None, :] * w[None]).unflatten(-1, (-1, 64))
    total = torch.zeros(terms.shape[:2], dtype=torch.float16)
    for part in terms.unbind(-2):
        total = total + part.sum(-1, dtype=torch.float16)
    return total


def test_sums_in_16_bits_err_by_the_operands_own_type():
    """Under bfloat16's unit, 8 times float16's, a kernel without the last 256 of 4096 terms was accepted."""
    x, w = regimes.make_inputs([torch.ones(4, 4096).half(), torch.ones(8, 4096).half()], "randn", seed=3, rows=4)
    made = make_expectation(lambda x, w: x @ w.T, lambda x, w: x @ w.T, [x, w], precision="half-accumulate")
    assert judge(made, [sum_in_float16(x, w)], depth="full").accepted
    assert not judge(made, [sum_in_float16(x[:, :-256], w[:, :-256])], depth="full").accepted


@pytest.mark.slow
def test_what_cancels_next_to_overflow_may_be_finite_where_eager_is_nan():
    """The right answer is 68588, which float16 has not; eager subtracts infinities; an honest way has 63520."""
    made = variants.cases("polynomials", torch.float16, seed=1_000_003 * 5060 + 17, repeated=True)
    shifted = [one for one in made if one[0].regime == "shifted"]
    assert any(bool((~right.outputs[0].finite).any()) for right, _ in shifted)
    operation = variants.OPERATIONS["polynomials"]
    assert variants.worst(shifted, operation.honest["factored"])[0].accepted
    zeros = variants.worst(shifted, lambda *inputs: torch.zeros_like(operation.honest["factored"](*inputs)))[0]
    assert not zeros.accepted


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("number", [1001, pieces.LOOKED_UP + 3])
def test_factors_move_both_ways_by_every_size_and_back_with_the_other_sign(dtype, number):
    values, eps = torch.zeros(number, dtype=dtype), 2.0**-10
    moved, back = (pieces.draw_factors(values, step, torch.Generator().manual_seed(5)) - 1.0 for step in (eps, -eps))
    assert (
        moved.dtype == dtype
        and moved.shape == values.shape
        and torch.allclose(moved, -back, atol=torch.finfo(dtype).eps)
    )
    sizes = {round(v / eps, 3) for v in moved.tolist()}
    assert sizes == {sign * size / 10 for size in range(6, 14) for sign in (1, -1)}
    assert moved.mean().abs() < eps * 4 / number**0.5
