"""Columns that slide: windows are made of whole vectors, and the results stay those of the kernel."""

from dataclasses import replace

import edit_seeds as seeds
import pytest

from kernelsearch.core.types import LaunchFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.verify import gate

CONV, SMOOTHING = seeds.seed("causal_conv"), seeds.seed("smoothing")


def apply(kernel, name="causal_conv"):
    return edit_named("sliding_columns").apply(kernel, seeds.task(name))


def changed(kernel, *pairs):
    text = kernel.render()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return Kernel.parse(text)


def judge(task, kernels, configs):
    """What is wrong with the kernels' answers in the interpreter, for each config."""
    jobs = [{"task": task, "kernel": k.render(), "exact": config} for k in kernels for config in configs]
    return [a["why"] for a in seeds.ask("runner.py", jobs, interpret=True) if not a["ok"]]


def test_vectors_are_loaded_once_and_the_results_are_right():
    (rewrite,) = apply(CONV)
    code = rewrite.kernel.code
    assert gate.check(rewrite.kernel.render()).accepted
    assert code.count("tl.load(start") == 2 and code.count("tl.load(w") == 4
    assert "left_4 = tl.load(start + (cols - 4), (cols - 4 < length) & (cols - 4 >= 0), other=0.0)" in code
    assert "here = tl.load(start + cols, cols < length, other=0.0)" in code  # no column is below 0
    assert rewrite.kernel.space["BLOCK"] == (256, 1024)  # a tile of two columns has no vector
    wrong = judge("causal_conv", [CONV, rewrite.kernel], [{"BLOCK": block} for block in (4, 8, 64)])
    assert not wrong, f"{wrong}\n{rewrite.kernel.render()}"


TURNS = """    total = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(TAPS):
        col = cols - (TAPS - 1) + k
        total += tl.load(w + k) * tl.load(start + col, mask=inside & (col >= 0), other=0.0)
"""


def test_a_loop_over_the_window_is_written_out_where_all_launches_have_one_width():
    text, task = CONV.render(), seeds.task("causal_conv")
    head, rest = text.partition("    total =")[0], text.partition("    tl.store")
    loop = Kernel.parse(
        (head + TURNS + rest[1] + rest[2]).replace("BLOCK: tl.constexpr", "TAPS: tl.constexpr, BLOCK: tl.constexpr")
    )
    edit = edit_named("sliding_columns")
    assert isinstance(edit.apply(loop, task), NotApplicable)
    seen = replace(task, traces={"timed:0": Trace("timed:0", (LaunchFact(task.sites[0], {"TAPS": 4}),))})
    (rewrite,) = edit.apply(loop, seen)
    assert "tl.static_assert(TAPS == 4)" in rewrite.kernel.code and "for " not in rewrite.kernel.code
    assert "length + cols - 4), (cols - 4 < length) & (cols - 4 >= 0), other=0.0)" in rewrite.kernel.code
    wrong = judge("causal_conv", [loop, rewrite.kernel], [{"BLOCK": 8, "TAPS": 4}])
    assert not wrong, f"{wrong}\n{rewrite.kernel.render()}"


def test_a_window_in_each_of_several_rows():
    kernel = seeds.seed("windows")
    (rewrite,) = apply(kernel, "windows")
    assert rewrite.kernel.code.count("tl.load(") == 7 and rewrite.kernel.code.count("here_2_at_") == 7
    wrong = judge("windows", [rewrite.kernel], [{"ROW": 1, "COL": 4}, {"ROW": 4, "COL": 8}])
    assert not wrong, f"{wrong}\n{rewrite.kernel.render()}"


def test_tiles_of_several_rows_between_the_bounds_of_a_row():
    (rewrite,) = apply(SMOOTHING, "smoothing")
    code = rewrite.kernel.code
    assert code.count("tl.load(") == 3 and "(col + 4 < n_cols) & line, other=low)" in code
    wrong = judge("smoothing", [rewrite.kernel], [{"ROW": 1, "COL": 4}, {"ROW": 4, "COL": 16}, {"ROW": 2, "COL": 128}])
    assert not wrong, f"{wrong}\n{rewrite.kernel.render()}"


