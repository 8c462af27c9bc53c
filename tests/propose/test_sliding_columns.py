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


def test_vectors_are_loaded_once_and_the_results_are_right():
    (rewrite,) = apply(CONV)
    code = rewrite.kernel.code
    assert gate.check(rewrite.kernel.render()).accepted
    assert code.count("tl.load(start") == 2 and code.count("tl.load(w") == 4
    assert "left_4 = tl.load(start + cols - 4, (cols - 4 < length) & (cols - 4 >= 0), other=0.0)" in code
    assert "here = tl.load(start + cols, cols < length, other=0.0)" in code  # no column is below 0
    assert rewrite.kernel.space["BLOCK"] == (256, 1024)  # a tile of two columns has no vector
    seeds.assert_right("causal_conv", [CONV, rewrite.kernel], [{"BLOCK": block} for block in (4, 8, 64)])


def test_a_masked_load_of_a_scalar_is_no_window():
    first = "    w = w_ptr + row % channels * 4\n"
    scale = "    w += tl.load(w_ptr, mask=row < channels, other=0).to(tl.int32)\n"
    assert isinstance(apply(seeds.changed(CONV, (first, first + scale))), list)


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
    assert "length + cols - 4, (cols - 4 < length) & (cols - 4 >= 0), other=0.0)" in rewrite.kernel.code
    seeds.assert_right("causal_conv", [loop, rewrite.kernel], [{"BLOCK": 8, "TAPS": 4}])


def test_a_window_in_each_of_several_rows():
    kernel = seeds.seed("windows")
    (rewrite,) = apply(kernel, "windows")
    assert rewrite.kernel.code.count("tl.load(") == 7 and rewrite.kernel.code.count("here_2_at_") == 7
    seeds.assert_right("windows", [rewrite.kernel], [{"ROW": 1, "COL": 4}, {"ROW": 4, "COL": 8}])


def test_tiles_of_several_rows_between_the_bounds_of_a_row():
    (rewrite,) = apply(SMOOTHING, "smoothing")
    code = rewrite.kernel.code
    assert code.count("tl.load(") == 3 and "(col + 4 < n_cols) & line, other=low)" in code
    seeds.assert_right(
        "smoothing", [rewrite.kernel], [{"ROW": 1, "COL": 4}, {"ROW": 4, "COL": 16}, {"ROW": 2, "COL": 128}]
    )


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
    result = apply(seeds.changed(CONV, *pairs))
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
    (rewrite,) = apply(seeds.changed(CONV, (old, new)))
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
    result = apply(seeds.changed(CONV, *REFUSED[why]))
    assert isinstance(result, NotApplicable) and why in result.reason


def test_a_store_between_the_loads_keeps_them():
    store = "    tl.store(y_ptr + row.to(tl.int64) * length + cols, total, mask=inside)\n    total += tl.load(w + 3)"
    result = apply(seeds.changed(CONV, ("    total += tl.load(w + 3)", store)))
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
    assert "= tl.load(x_ptr + row * x_stride + cols, (cols < n_cols + 3) & (n_cols > 0))" in rewrite.kernel.code
    assert "x_stride + cols + 4, (cols + 4 < n_cols + 3) & (n_cols > 0))" in rewrite.kernel.code
    (later,) = apply(seeds.drawn(VALID.replace("cols < n_cols", "(cols < n_cols) & (cols >= 8)")))
    assert "cols + 4, (cols + 4 < n_cols + 3) & (cols + 4 >= 8) & (n_cols > 0))" in later.kernel.code
    before = VALID.replace("x_stride + cols,", "x_stride + cols + 4,").replace("+ cols + 3", "+ cols + 5")
    assert isinstance(apply(seeds.drawn(before)), NotApplicable)  # the first vector would begin before the window


def drawn(load="x_ptr + row * x_stride + cols", mask="inside", before="", other="0.0", after="", store="inside"):
    """A window of loads at columns + 0 to + 3; `{s}` stands for the shift."""
    lines = [
        "row = tl.program_id(0)",
        "cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "inside = cols < n_cols",
    ]
    lines += [*before.splitlines(), "total = tl.zeros([BLOCK], tl.float32)"]
    lines += [f"total += tl.load({load} + {s}, {mask}, other={other})".replace("{s}", str(s)) for s in range(4)]
    return seeds.drawn(
        "\n".join([*lines, *after.splitlines(), f"tl.store(y_ptr + row * n_cols + cols, total, {store})"])
    )


