"""What decides a largest value, an index, `any` or `all` lies by turns in each place that a kernel may forget."""

import pytest
import torch

from kernelsearch.trial.bench import Bench
from kernelsearch.verify.domains import narrow
from kernelsearch.verify.drawn_integers import draw_integers
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge
from kernelsearch.verify.planted import count_plants, list_plants
from kernelsearch.verify.regime_words import LONE, PLANTED
from kernelsearch.verify.regimes import make_inputs

SELECT = {
    "argmax": lambda x, axis: x.argmax(axis),
    "argmin": lambda x, axis: x.argmin(axis),
    "topk": lambda x, axis: x.topk(2, axis)[1],
    "amax": lambda x, axis: x.amax(axis),
    "amin": lambda x, axis: x.amin(axis),
    "any": lambda x, axis: (x > 2).any(axis),
    "all": lambda x, axis: (x > -2).all(axis),
    "none": lambda x, axis: (x != 0).any(axis),
}
WHOLE = {
    "any": lambda x, axis: (x > 0).any(axis),
    "all": lambda x, axis: (x > 0).all(axis),
    "argmax": SELECT["argmax"],
    "amin": SELECT["amin"],
}
LEFT_OUT = {"last": lambda n: [n - 1], "first": lambda n: [0], "tail": lambda n: [*range(n // 64 * 64, n)]}


def forget(select, axis, places):
    """The operation without some places of an axis, with indices as they were."""

    def answer(x):
        size = x.shape[axis]
        kept = torch.tensor([n for n in range(size) if n not in places(size)])
        found = select(x.index_select(axis, kept), axis)
        return kept[found] if found.dtype is torch.int64 and select not in (SELECT["amin"], SELECT["amax"]) else found

    return answer


@pytest.mark.parametrize("place", LEFT_OUT)
@pytest.mark.parametrize("shape, axis", [((3, 200), -1), ((1100,), 0), ((200, 3), 0)], ids=str)
@pytest.mark.parametrize("name", SELECT)
def test_whoever_forgets_an_element_is_refused(name, shape, axis, place):
    x, refused = [torch.randn(shape)], 0
    seeds = [7 * count_plants(x) + n for n in range(count_plants(x))]
    for seed in seeds:
        own = make_inputs(x, PLANTED, seed, exponentials=False, number=2.0)

        def reference(x):
            return SELECT[name](x, axis)

        expected = make_expectation(reference, reference, own, regime=PLANTED, seed=seed)
        assert judge(expected, [reference(*own)], depth="full").accepted
        refused += not judge(expected, [forget(SELECT[name], axis, LEFT_OUT[place])(*own)], depth="full").accepted
    assert refused


@pytest.mark.parametrize("place", LEFT_OUT)
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_so_it_is_with_integers(dtype, name, place):
    if dtype is torch.bool and name in ("argmax", "amin"):
        pytest.skip("torch has none of truth values")
    draws = [[torch.randint(-9 if dtype is torch.int32 else 0, 2, (3, 200)).to(dtype)] for _ in range(3)]
    refused = 0
    for seed in range(count_plants(draws[0])):
        (x,) = draw_integers(draws, [False], LONE, seed)
        refused += not torch.equal(WHOLE[name](x, -1), forget(WHOLE[name], -1, LEFT_OUT[place])(x))
    assert refused


def test_lines_are_rows_columns_and_all_that_follows_an_axis():
    plans = list_plants((2, 3, 8, 8))
    assert {(a, b) for a, b, _ in plans} == {(3, 4), (2, 3), (1, 2), (0, 1), (2, 4), (1, 4), (0, 4)}
    assert [p for p in plans if p[:2] == (0, 4)] == [(0, 4, turn) for turn in range(16)]
    assert list_plants((5, 1)) == [(0, 1, turn) for turn in range(16)]


@pytest.mark.parametrize("domain", ["positive", "nonnegative", "unit", (0.5, 4.0), None])
def test_one_element_decides_within_a_domain_too(domain):
    x, largest, least = [torch.randn(32, 100)], set(), set()
    (own,) = make_inputs(x, PLANTED, 0, names=["x"], domain={"x": domain} if domain else None)
    assert torch.equal(own, narrow(own, domain)) or domain == "unit"
    for row in own:
        ranked = row.sort()
        largest |= {int(ranked.indices[-1])} if ranked.values[-1] > ranked.values[-2] else set()
        least |= {int(ranked.indices[0])} if ranked.values[0] < ranked.values[1] else set()
    assert {0, 99} <= largest and {0, 99} <= least


TASK = """
import torch, triton, triton.language as tl
def reference(x): return REFERENCE
def get_inputs(rows=64, cols=100): return [torch.randn(rows, cols)]
TEST_SHAPES = [dict(rows=3, cols=100)]
@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0), tl.max(tl.load(x_ptr + tl.program_id(0) * n + at, at < n, -float("inf")), 0))
def f(x):
    y = torch.empty(x.shape[0], device=x.device)
    k[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
    return y
"""


@pytest.mark.parametrize("reference, planted", [("x.amax(-1)", 16), ("x.sum(-1)", 0)])
def test_only_what_few_elements_decide_is_judged_so(tmp_path, borrowing, reference, planted):
    (tmp_path / "task.py").write_text(TASK.replace("REFERENCE", reference))
    with Bench.open(tmp_path / "task.py", "h100", compile_workers=1) as bench:
        cases = [c for c in bench.cases("full") if c.regime == PLANTED]
        assert sum(c.shape == "test:0" for c in cases) == planted and bool(cases) is bool(planted)
