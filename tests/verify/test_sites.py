"""Integers that come from rounding may be neighbours at a boundary, and an index is judged by what it points at."""

import pytest
import torch

from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge
from kernelsearch.verify.pieces import encode

E4M3 = torch.float8_e4m3fn


def quantise_int8(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8), scale


def quantise_fp8(x):
    scale = x.float().abs().amax(-1, keepdim=True) / 448
    return (x.float() / scale).clamp(-448, 448).to(E4M3), scale


def cut_off(x):
    return (x * (127 / x.abs().amax())).to(torch.int32)


def zero_point(x):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    scale = (high - low) / 255
    zero = torch.round(-low / scale)
    return (torch.round(x / scale) + zero).clamp(0, 255).to(torch.uint8), zero.to(torch.int32)


def by_reciprocal(x):
    most = x.float().abs().amax(-1, keepdim=True)
    return torch.floor(x.float() * (127 / most) + 0.5).clamp(-128, 127).to(torch.int8), most / 127


def fp8_by_reciprocal(x):
    scale = x.float().abs().amax(-1, keepdim=True) / 448
    return (x.float() * (1 / scale)).clamp(-448, 448).to(E4M3), scale


def zero_point_by_reciprocal(x):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    inverse = 255 / (high - low)
    zero = torch.floor(-low * inverse + 0.5)
    return (torch.floor(x * inverse + 0.5) + zero).clamp(0, 255).to(torch.uint8), zero.to(torch.int32)


QUANTISED = {
    "int8": (quantise_int8, by_reciprocal),
    "fp8": (quantise_fp8, fp8_by_reciprocal),
    "cut off": (cut_off, lambda x: (x * 127 / x.abs().amax()).to(torch.int32)),
    "zero point": (zero_point, zero_point_by_reciprocal),
}


def draw_near_boundaries(seed):
    """Normal values, and rows whose quotients lie on, or a rounding beside, what separates two codes."""
    x = torch.randn(24, 100, generator=torch.Generator().manual_seed(seed))
    halves = torch.arange(100) + 0.5 - 50
    x[:6] = halves.clamp(-49.5, 49.5) * (127 / 254) * torch.tensor([0.3, 0.7, 1.1, 3.3, 1e-3, 900.0])[:, None]
    x[:6, 0] = 127 * x[:6, 50].abs() * 2
    return x


@pytest.mark.parametrize("name", QUANTISED)
def test_a_neighbour_is_right_at_a_boundary_and_wrong_elsewhere(name):
    reference, way = QUANTISED[name]
    other = near = 0
    for seed in range(6):
        x = draw_near_boundaries(seed)
        expected = make_expectation(reference, reference, [x], regime="scaled", seed=seed)
        got = way(x)
        got = list(got) if isinstance(got, tuple) else [got]
        verdict = judge(expected, got, depth="full")
        assert verdict.accepted, (seed, verdict)
        right, codes = expected.outputs[0].rounded, encode(got[0], expected.outputs[0].dtype)
        other += int((codes != right).sum())
        safe = torch.stack([right == also for also in expected.outputs[0].also]).all(0)
        assert float(safe.float().mean()) > 0.7
        near += int((~safe).sum())
        for step in (1, -1):
            for place in safe.reshape(-1).nonzero()[::97].reshape(-1).tolist():  # one code elsewhere is enough
                wrong = codes.clone()
                wrong.reshape(-1)[place] += step
                assert not judge(expected, [wrong.view(got[0].dtype), *got[1:]], depth="full").accepted
    assert near and (other or name != "int8")


def test_what_is_cut_off_instead_of_rounded_is_wrong():
    x = draw_near_boundaries(3).bfloat16()
    expected = make_expectation(quantise_int8, quantise_int8, [x], regime="scaled", seed=1)
    _, scale = quantise_int8(x)
    assert judge(expected, [by_reciprocal(x)[0], scale], depth="full").accepted
    assert not judge(expected, [(x.float() / scale.float()).to(torch.int8), scale], depth="full").accepted


def route(x):
    weights, ids = torch.topk(torch.softmax(x.float(), -1), 4)
    return weights / weights.sum(-1, keepdim=True), ids.to(torch.int32)


def pick_last_of_equals(x, count=4):
    """The largest of each row, of equal ones that with the highest index."""
    left, chosen = x.float().clone(), []
    for _ in range(count):
        chosen.append(left.shape[-1] - 1 - left.flip(-1).argmax(-1))
        left.scatter_(-1, chosen[-1][:, None], -torch.inf)
    return torch.stack(chosen, -1)


INDICES = {
    "topk": (route, lambda x: pick_last_of_equals(x).int()),
    "argmax": (lambda x: x.argmax(-1), lambda x: pick_last_of_equals(x, 1)[:, 0]),
    "argmin, kept": (lambda x: x.argmin(-1, keepdim=True), lambda x: pick_last_of_equals(-x, 1)),
    "flat": (lambda x: x.argmax(), lambda x: x.numel() - 1 - x.flatten().flip(0).argmax()),
    "max": (lambda x: tuple(x.max(-1)), lambda x: pick_last_of_equals(x, 1)[:, 0]),
    "of columns": (lambda x: x.T.argmax(0).short(), lambda x: pick_last_of_equals(x, 1)[:, 0].short()),
    "sort": (lambda x: x.sort(-1, descending=True)[1], lambda x: pick_last_of_equals(x, x.shape[1])),
    "some": (lambda x: x.argsort(-1, descending=True)[:, :3].int(), lambda x: pick_last_of_equals(x, 3).int()),
    "masked": (
        lambda x: torch.where(x[:, 0] > 0, x.argmax(-1), -1),
        lambda x: torch.where(x[:, 0] > 0, pick_last_of_equals(x, 1)[:, 0], -1),
    ),
}


