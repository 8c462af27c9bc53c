"""The judge's points one by one, on toy references."""

import math
from dataclasses import replace

import pytest
import torch
import variants

from kernelsearch.core.types import Word
from kernelsearch.verify import error_samples, regimes
from kernelsearch.verify import judge as j
from kernelsearch.verify.expectation import make_expectation


def softmax(x):
    return torch.softmax(x, -1)


@pytest.fixture(scope="module")
def case():
    (x,) = regimes.make_inputs([torch.randn(8, 300)], "randn", 1)
    return make_expectation(softmax, softmax, [x], shape="8x300"), x


def test_accepts_eager_and_tells_the_ratio(case):
    expected, x = case
    verdict = j.judge(expected, [softmax(x)], [x], [x.clone()])
    assert verdict.accepted and 0 <= verdict.error_ratio < 0.5


@pytest.mark.parametrize(
    "break_it, what",
    [
        (lambda y: y[:, :-1], "shape"),
        (lambda y: y.half(), "dtype"),
        (lambda y: 3, "int"),
        (lambda y: y.index_fill(1, torch.tensor([299]), float("nan")), "not written"),
        (lambda y: y.index_fill(1, torch.tensor([7]), float("inf")), "non-finite"),
        (lambda y: y * (1 + 1e-4), "error"),
    ],
)
def test_rejects(case, break_it, what):
    expected, x = case
    verdict = j.judge(expected, [break_it(softmax(x))])
    assert verdict.word is Word.WRONG and what in verdict.reason


@pytest.mark.parametrize("row, column", [(0, 0), (7, 299), (3, 128)])
def test_one_wrong_element_is_seen_and_named(case, row, column):
    expected, x = case
    y = softmax(x)
    y[row, column] *= 1.001
    verdict = j.judge(expected, [y])
    assert verdict.detail["index"] == [row, column] and verdict.error_ratio > 1
    assert {"shape", "regime", "expected", "got", "output"} <= set(verdict.detail)


def test_number_of_outputs_and_strides(case):
    expected, x = case
    assert "outputs" in j.judge(expected, []).reason
    strict = make_expectation(softmax, softmax, [x], strides=[(1, 8)])
    assert "strides" in j.judge(strict, [softmax(x)]).reason


def test_changed_input_is_memory_unless_the_task_says_so(case):
    expected, x = case
    changed = x.clone()
    changed[0, 0] = -0.0 if x[0, 0] == 0 else -x[0, 0]
    assert j.judge(expected, [softmax(x)], [x], [changed]).word is Word.MEMORY
    assert j.judge(expected, [softmax(x)], [x], [changed], mutates=[0]).accepted


def test_nan_inputs_compare_bit_for_bit(case):
    expected, x = case
    nan = torch.full((3,), float("nan"))
    assert j.judge(expected, [softmax(x)], [nan], [nan.clone()]).accepted


def test_integers_are_exact():
    x = torch.stack([torch.randperm(20) for _ in range(50)])  # no ties: any of them would be right
    top = lambda t: t.argmax(-1)  # noqa: E731
    expected = make_expectation(top, top, [x.float()])
    right = top(x)
    assert j.judge(expected, [right]).accepted
    right[3] += 1
    assert "exact" in j.judge(expected, [right]).reason
    right[3] = j.poison_value(right.dtype)
    assert "not written" in j.judge(expected, [right]).reason


def quantise(x, by_reciprocal=False):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x * (1 / scale) if by_reciprocal else x / scale).to(torch.int8)


@pytest.mark.parametrize("seed", range(5))
def test_a_whole_number_at_the_edge_of_a_rounding_may_fall_to_either_side(seed):
    """A quotient of exactly -127 is -126 where a division errs by an ulp and is then cut off, as a GPU's does."""
    (x,) = regimes.make_inputs([torch.randn(40, 33)], "mixed", seed, rows=40)
    expected = make_expectation(quantise, quantise, [x], regime="mixed", seed=seed)
    other = quantise(x, by_reciprocal=True)
    assert (other != quantise(x)).any() and j.judge(expected, [other]).accepted
    wrong = quantise(x)
    at = (x / (x.abs().amax(-1, keepdim=True) / 127)).frac().abs().sub(0.5).abs().argmin()  # far from any edge
    wrong.view(-1)[at] += 1
    assert "not the exact answer" in j.judge(expected, [wrong]).reason
    wrong = quantise(x) // 2
    wrong[::7] = j.poison_value(wrong.dtype)  # some of what is wrong has the value of poison by chance
    assert "not the exact answer" in j.judge(expected, [wrong]).reason
    tied = torch.zeros(3, 8)

    def one(t):
        return t.topk(1)[1][:, 0]

    first = make_expectation(one, one, [tied + 1.5], seed=seed)
    assert j.judge(first, [torch.tensor([0, 1, 0])]).accepted  # torch.topk promises no order of equal values
    assert not j.judge(first, [torch.tensor([0, 8, 0])]).accepted
    tied[1, 1] = -0.5
    less = make_expectation(one, one, [tied + 1.5], seed=seed)
    assert not j.judge(less, [torch.tensor([0, 1, 0])]).accepted