@pytest.mark.parametrize(
    "pairs",
    [
        [("inside & (cols > 0)", "inside & (cols >= 5)")],
        [("cols = tl.program_id(1) * BLOCK +", "cols = (tl.program_id(1) - 1) * BLOCK +")],  # may be below 0
        [("+ tl.arange(0, BLOCK)", "+ 2 * tl.arange(0, BLOCK)")],
        [("start + cols", "start + 2 * cols"), ("(cols - 1)", "cols * 3")],
    ],
)
def test_other_windows_stay(pairs):
    result = apply(changed(CONV, *pairs))
    assert isinstance(result, NotApplicable) and "several shifts" in result.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("inside & (cols > 0)", "inside & (cols * cols > 0)"),
        ("start + cols - 3,", "start + cols * 2 - 3,"),
        ("mask=inside, other=0.0", "mask=inside, other=1.0"),
        ("mask=inside, other=0.0", "other=0.0"),
    ],
)
def test_a_load_that_is_none_of_the_window_stays_as_it_is(old, new):
    (rewrite,) = apply(changed(CONV, (old, new)))
    line = next(line for line in CONV.code.splitlines() if old in line).replace(old, new)
    assert line[line.index("tl.load(start") :] in rewrite.kernel.code and rewrite.kernel.code.count("tl.split(") == 6


REFUSED = {
    "a store has no mask": [("total, mask=inside)", "total, mask=cols < length + 1)")],
    "decides what else is": [("total, mask=inside)", "total, mask=inside & (total > 0))")],
    "sum may combine": [("total, mask=inside)", "total - tl.sum(total, 0), mask=inside)")],
    "a branch or a helper": [("    tl.store(", "    if row > 2:\n        total += 1.0\n    tl.store(")],
}


@pytest.mark.parametrize("why", REFUSED)
def test_columns_beyond_the_tile_must_not_matter(why):
    result = apply(changed(CONV, *REFUSED[why]))
    assert isinstance(result, NotApplicable) and why in result.reason


def test_a_store_between_the_loads_keeps_them():
    store = "    tl.store(y_ptr + row.to(tl.int64) * length + cols, total, mask=inside)\n    total += tl.load(w + 3)"
    result = apply(changed(CONV, ("    total += tl.load(w + 3)", store)))
    assert isinstance(result, NotApplicable)


VALID = """row = tl.program_id(0)
cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
inside = cols < n_cols
total = tl.load(x_ptr + row * x_stride + cols, inside)
total += tl.load(x_ptr + row * x_stride + cols + 1, inside)
total += tl.load(x_ptr + row * x_stride + cols + 2, inside)
total += tl.load(x_ptr + row * x_stride + cols + 3, inside)
tl.store(y_ptr + row * n_cols + cols, total, inside)
"""


def test_what_tiles_alone_say_bounds_the_vectors():
    """Without padding a window begins at its column, and ends with what the tile's last column asks for."""
    (rewrite,) = apply(seeds.drawn(VALID))
    assert "here = tl.load(x_ptr + (row * x_stride + cols), cols < n_cols + 3)" in rewrite.kernel.code
    assert "right_4 = tl.load(x_ptr + (row * x_stride + cols + 4), cols + 4 < n_cols + 3)" in rewrite.kernel.code
    (later,) = apply(seeds.drawn(VALID.replace("cols < n_cols", "(cols < n_cols) & (cols >= 8)")))
    assert "cols + 4), (cols + 4 < n_cols + 3) & (cols + 4 >= 8))" in later.kernel.code
    before = VALID.replace("x_stride + cols,", "x_stride + cols + 4,").replace("+ cols + 3", "+ cols + 5")
    assert isinstance(apply(seeds.drawn(before)), NotApplicable)  # the first vector would begin before the window
