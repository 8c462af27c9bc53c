"""Where roundings to 16 bits decide which value is the answer, an honest kernel may decide otherwise."""

import torch

from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.half_roundings import is_accident, redraw_roundings
from kernelsearch.verify.judge import judge
from kernelsearch.verify.widest import run_reference

ROWS, KEYS = 64, 24


def pick_by_score(x, w, v):
    return torch.softmax((x @ w) * 11.0, -1) @ v


def pick_rounded_once(x, w, v):
    """As a kernel does it that rounds its scores once, not twice."""
    scores = (x.float() @ w.float() * 11.0).to(x.dtype)
    return (torch.softmax(scores.float(), -1) @ v.float()).to(x.dtype)


def draw_inputs(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    sizes = (ROWS, 16), (16, KEYS), (KEYS, 32)
    return [(torch.randn(s, generator=generator) * scale).to(dtype) for s, scale in zip(sizes, (8.0, 8.0, 1.0))]


def find_accident():
    """Inputs on which that kernel is refused for a few elements, with what is right there and the refusal.

    About one draw in a thousand is such.
    """
    for seed in range(2200, 7000):
        inputs = draw_inputs(seed, torch.float16)
        right = make_expectation(pick_by_score, pick_by_score, inputs, seed=seed)
        verdict = judge(right, [pick_rounded_once(*inputs)])
        if is_accident(verdict):
            return inputs, right, verdict
    raise AssertionError("no draw of 4800 has one")


def test_a_kernel_may_decide_as_the_reference_does_with_other_roundings():
    inputs, right, verdict = find_accident()
    assert verdict.error_ratio > 1.1, "no near miss"
    wider = redraw_roundings(right, lambda: run_reference(pick_by_score, inputs), "ieee", 3)
    assert any(judge(each, [pick_rounded_once(*inputs)]).accepted for each in wider)


def test_a_wrong_answer_stays_wrong_in_a_row_that_no_rounding_decides():
    inputs, right, _ = find_accident()
    *_, widest = redraw_roundings(right, lambda: run_reference(pick_by_score, inputs), "ieee", 3)
    wider = (widest.outputs[0].limits.element > right.outputs[0].limits.element).any(1)
    assert 0 < int(wider.sum()) < ROWS // 4
    sure = int((~wider).nonzero()[0])
    made = pick_rounded_once(*inputs)
    assert judge(widest, [made]).accepted
    made[sure] = made[sure] * 1.1
    assert is_accident(judge(widest, [made]))


def test_no_rounding_of_float32_explains_an_error():
    inputs = [v.float() for v in draw_inputs(0, torch.bfloat16)]
    right = make_expectation(pick_by_score, pick_by_score, inputs)
    assert not list(redraw_roundings(right, lambda: run_reference(pick_by_score, inputs), "ieee", 3))
    assert list(redraw_roundings(right, lambda: run_reference(pick_by_score, inputs), "tf32", 3))


def weigh(p, v):
    return (p @ v.float()).to(v.dtype)


def test_matrix_units_take_both_operands_in_one_type():
    """A kernel that rounds its weights to 16 bits ahead of a product errs most where two large terms cancel."""
    p, v = torch.tensor([[0.50071, 0.49929]]), torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    v[:, 5] = torch.tensor([96.0, -96.0])
    right, narrow = make_expectation(weigh, weigh, [p, v]), weigh(p.bfloat16().float(), v)
    assert is_accident(judge(right, [narrow]))
    assert any(judge(each, [narrow]).accepted for each in redraw_roundings(right, lambda: [weigh(p, v)], "ieee", 3))
    wide = make_expectation(weigh, weigh, [p, v.float()])
    assert not list(redraw_roundings(wide, lambda: [weigh(p, v.float())], "ieee", 3))