def test_a_power_of_a_tensor_is_no_exact_operation():
    a = torch.full((4, 4), 2.0)
    assert not make_expectation(torch.pow, torch.pow, [a, a], regime="integers").outputs[0].exact


def test_integer_regime_is_bit_exact_for_sums_and_not_for_softmax():
    a, b = regimes.make_inputs([torch.randn(9, 40), torch.randn(40, 9)], "integers", 0)
    product = lambda p, q: p @ q  # noqa: E731
    expected = make_expectation(product, product, [a, b], regime="integers")
    assert expected.outputs[0].exact
    assert not j.judge(expected, [(a @ b) * (1 + 2.0**-23)]).accepted
    assert not make_expectation(softmax, softmax, [a], regime="integers").outputs[0].exact


def attend(q, k, v):
    return torch.softmax(q @ k.T, -1) @ v


def attend_by_reciprocal(q, k, v):
    weights = (q @ k.T).exp()
    return weights @ v * (1 / weights.sum(-1, keepdim=True))


@pytest.mark.parametrize("seed", range(8))
def test_whole_numbers_that_a_division_gives_need_not_be_exact(seed):
    """With one key, attention gives back its value: e v / e, which is not e v (1 / e) in float32."""
    q, k, v = regimes.make_inputs([torch.randn(33, 8), torch.randn(1, 8), torch.randn(1, 40)], "integers", seed)
    expected = make_expectation(attend, attend, [q, k, v], regime="integers", seed=seed)
    assert j.judge(expected, [attend_by_reciprocal(q, k, v)]).accepted
    assert not j.judge(expected, [attend_by_reciprocal(q, k, v) * (1 + 2.0**-15)]).accepted


@pytest.mark.parametrize("seed", range(20))
def test_a_fused_multiplication_and_subtraction_in_the_exponent_is_honest(seed):
    """Compilers write fma(score, scale, -maximum): where scores are huge the largest weight is then 2**x and not 1."""
    shape = torch.randn(2, 70, 16).bfloat16()
    q, k, v = regimes.make_inputs([shape, shape, shape], "huge", seed)
    answer = torch.nn.functional.scaled_dot_product_attention
    expected = make_expectation(answer, answer, [q, k, v], regime="huge", seed=seed)
    scores, scale = q.float() @ k.float().mT, torch.tensor(16**-0.5 / math.log(2), dtype=torch.float32)
    fused = (scores.double() * scale.double() - (scores.amax(-1, keepdim=True) * scale).double()).float()
    weights = torch.exp2(fused)
    output = (weights.bfloat16().double() @ v.double()).float() / weights.sum(-1, keepdim=True)
    assert j.judge(expected, [output.bfloat16()]).accepted
    assert not j.judge(expected, [(output * (1 + 2.0**-6)).bfloat16()]).accepted


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (lambda a, b: torch.where(a > 0, a, 0.0).cumsum(-1).amax(0), True),
        (lambda a, b: torch.nn.functional.linear(a, b.T, b[0]).relu() ** 2, True),
        (lambda a, b: torch.einsum("ij,jk->ik", a, b).index_add_(0, torch.tensor([0, 3]), a[:2, :9]), True),
        (lambda a, b: (a * 8).mean(-1) * 5, False),
        (lambda a, b: a.exp().log().round(), False),
    ],
)
def test_exactness_is_asked_for_where_nothing_is_rounded(function, exact):
    a, b = regimes.make_inputs([torch.randn(9, 40), torch.randn(40, 9)], "integers", 0)
    assert make_expectation(function, function, [a, b], regime="integers").outputs[0].exact is exact


def losses(logits, labels, grouped):
    largest = logits.amax(1)
    total = (logits - largest[:, None]).exp().sum(1).log()
    picked = logits.gather(1, labels[:, None])[:, 0]
    return total + (largest - picked) if grouped else total + largest - picked