PROMISED = ("argmax", "argmin, kept", "flat", "max", "of columns", "masked")
"""Those whose first index of equal values torch's documentation promises."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("name", [n for n in INDICES if n != "topk"])
def test_of_equal_values_the_first_is_right_where_torch_promises_it(name, dtype):
    reference, way = INDICES[name]
    x = torch.randint(-2, 3, (30, 40), generator=torch.Generator().manual_seed(4)).to(dtype)
    expected = make_expectation(reference, reference, [x], regime="integers", seed=2)
    eager = reference(x)
    outputs = list(eager) if isinstance(eager, tuple) else [eager]
    assert judge(expected, outputs, depth="full").accepted
    other = way(x.float()).to(outputs[-1].dtype)
    verdict = judge(expected, [*outputs[:-1], other], depth="full")
    assert verdict.accepted is (name not in PROMISED) and not torch.equal(other, outputs[-1]), verdict


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_index_of_an_input_points_at_an_equal_value_and_one_of_a_product_at_a_near_one(dtype):
    x = torch.randn(30, 40, generator=torch.Generator().manual_seed(4)).to(dtype)
    step = torch.finfo(dtype).eps
    x[:, 5], x[:, 9] = 8.0, 8.0 * (1 + step)
    near = torch.full((30,), 5)
    for reference, taken in ((lambda x: x.argmax(-1), False), (lambda x: (x.float() * 0.7).argmax(-1), True)):
        expected = make_expectation(reference, reference, [x], regime="randn", seed=2)
        assert judge(expected, [reference(x)], depth="full").accepted
        assert judge(expected, [near], depth="full").accepted is (taken and dtype is torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", INDICES)
def test_an_index_is_judged_by_what_it_points_at(name, dtype):
    reference, way = INDICES[name]
    x = torch.randint(-2, 3, (30, 40), generator=torch.Generator().manual_seed(4)).to(dtype)
    x[7] = 0
    expected = make_expectation(reference, reference, [x], regime="integers", seed=2)
    eager = reference(x)
    outputs = list(eager) if isinstance(eager, tuple) else [eager]
    right, outputs[-1] = outputs[-1], way(x)
    if name in PROMISED:
        outputs[-1] = right
    verdict = judge(expected, outputs, depth="full")
    assert verdict.accepted and torch.equal(right, outputs[-1]) is (name in PROMISED), verdict
    got = outputs[-1]
    flat = got.reshape(-1)
    row = 7 if flat.numel() == 1 else 3
    least = x.flatten() if name == "flat" else x[row]
    bad = least.argmax() if "argmin" in name else least.argmin()
    place = 0 if flat.numel() == 1 else row * (flat.numel() // 30)
    for value in (int(bad), -2, 40 * 30):
        if name == "masked" and value == -2 and flat[place] == -1:
            continue
        wrong = got.clone()
        wrong.reshape(-1)[place] = value
        assert not judge(expected, [*outputs[:-1], wrong], depth="full").accepted, value
    if got.dim() == 2 and got.shape[1] > 1:
        twice = got.clone()
        twice[7, 1] = twice[7, 0]  # all are equal there
        assert not judge(expected, [*outputs[:-1], twice], depth="full").accepted


def test_an_index_of_a_stable_sort_is_that_of_the_order():
    x = torch.randint(-2, 3, (30, 40), generator=torch.Generator().manual_seed(4)).float()

    def reference(x):
        return torch.sort(x, dim=-1, descending=True, stable=True)[1]

    expected = make_expectation(reference, reference, [x], regime="integers", seed=2)
    assert judge(expected, [reference(x)], depth="full").accepted
    assert not judge(expected, [pick_last_of_equals(x, 40)], depth="full").accepted


@pytest.mark.parametrize("dtype", [E4M3, torch.float8_e5m2], ids=["e4m3", "e5m2"])
def test_beyond_an_8_bit_range_the_largest_number_is_right_as_eagers_nan_is(dtype):
    def reference(x):
        return (x * x / x * 2.0).to(dtype)

    most = torch.finfo(dtype).max
    x = torch.tensor([1.0, -1.0, 3.0, -3.0, 0.25, 0.1, 1e4, 0.0]) * most
    expected = make_expectation(reference, reference, [x])
    saturated = (x * x / x * 2.0).clamp(-most, most).to(dtype)
    assert judge(expected, [reference(x)]).accepted
    assert judge(expected, [saturated]).accepted
    flipped = torch.where(x.abs() > most, -saturated.float(), saturated.float()).to(dtype)
    assert not judge(expected, [flipped]).accepted, "the sign is that of the value"
    for place, wrong in ((2, most / 2), (3, most / 2), (2, 0.0), (4, most), (7, most)):
        answer = saturated.float()
        answer[place] = wrong
        assert not judge(expected, [answer.to(dtype)]).accepted, (place, wrong)
