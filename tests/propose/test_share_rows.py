"""Shared rows: parts of a row are reduced by many programs, which hand on what they have and finish it together."""

from dataclasses import replace

import edit_seeds as seeds
import pytest

from kernelsearch.core.types import LaunchFact, Trace
from kernelsearch.propose.analysis.device_functions import DEVICE_FUNCTIONS
from kernelsearch.propose.edits import NotApplicable, edit_named

LOAD = "x = tl.load(x_ptr + row * x_stride + cols, cols < n_cols, other=0.0)"
SUM = f"""row = tl.program_id(0)
total = tl.zeros([BLOCK], tl.float32)
for at in tl.range(0, n_cols, BLOCK):
    cols = at + tl.arange(0, BLOCK)
    {LOAD}
    total += x
mean = tl.sum(total, 0) / n_cols
"""
STORE = "tl.store(y_ptr + row * x_stride + cols, x - mean, cols < n_cols)"
AGAIN = f"""for at in tl.range(0, n_cols, BLOCK):
    cols = at + tl.arange(0, BLOCK)
    {LOAD}
    {STORE}
"""


HELPERS = "\n\n".join(DEVICE_FUNCTIONS[name].strip() + "\n" for name in ("online_add", "online_along"))
SOFTMAX = f"""{seeds.HEAD}{HELPERS}

@triton.jit
def softmax_wide_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask, other=0.0)
        highest_next, total_next = online_add(highest, total, x)
        highest = tl.where(mask, highest_next, highest)
        total = tl.where(mask, total_next, total)
    m, s = online_along(highest, total, 0)
    for start in tl.range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask, other=0.0)
        tl.store(y_ptr + row * x_stride + cols, tl.exp(x - m) / s, mask)
"""


def shared(kernel, task):
    return edit_named("share_rows").apply(kernel, task)


PARTS = "max(cdiv(n_cols, PART), 1)"
PARAMS = "x_ptr, y_ptr, m_ptr, x_stride, n_cols, BLOCK: tl.constexpr"


def seen(task, **passed):
    """The task, of whose kernel a launch with these arguments was seen."""
    launch = LaunchFact(task.sites[0], passed)
    return replace(task, traces={"timed:0": Trace("timed:0", (launch,))})


def apply(body, n_cols=None):
    """The edit of a drawn kernel; n_cols is what its launcher passed, if that was seen."""
    kernel = seeds.drawn(body, PARAMS)
    facts = seeds.facts(kernel.render())
    return shared(kernel, seen(facts, x_stride=n_cols, n_cols=n_cols) if n_cols else facts)


def test_a_program_reduces_one_part_and_finishes_an_earlier_one():
    (rewrite,) = apply(SUM + AGAIN)
    code = rewrite.kernel.code
    assert code.count("for ") == 0 and code.count("while ") == 1 and "BLOCK" not in code
    reduced, finished = code.split("turn -= parts + LAG")
    assert "tl.store(total_parts_ptr + turn, total_part)\n        tl.debug_barrier()\n" in reduced
    assert "sem='release'" in reduced and "sem='acquire'" in finished and "mean" not in reduced
    assert "total = tl.load(total_parts_ptr + program * parts + each, each < parts, other=0.0)\n" in finished
    assert rewrite.kernel.grid == {"drawn_kernel": f"(grid(0) * {PARTS} + ({PARTS} + LAG),)"}
    assert rewrite.kernel.scratch["turns_ptr"] == ("int32", "(grid(0) + 1,)", 0)
    assert isinstance(shared(rewrite.kernel, seeds.facts(rewrite.kernel.render())), NotApplicable)


def test_what_is_stored_of_a_whole_row_is_stored_by_one_part_where_it_was():
    kept = "mean = mean + 0.0\n"  # the name gets another value later
    (rewrite,) = apply(SUM + "tl.store(m_ptr + row, mean)\n" + kept + AGAIN)
    stored = "tl.store(m_ptr + row, mean, eviction_policy='evict_first')\n        mean = mean + 0.0\n"
    assert (
        f"if part == 0:\n            {stored}" in rewrite.kernel.code and rewrite.kernel.code.count("m_ptr + row") == 1
    )


def test_lanes_of_one_tile_need_no_rescaling():
    kernel = seeds.Kernel.parse(SOFTMAX)
    (rewrite,) = shared(kernel, seeds.facts(SOFTMAX))
    assert "online_add(" not in rewrite.kernel.code
    assert "total_part = tl.sum(tl.where(mask, tl.exp(x - highest_part), 0.0), 0)" in rewrite.kernel.code
    assert "m, s = online_along(highest, total, 0)" in rewrite.kernel.code
    for old, new in (
        ("total_next, total)", "total_next + 0.0, total)"),
        ("tl.exp(highest - finite)", "tl.exp2(highest)"),
    ):
        assert old in SOFTMAX
        other = seeds.Kernel.parse(SOFTMAX.replace(old, new))
        assert isinstance(shared(other, seeds.facts(other.render())), NotApplicable)