@pytest.mark.parametrize("grouped", [False, True])
def test_a_loss_near_zero_may_be_rounded_as_the_largest_of_its_row(grouped):
    """log(sum) + max - x[label] is how fused kernels write it, and rounds at the size of the terms that cancel."""

    def reference(x, t):
        return torch.nn.functional.cross_entropy(x, t, reduction="none")

    for seed in range(12):  # without `error_samples.measure_reach` about one in five is rejected
        made = regimes.make_inputs([torch.randn(64, 10), torch.randint(0, 10, (64,))], "mixed", seed, rows=64)
        expected = make_expectation(reference, reference, made, regime="mixed", seed=seed)
        right = losses(*made, grouped)
        assert j.judge(expected, [right]).accepted
        assert not j.judge(expected, [right + 1e-5 * right.abs().clamp_min(1.0)]).accepted


def test_only_integers_that_pick_widen_a_limit():
    x = torch.randn(4, 100)
    for others in ([], [torch.tensor(3)], [torch.full((4,), 3)], [torch.ones(4, dtype=torch.bool)]):
        reached = error_samples.measure_reach(
            lambda given: [given[0].sum(1)], [x.double(), *others], [x.double().sum(1)], seed=0
        )
        assert reached == [None]
    picks = [x.double(), torch.tensor([0, 1, 2, 3])]
    (reached,) = error_samples.measure_reach(lambda given: [given[0][given[1], 0]], picks, [x.double()[:, 0]], seed=0)
    assert bool((reached >= x.double()[:, 0].abs()).all()) and bool((reached > x.double()[:, 0].abs()).any())


def test_infinity_stays_in_place():
    x = torch.randn(4, 64)
    x[1, 3], x[2, 5] = float("inf"), float("nan")
    same = lambda t: t * 2  # noqa: E731
    expected = make_expectation(same, same, [x])
    assert j.judge(expected, [x * 2]).accepted
    assert "non-finite" in j.judge(expected, [torch.where(torch.isinf(x), 1.0, x * 2)]).reason
    assert not j.judge(expected, [torch.where(torch.isnan(x), 1.0, x * 2)]).accepted


def mask(t):
    return t.masked_fill(t < t.topk(3).values[..., -1:], -torch.inf)


def test_infinities_of_small_values_are_answers():
    """As of masked logits: most elements are -inf, in the reference and in eager."""
    x = torch.randn(4, 64)
    expected = make_expectation(mask, mask, [x], regime="randn")
    assert not expected.dropped and j.judge(expected, [mask(x)]).accepted
    for wrong in (x, torch.full_like(x, -torch.inf), mask(x).nan_to_num(), -mask(-x)):
        assert not j.judge(expected, [wrong]).accepted
    everything = make_expectation(lambda t: t - torch.inf, lambda t: t - torch.inf, [x], regime="randn")
    assert "256 of 256" in everything.dropped
    assert make_expectation(mask, mask, [x], regime="scaled").dropped  # there it may be what overflows


def test_beyond_the_range_of_float32_the_order_of_a_sum_decides():
    """Where float64 has a finite number that float32 has not; an infinity in float64 is one."""
    x = torch.randn(8, 4).index_fill(0, torch.tensor([0]), 3e38)
    expected = make_expectation(lambda t: t.sum(1), lambda t: t.sum(1), [x], regime="randn")
    right = expected.outputs[0].rounded
    assert right[0] == torch.inf
    assert all(j.judge(expected, [right.index_fill(0, torch.tensor([0]), v)]).accepted for v in (torch.nan, torch.inf))
    assert "non-finite" in j.judge(expected, [right.index_fill(0, torch.tensor([0]), 1.0)]).reason
    x[0] = torch.inf
    expected = make_expectation(lambda t: t.sum(1), lambda t: t.sum(1), [x], regime="randn")
    assert "non-finite" in j.judge(expected, [right.index_fill(0, torch.tensor([0]), torch.nan)]).reason


def test_mostly_infinite_regime_is_dropped_and_said():
    bad = lambda t: torch.log(t - 100)  # noqa: E731
    expected = make_expectation(bad, bad, [torch.randn(4, 64)])
    verdict = j.judge(expected, [torch.zeros(4, 64)])
    assert verdict.accepted and "dropped" in verdict.reason and verdict.detail["dropped"]


def test_reference_that_cannot_run_in_float64_says_so():
    def only32(x):
        if x.dtype is torch.float64:
            raise RuntimeError("not implemented for 'Double'")
        return x * 2

    expected = make_expectation(only32, only32, [torch.ones(3, 20)])
    assert "float32" in j.judge(expected, [torch.full((3, 20), 2.0)]).detail["notes"][0]


