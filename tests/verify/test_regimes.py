"""Judging inputs: what changes, what stays, and that every value fits its dtype."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelsearch.verify import domains, regimes
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import Probe, apply_probe, judge
from kernelsearch.verify.regime_words import REDRAWN, WORDS


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(regimes.ALL),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]),
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(0, 1000),
)
def test_values_are_finite_and_repeatable(regime, dtype, rows, cols, seed):
    blank = [torch.randn(rows, cols).to(dtype), torch.randn(cols).to(dtype), torch.arange(rows), 3, None]
    one, two = (regimes.make_inputs(blank, regime, seed) for _ in range(2))
    for old, a, b in zip(blank[:2], one, two):
        assert a.dtype == old.dtype and a.shape == old.shape and a.stride() == old.stride()
        assert torch.isfinite(a).all() and torch.equal(a, b)
    assert torch.equal(one[2], blank[2]) and one[3:] == [3, None]


def test_masks_scalars_and_fixed_inputs_stay():
    mask = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    hidden = torch.tensor([[0.0, -torch.inf]])
    blank = [mask, hidden, torch.tensor(2.0), torch.randn(3, 3)]
    made = regimes.make_inputs(blank, "huge", 1, names=("m", "h", "s", "w"), domain={"w": "fixed"})
    assert all(torch.equal(a, b) for a, b in zip(made, blank))


def test_mixed_rows_differ_in_scale_and_the_weight_is_noise():
    x, w = regimes.make_inputs([torch.ones(16, 4000), torch.ones(4000)], "mixed", 0)
    scales = x.abs().amax(1)
    assert scales.max() / scales.min() > 1e8
    assert abs(float(w.mean())) < 0.1 and 0.8 < float(w.std()) < 1.2


def test_mixing_follows_the_axis_that_the_output_keeps():
    (x,) = regimes.make_inputs([torch.zeros(100, 8)], "mixed", 0, rows=8)
    assert x.abs().amax(0).max() / x.abs().amax(0).min() > 1e8


@pytest.mark.parametrize("regime", regimes.ALL)
@pytest.mark.parametrize("terms", [3, 64, 5000])
def test_sums_that_the_contract_allows_in_16_bits_stay_in_range(regime, terms):
    blank = [torch.randn(40, terms).half(), torch.randn(terms, 20).half(), torch.randn(terms, 20)]
    plain = regimes.make_inputs(blank, regime, 1, rows=40)
    x, w, wide = regimes.make_inputs(blank, regime, 1, rows=40, precision="half-accumulate")
    assert float((x.double().abs() @ w.double().abs()).max()) <= torch.finfo(torch.float16).max * 1.01
    assert torch.equal(wide, plain[2])
    for precision in ("ieee", "tf32"):
        again = regimes.make_inputs(blank, regime, 1, rows=40, precision=precision)
        assert all(torch.equal(a, b) for a, b in zip(again, plain, strict=True))
    if regime == "mixed":
        assert x.abs().amax(1).max() / x.abs().amax(1).min() > 1e3
    if regime == "huge":
        assert float(x.abs().max()) > 3


def test_domain_narrows():
    (x,) = regimes.make_inputs([torch.randn(9, 50)], "mixed", 0, names=("x",), domain={"x": "positive"})
    assert bool((x > 0).all())
    with pytest.raises(ValueError, match="a domain is"):
        regimes.make_inputs([torch.randn(2, 2)], "randn", 0, names=("x",), domain={"x": "odd"})


def test_integers_are_small_and_whole():
    (x,) = regimes.make_inputs([torch.randn(9, 50, dtype=torch.bfloat16)], "integers", 0)
    assert bool((x == x.round()).all()) and float(x.abs().max()) == regimes.LARGEST_INTEGER


def test_strides_are_kept():
    (x,) = regimes.make_inputs([torch.randn(5, 7).T], "randn", 0)
    assert x.stride() == (1, 7)


def test_plan():
    assert regimes.plan_regimes("screen", 4) == (("mixed",), ("randn",), ("integers",), ("mixed",))
    assert regimes.plan_regimes("full", 2) == (regimes.ALL, regimes.ALL)
    with pytest.raises(ValueError, match="depth"):
        regimes.plan_regimes("deep", 1)


def test_every_regime_has_words():
    others = regimes.OWN, regimes.COPIED, regimes.OPPOSED, "offset", "multiples", regimes.PLANTED
    assert set(WORDS) == {*regimes.ALL, *regimes.OPTIONAL, *REDRAWN, *others}


@pytest.mark.parametrize("view", [lambda x: x.chunk(2, -1)[1], lambda x: x[:, ::3, 1:4], lambda x: x[..., 0], torch.t])
def test_views_with_gaps_keep_their_strides_in_all_that_is_judged(view):
    """A kernel that is right for the task's layout would read elsewhere in a copy that closes the gaps."""
    base = torch.arange(192).view(24, 8) if view is torch.t else torch.arange(192).view(4, 6, 8)
    value, whole = view(base / 7), view(base)
    half = torch.empty_strided(value.shape, value.stride(), dtype=torch.half).copy_(value)
    inputs = [value, whole, half]
    found = {
        "regime": regimes.make_inputs(inputs, "mixed", 3),
        "fixed": regimes.make_inputs(inputs, "mixed", 3, names="abc", domain=dict.fromkeys("abc", "fixed")),
        "moved": domains.move_inputs(inputs, 3, 0.05),
        "probed": apply_probe(inputs, Probe(0, 1, 9.0)),
    }
    for how, tensors in found.items():
        assert [t.stride() for t in tensors] == [v.stride() for v in inputs], how
    assert torch.equal(found["fixed"][1], whole)