ALONE = {
    "an address that varies along the row": dict(load="x_ptr + cols // 5 * 3 + cols"),
    "a pointer that does": dict(before="p = x_ptr + cols // 5 * 3", load="p + cols"),
    "what varies without the columns": dict(before="lane = tl.arange(0, BLOCK)", load="x_ptr + lane * x_stride + cols"),
    "an address that is assigned twice": dict(before="at = row\nat += cols", load="x_ptr + at + cols"),
    "a condition of each column": dict(before="odd = cols < n_cols\nodd &= cols % 3 != 1", mask="odd & inside"),
    "a condition that is loaded": dict(before="k = tl.load(y_ptr + cols, inside) > 0", mask="k & inside"),
    "a halo": dict(before="lane = tl.arange(0, BLOCK)", mask="(lane < x_stride) & inside"),
    "a limit that varies": dict(before="end = n_cols + row\nend = end - cols", mask="(cols < end) & inside"),
    "a limit that is no whole number": dict(mask="inside & (cols <= (n_cols - 1) / 2)"),
    "other values of a tile": dict(before="edge = tl.load(y_ptr + cols, inside)", other="edge"),
    "other values that change": dict(before="low = 0.0\nlow += 1.0", other="low"),
    "an address that is loaded": dict(load="x_ptr + tl.load(y_ptr + row) + cols"),
    "a bound of then": dict(before="end = n_cols // 2", mask="cols < end", after="end = n_cols", store="cols < end"),
    "columns that become rows": dict(after="total = tl.sum(total[:, None] * total[None, :], 1)"),
    "a square that is turned": dict(after="total += total.T"),
    "a condition": dict(load="x_ptr + cols", after="total += total if row > 0 else 0.0", store="total > 0"),
}  # fmt: skip


def test_an_address_in_another_order_is_read_too():
    assert "x_ptr + cols - row" in apply(drawn(load="-row + x_ptr + cols"))[0].kernel.code


@pytest.mark.parametrize("name", ALONE)
def test_what_a_column_does_not_share_with_the_next_is_left_alone(name):
    assert isinstance(apply(drawn(**ALONE[name])), NotApplicable)
    assert not isinstance(apply(drawn()), NotApplicable)


def test_no_vector_begins_before_all_that_is_asked_for():
    loose = drawn(load="x_ptr + row * x_stride + cols + 2", mask="inside & (cols + {s} >= -48)")
    assert "right_4 = " in apply(loose)[0].kernel.code and "(cols >= 2)" in apply(loose)[0].kernel.code
    below = Kernel.parse(loose.render().replace("* BLOCK + tl.arange", "* BLOCK - 2 + tl.arange"))
    assert isinstance(apply(below), NotApplicable)


def test_a_load_under_a_condition_is_not_done_before_it():
    loads = [f"tl.load(x_ptr + row * x_stride + cols + {s}, inside, other=0.0)" for s in range(4)]
    kernel = seeds.changed(drawn(), *((load, f"{load} if row > 0 else 0.0") for load in loads))
    assert isinstance(apply(kernel), NotApplicable)


def test_a_mask_of_more_than_the_address_has_is_left_alone():
    body = """row = tl.program_id(0) * ROW + tl.arange(0, ROW)[:, None]
cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
there = (row < x_stride) & (cols < n_cols)
total = tl.load(x_ptr + cols, there) + tl.load(x_ptr + cols + 1, there) + tl.load(x_ptr + cols + 2, there)
tl.store(y_ptr + row * n_cols + cols, total, there)
"""
    params = "x_ptr, y_ptr, x_stride, n_cols, ROW: tl.constexpr, BLOCK: tl.constexpr"
    assert isinstance(apply(seeds.drawn(body, params)), NotApplicable)
    assert not isinstance(apply(seeds.drawn(body.replace("x_ptr +", "x_ptr + row * n_cols +"), params)), NotApplicable)


@pytest.mark.parametrize(
    ("passed", "bounded"), [({"n_cols": 61, "x_stride": 64}, False), ({"n_cols": 50, "x_stride": 64}, True), ({}, True)]
)
def test_rows_bound_vectors_alone_where_every_launch_asks_for_all_of_them(passed, bounded):
    """A bound of what is asked for, which no vector divides, would have them loaded element by element."""
    task = seeds.task("causal_conv")
    launch = LaunchFact(task.sites[0], passed)
    if passed:
        task = replace(task, traces={"timed:0": Trace("timed:0", (launch,))})
    kernel = Kernel.parse(
        drawn(mask="inside & (cols + {s} < x_stride)").render().replace("drawn_kernel", "causal_conv_kernel")
    )
    (rewrite,) = edit_named("sliding_columns").apply(kernel, task)
    assert "(cols + 4 < x_stride)" in rewrite.kernel.code or "cols + 4 < x_stride, " in rewrite.kernel.code
    assert ("cols + 4 < n_cols + 3" in rewrite.kernel.code) is bounded


@pytest.mark.parametrize("width", [2, 4])
def test_tiles_narrower_than_a_vector_that_nobody_tunes_are_left_alone(width):
    task = replace(seeds.task("causal_conv"), space={})
    task = replace(task, traces={"timed:0": Trace("timed:0", (LaunchFact(task.sites[0], {"BLOCK": width}),))})
    assert isinstance(edit_named("sliding_columns").apply(CONV, task), NotApplicable) is (width == 2)