def test_mutated_inputs_are_outputs():
    def double_(x):
        x.mul_(2)

    x = torch.randn(3, 20)
    expected = make_expectation(double_, double_, [x], mutates=[0])
    assert j.judge(expected, [x * 2], [x], [x * 2], [0]).accepted
    assert not j.judge(expected, [x * 3], [x], [x * 3], [0]).accepted


def test_sensitivity_sees_an_ignored_element():
    def mean(x):
        return x.mean(-1)

    def lazy(x):
        return (x.sum(-1) - x[:, -1]) / x.shape[1]

    x = torch.randn(2, 4096)
    base = make_expectation(mean, mean, [x])
    seen = []
    for probe in j.choose_probes([x], seed=0):
        inputs = j.apply_probe([x], probe)
        moved = make_expectation(mean, mean, inputs)
        assert j.is_seen(base, moved)
        assert j.judge_sensitivity(base, moved, [mean(x)], [mean(*inputs)], probe).accepted
        seen.append(not j.judge_sensitivity(base, moved, [lazy(x)], [lazy(*inputs)], probe).accepted)
    assert any(seen)


def test_task_that_anything_passes_is_named():
    zero = lambda t: t * 0 + 0.0  # noqa: E731
    x = torch.randn(4, 50)
    told = j.judge_task([(make_expectation(zero, zero, [x]), [x])])
    assert any("zeros" in s for s in told) and any("constant" in s for s in told)
    assert any("input 0" in s for s in j.judge_task([(make_expectation(torch.clone, torch.clone, [x]), [x])]))


def test_a_task_without_a_finite_answer_is_told_the_domain_of_its_inputs():
    names, share, count, any_ = ("p", "n", "x"), torch.rand(3, 9), torch.rand(3, 9) + 4, torch.randn(3, 9)
    dropped = replace(make_expectation(torch.clone, torch.clone, [share]), dropped="not finite")
    for own, domain in (
        ((share, count, any_), '{"p": "unit", "n": "positive"}'),
        ((-count, any_), '{"p": "fixed", "n": "fixed"}'),
        ((torch.arange(3),), '{"p": "positive"}'),
    ):
        (told,) = j.judge_task([(dropped, [share])], own, names)
        assert f"which inputs hold only values for which it is finite, here perhaps DOMAIN = {domain} (" in told


@pytest.mark.parametrize("name", variants.OPERATIONS)
def test_ordinary_tasks_are_not_trivial(name):
    assert j.judge_task(list(variants.cases(name, torch.bfloat16, "screen"))) == ()


def test_spread_between_runs(case):
    expected, x = case
    y = softmax(x)
    assert j.measure_spread(expected, [y], [y.clone()]) == 0
    assert 0 < j.measure_spread(expected, [y], [y * (1 + 2.0**-22)]) <= 1
    assert j.measure_spread(expected, [y], [y * 1.01]) > 1


DOMAINS = {
    "fixed": lambda x: False,
    "positive": lambda x: bool((x > 0).all()),
    "nonnegative": lambda x: bool((x >= 0).all()),
    "unit": lambda x: bool(((x >= 0) & (x <= 1)).all()),
}


@pytest.mark.parametrize("limit", [*DOMAINS, None])
@pytest.mark.parametrize("position", [0, 1])
def test_a_probe_stays_in_the_domain_of_its_input(limit, position):
    names, domain = ("x", "y"), {"xy"[position]: limit} if limit else {}
    inputs = regimes.make_inputs([torch.randn(5, 40).abs(), torch.randn(40)], "randn", 3, names=names, domain=domain)
    probes = [p for p in j.choose_probes(inputs, 3, names=names, domain=domain) if p.input == position]
    assert {p.input for p in j.choose_probes(inputs, 3, names=names, domain=domain)} >= {1 - position}
    assert bool(probes) == (limit != "fixed")
    for probe in probes:
        moved = j.apply_probe(inputs, probe)[position]
        assert limit is None or DOMAINS[limit](moved)
        assert float((moved - inputs[position]).abs().max()) > 0.4, "too near to be seen"


E8 = torch.float8_e4m3fn


def quantize(x):
    scale = x.abs().amax(-1, keepdim=True) / 448.0
    return (x / scale).to(E8), scale


@pytest.mark.parametrize("change, right", [
    (lambda x, scale: x * (1 / scale), True),
    (lambda x, scale: x / (scale * 1.03), False),  # the stored scale is right, the numbers are not
    (lambda x, scale: (x / scale).bfloat16().float(), False),  # rounded twice
    (lambda x, scale: torch.where(x == x.amax(), torch.nan, x / scale), False),
])  # fmt: skip
def test_floats_of_8_bits_are_judged(change, right):
    (x,) = regimes.make_inputs([torch.randn(16, 512)], "randn", 2)
    expected = make_expectation(quantize, quantize, [x])
    _, scale = quantize(x)
    verdict = j.judge(expected, [change(x, scale).to(E8), scale])
    assert verdict.accepted == right, verdict.reason or verdict.error_ratio