def test_an_expanded_input_is_judged_dense():
    (made,) = regimes.make_inputs([torch.randn(3, 1).expand(3, 5)], "randn", 3)
    assert made.shape == (3, 5) and made.is_contiguous()


@pytest.mark.parametrize(
    ("value", "alike"),
    [(torch.randn(40, 40), True), (torch.rand(40, 40), False), (torch.randn(40, 40) - 20, False),
     (torch.randn(40, 40) * 1e6, False), (torch.arange(40), True), (torch.eye(40), True)],
)  # fmt: skip
def test_what_is_like_noise_is_not_judged_again(value, alike):
    assert regimes.are_noise([torch.randn(40, 40), value]) is alike


def test_copied_values_are_equal_or_nearly_so_across_tensors_and_in_rows():
    """A comparison with another tensor and a maximum that is there twice were not met among normal values."""
    torch.manual_seed(1)  # the largest element of a row may be one of the edges, and there a third time
    x, edges = torch.randn(6, 400), torch.randn(50)
    made, kept = regimes.make_inputs([x, edges], regimes.COPIED, 5, names=["x", "edges"], domain={"edges": "fixed"})
    assert torch.equal(kept, edges)
    apart = ((made[:, :, None] - edges) / edges).abs().amin(-1)
    assert 40 < int((apart == 0).sum()) < 200 and int(((apart > 0) & (apart < 2e-3)).sum()) > 20
    twice = [int((row == row.max()).sum()) for row in made]
    assert min(twice) == 1 and max(twice) == 2
    (unit,) = regimes.make_inputs([x], regimes.COPIED, 5, names=["x"], domain={"x": "unit"})
    assert 0 <= float(unit.min()) < 0.1 and 0.9 < float(unit.max()) <= 1


def test_sparse_values_empty_whole_groups_where_rows_are_few():
    x = torch.zeros(3, 384)
    drawn = [regimes.make_inputs([x], "sparse", seed)[0].reshape(3, 3, 128) for seed in range(8)]
    empty = [int((~v.any(-1)).sum()) for v in drawn]
    assert sum(n > 0 for n in empty) >= 5 and all(bool(v.any()) for v in drawn)


def test_in_part_a_step_is_every_nth_column():
    """The best of 128 lay in any lanes: a search of 16 lanes that keeps four of each found them."""
    drawn = [regimes.make_inputs([torch.zeros(64, 128)], "stepped", seed)[0] for seed in range(24)]
    top = [(v.topk(8, dim=-1).indices % 8).sort(-1).values for v in drawn]
    assert sum(bool((lanes[:, :1] == lanes).all(-1).any()) for lanes in top) >= 3


def test_what_an_integer_points_to_is_often_its_rows_largest():
    logits, labels = torch.randn(64, 100), torch.randint(0, 100, (64,))
    labels[:4] = -100  # as what is to be ignored
    made, same = regimes.make_inputs([logits, labels], "copied", 3)
    rows = [made[i, label] == made[i].max() for i, label in enumerate(labels.tolist()) if label >= 0]
    assert 15 < sum(map(bool, rows)) < 45 and torch.equal(same, labels)


def test_in_part_what_rises_and_steps_does_so_along_other_axes():
    for regime in ("sorted", "stepped"):
        by_axis = [0, 0, 0]
        for seed in range(24):
            value = regimes.make_inputs([torch.randn(16, 24, 32)], regime, seed)[0]
            rough = [float(value.diff(dim=axis).abs().mean()) for axis in range(3)]
            by_axis[rough.index(min(rough))] += 1
        assert min(by_axis) > 1 and by_axis[2] > 8, (regime, by_axis)


def test_tensors_of_one_sign_each_make_sums_of_products_far_below_zero():
    for seed in (3, 4):
        x, y, z = regimes.make_inputs([torch.randn(8, 64), torch.randn(64, 8), torch.randn(8)], regimes.OPPOSED, seed)
        assert float((x @ y).max()) < -1000 and float(z.abs().max()) < 10, "a bias stays as it is"


def normalise(x, dim, one_pass=False):
    """Rows, or all, by mean and deviation in float32; one_pass takes the variance from the mean of squares."""
    x = x.float() if x.dtype == torch.bfloat16 else x
    mean = x.mean(dim, keepdim=True)
    centred = (x - mean).square().mean(dim, keepdim=True)
    variance = x.square().mean(dim, keepdim=True) - mean.square() if one_pass else centred
    return ((x - mean) * torch.rsqrt(variance + 1e-5)).bfloat16()


@pytest.mark.parametrize(("regime", "dim", "seed"), [("shifted", -1, 4), ("shifted", -1, 11), ("offset", (0, 1), 3)])
def test_a_variance_in_one_pass_is_seen_of_16_bit_values_too(regime, dim, seed):
    """Noise that bfloat16 resolves is 1/32 of the mean at least; steps that are rare deviate less."""
    drawn = regimes.make_inputs([torch.ones(32, 1024, dtype=torch.bfloat16)], regime, seed, rows=32)
    right = make_expectation(lambda x: normalise(x, dim), lambda x: normalise(x, dim), drawn, regime=regime)
    assert judge(right, [normalise(*drawn, dim)], depth="full").accepted
    assert not judge(right, [normalise(*drawn, dim, one_pass=True)], depth="full").accepted