@pytest.mark.parametrize(("n_cols", "form"), [(4096, None), (65536, "plain"), (65535, "aligned")])
def test_launches_decide_whether_rows_are_long_and_aligned(n_cols, form):
    found = apply(SUM + AGAIN, n_cols)
    assert isinstance(found, NotApplicable) is (form is None)
    if form:
        code = found[0].kernel.code
        assert ("if (at >= lead) & (at + PART <= n_cols + lead):" in code) is (form == "aligned")
        assert ("(cols >= 0) & (cols < n_cols)" in code) is (form == "aligned")
    else:
        assert "stay in L2" in found.reason


ALONE = {
    "one loop": (AGAIN, STORE),
    "other tiles": (LOAD, LOAD.replace("cols,", "cols + 1,")),
    "an order": (STORE, f"mean = mean * 0.5\n    {STORE}"),
    "reads what was stored": (STORE, STORE.replace("x - mean", f"x + {LOAD[4:].replace('x_ptr', 'y_ptr')}")),
    "its own atomic": (STORE, f"{STORE}\n    tl.atomic_add(y_ptr, x)"),
    "elements of a tile that ask for each other": (STORE, STORE.replace("x - mean", "x - mean - tl.max(tl.abs(x), 0)")),
    "a scan of a tile": (STORE, STORE.replace("x - mean", "tl.cumsum(x, 0) - mean")),
    "groups of a tile's width": (STORE, STORE.replace("x - mean", "x - mean * (at // BLOCK)")),
    "the first tile": (STORE, STORE.replace("x - mean", "tl.where(at == 0, x, mean)")),
    "no mask": (f"{LOAD}\n    {STORE}", f"{LOAD}\n    {STORE.replace(', cols < n_cols)', ')')}"),
    "a store after it into its rows": (AGAIN, f"{AGAIN}tl.store(y_ptr + row * x_stride, mean)\n"),
    "a load after it from its rows": (AGAIN, f"{AGAIN}tl.store(m_ptr + row, tl.load(y_ptr + row * x_stride))\n"),
    "a store before it that it loads": (
        AGAIN,
        f"tl.store(m_ptr + row, mean)\n{AGAIN.replace('x - mean', 'x - tl.load(m_ptr + row)')}",
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_cannot_be_shared_is_left_alone(name):
    old, new = ALONE[name]
    assert old in AGAIN
    assert isinstance(apply(SUM + AGAIN.replace(old, new)), NotApplicable)


REDUCTIONS = {
    "starts elsewhere": ("tl.zeros([BLOCK], tl.float32)", "tl.full([BLOCK], 1.0, tl.float32)"),
    "not float32": ("tl.zeros([BLOCK], tl.float32)", "tl.zeros([BLOCK], tl.int32)"),
    "a value of the last tile": ("mean = ", "mean = x + "),
    "read as lanes": ("mean = ", "mean = total + "),
    "a store in the loop": ("total += x", "total += x\n    tl.store(y_ptr + row, x)"),
    "no accumulator": ("total += x", "total = x"),
    "a branch": ("total += x", "if row > 3:\n        total += x"),
    "two axes": ("row = tl.program_id(0)", "row = tl.program_id(0) + tl.program_id(1)"),
    "a store before": ("row = tl.program_id(0)", "row = tl.program_id(0)\ntl.store(y_ptr, 1.0)"),
    "another start": ("tl.range(0, n_cols", "tl.range(BLOCK, n_cols"),
    "another kind": ("tl.sum(total, 0)", "tl.max(total, 0)"),
    "a decay": ("total += x", "total = total * 0.5 + x"),
    "another operation": ("total += x", "total = tl.maximum(total, x)"),
    "the number of tiles": ("/ n_cols", "/ tl.cdiv(n_cols, BLOCK)"),
    "an assertion": ("row = tl.program_id(0)", "tl.static_assert(BLOCK % 16 == 0)\nrow = tl.program_id(0)"),
    "a length of whole tiles": ("n_cols, BLOCK)", "n_cols * BLOCK, BLOCK)"),
    "a length that is loaded": ("0, n_cols", "0, tl.load(m_ptr + row)"),
    "a maximum of each tile in a sum": ("total += x", "total += tl.max(x, 0)"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_what_parts_cannot_hand_on_is_left_alone(name):
    old, new = REDUCTIONS[name]
    assert old in SUM
    assert isinstance(apply(SUM.replace(old, new) + AGAIN), NotApplicable)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "edits"),
    [
        ("softmax_wide", ""),
        ("softmax_wide", "online"),
        ("softmax_wide", "lane_accumulator"),
        ("layernorm_looped", ""),
        ("rmsnorm_looped", ""),
        ("row_norms", ""),
    ],
)
def test_results_stay_those_of_the_kernel(name, edits):
    kernel, task = seeds.seed(name), seeds.task(name)
    for edit in filter(None, edits.split("+")):
        found = edit_named(edit).apply(kernel, task)
        kernel = kernel if isinstance(found, NotApplicable) else found[-1].kernel  # the first may have groups
    rewrites = shared(kernel, task)
    assert not isinstance(rewrites, NotApplicable), rewrites.reason
    seeds.assert_right(name, [r.kernel for r in rewrites], ({}, {"PART": 8, "LAG": 0}, {"PART": 256, "LAG": 40}))


def test_aligned_parts_give_the_results_of_the_kernel():
    kernel, task = seeds.seed("row_norms"), seeds.task("row_norms")
    (rewrite,) = shared(kernel, seen(task, r0_numel=65535))
    assert "VEC" in rewrite.kernel.code
    seeds.assert_right("row_norms", [rewrite.kernel], ({"PART": 8}, {"PART": 16, "LAG": 0}, {"PART": 256}))


NORM = """@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, x_stride, y_stride, n_cols, eps, TILE: tl.constexpr):
    row = tl.program_id(0)
    mean = 0.0
    var = 0.0
    for at in range(0, n_cols, TILE):
        cols = at + tl.arange(0, TILE)
        x = tl.load(x_ptr + row * x_stride + cols, cols < n_cols, other=0.0).to(tl.float32)
        mean += tl.sum(x, 0)
    mean = mean / n_cols
    for at in range(0, n_cols, TILE):
        cols = at + tl.arange(0, TILE)
        x = tl.load(x_ptr + row * x_stride + cols, cols < n_cols, other=0.0).to(tl.float32)
        apart = tl.where(cols < n_cols, x - mean, 0.0)
        var += tl.sum(apart * apart, 0)
    rstd = 1.0 / tl.sqrt(var / n_cols + eps)
    for at in range(0, n_cols, TILE):
        cols = at + tl.arange(0, TILE)
        x = tl.load(x_ptr + row * x_stride + cols, cols < n_cols, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, cols < n_cols, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + cols, cols < n_cols, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * weight + bias
        tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), cols < n_cols)
"""


def test_accumulators_that_begin_early_and_are_scaled_in_place_stay_right():
    kernel = seeds.Kernel.parse(seeds.HEAD + NORM)
    (rewrite,) = shared(kernel, seeds.facts(kernel.render()))
    configs = {"TILE": 16, "PART": 16}, {"TILE": 16, "PART": 128, "LAG": 0}
    seeds.assert_right("layernorm", [kernel, rewrite.kernel], configs)


def test_a_mask_that_the_launch_folds_is_not_that_of_parts():
    """`drop_mask` lets the launch say whether tiles divide a row: parts of another width are another question."""
    kernel, task = seeds.seed("softmax_wide"), seeds.task("softmax_wide")
    dropped = edit_named("drop_mask").apply(kernel, task)[0].kernel
    assert isinstance(shared(dropped, task), NotApplicable)


@pytest.mark.slow
def test_rows_of_two_strides_are_aligned_where_the_strides_are_equal():
    kernel, task = seeds.seed("softmax_wide"), seeds.task("softmax_wide")
    (rewrite,) = shared(kernel, seen(task, x_stride=50257, y_stride=50257, n_cols=50257))
    assert "y_base = y_ptr + (row_floor if SAME_STRIDE else" in rewrite.kernel.code
    assert rewrite.kernel.args["softmax_wide_kernel"]["SAME_STRIDE"] == "x_stride == y_stride"
    seeds.assert_right("softmax_wide", [rewrite.kernel], ({"PART": 8}, {"PART": 64, "SAME_STRIDE": False}))
    (built,) = seeds.ask(
        "compiler.py", [{"task": "softmax_wide", "kernel": rewrite.kernel.render(), "site": task.sites[0]}]
    )
    assert built["ok"], built["why"]


def test_aligned_parts_of_an_online_softmax_give_its_results():
    kernel, task = seeds.Kernel.parse(SOFTMAX), seeds.task("softmax_wide")
    (rewrite,) = shared(kernel, seen(task, x_stride=65535, y_stride=65535, n_cols=65535))
    assert "VEC" in rewrite.kernel.code and "online_add(" not in rewrite.kernel.code
    seeds.assert_right("softmax_wide", [kernel, rewrite.kernel], ({"PART": 8}, {"PART": 32, "LAG": 0}, {"PART": 256}))