def test_inputs_of_8_bits_are_taken():
    def dequantize(x, scale):
        return x.to(scale.dtype) * scale

    x, scale = torch.randn(16, 128).to(E8), torch.rand(16, 1) + 0.5
    x, scale = regimes.make_inputs([x, scale], "mixed", 3, rows=16)
    expected = make_expectation(dequantize, dequantize, [x, scale])
    assert j.judge(expected, [dequantize(x, scale)]).accepted
    assert not j.judge(expected, [dequantize(x, scale * 1.001)]).accepted


def test_the_element_that_is_named_as_not_written_is_one():
    (x,) = regimes.make_inputs([torch.randn(4, 8)], "randn", 4)
    expected = make_expectation(lambda x: x.argsort(), lambda x: x.argsort(), [x])
    got = x.argsort()
    got[0, 0] += 1
    got[1:] = j.poison_value(got.dtype)
    verdict = j.judge(expected, [got])
    assert "not written (first at [1, 0]" in verdict.reason and "24 of 32 elements" in verdict.reason


def nearest(x, codes):
    return ((x * x).sum(-1, keepdim=True) - 2 * x @ codes.T + (codes * codes).sum(-1)).argmin(-1)


def other_nearest(x, codes):
    """The same distances with their terms added in another order."""
    return ((codes * codes).sum(-1)[None] + (-2 * x[:, None] * codes).sum(-1) + (x * x).sum(-1, keepdim=True)).argmin(
        -1
    )


@pytest.mark.parametrize("far", [False, True])
def test_an_index_that_roundings_decide_is_not_judged_where_many_are_right(far):
    """The nearest of codes that are all far away; of 37 answers of an honest seed 15 were refused."""
    refused = 0
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        x, codes = torch.randn(37, 5, generator=generator), torch.randn(70, 5, generator=generator)
        x[::2] += 1000.0 * far
        codes += 1000.0 * far
        expected = make_expectation(nearest, nearest, [x, codes], regime="mixed", seed=seed)
        assert not expected.dropped
        honest = other_nearest(x, codes)
        refused += int((honest != nearest(x, codes)).sum())
        assert j.judge(expected, [honest]).accepted, j.judge(expected, [honest])
        for wrong in (honest + 1, torch.where(x[:, 0] > 500, 170, honest) if far else honest.flip(0)):
            assert not j.judge(expected, [wrong]).accepted
    assert (refused > 20) == far


def test_the_range_of_an_undecided_integer_is_known_of_every_dtype():
    torch.manual_seed(1)  # one draw of 120 has an integer that roundings decide and no draw of these shows
    x, codes = 1000.0 + torch.randn(38, 5), 1000.0 + torch.randn(70, 5)
    x[::2] -= 1000.0
    for dtype in (torch.uint16, torch.int32):
        compute = lambda x, codes: (nearest(x, codes) + 0).to(dtype)  # noqa: B023, E731  (a sum points at nothing)
        expected = make_expectation(compute, compute, [x, codes], regime="mixed")
        assert not expected.dropped and not bool(expected.outputs[0].judged.all())
        assert j.judge(expected, [other_nearest(x, codes).to(dtype)]).accepted
        assert not j.judge(expected, [(other_nearest(x, codes) + 1000 * (x[:, 0] > 500)).to(dtype)]).accepted


def test_where_roundings_decide_most_integers_their_range_and_all_else_is_judged():
    """Such a regime was dropped as a whole: what other outputs held, and an index of -7, were not looked at."""
    x, codes = 1000.0 + torch.randn(37, 5), 1000.0 + torch.randn(70, 5)

    def compute(x, codes):
        return nearest(x, codes) + 0, x * 2  # a sum points at nothing

    expected, honest = make_expectation(compute, compute, [x, codes], regime="offset"), other_nearest(x, codes)
    assert not expected.dropped and int(expected.outputs[0].judged.sum()) < 18
    assert j.judge(expected, [honest, x * 2]).accepted
    for wrong in ([honest - 100, x * 2], [honest, torch.full_like(x, -12345.0)], [honest, x]):
        assert not j.judge(expected, wrong).accepted
    plain = make_expectation(nearest, nearest, [x, codes], regime="randn")
    assert not plain.dropped and bool(plain.outputs[0].judged.all())
