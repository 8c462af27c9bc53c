"""Back to front: loops that read a row again start at its end, where nothing depends on the order of the tiles."""

import edit_seeds as seeds
import pytest

from kernelsearch.propose.edits import NotApplicable, edit_named

SUM = """row = tl.program_id(0)
total = tl.zeros([BLOCK], tl.float32)
for at in tl.range(0, n_cols, BLOCK):
    cols = at + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, cols < n_cols, other=0.0)
    total += x
mean = tl.sum(total, 0) / n_cols
"""
AGAIN = """for start in tl.range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, cols < n_cols)
    tl.store(y_ptr + row * x_stride + cols, x - mean, cols < n_cols)
"""


def apply(body):
    kernel = seeds.drawn(body)
    return edit_named("walk_back").apply(kernel, seeds.facts(kernel.render()))


def test_the_second_loop_over_a_row_starts_at_its_end():
    (rewrite,) = apply(SUM + AGAIN)
    assert rewrite.kernel.code.count("- back") == 1
    assert (
        "    for back in tl.range(0, n_cols, BLOCK):\n"
        "        start = (tl.cdiv(n_cols, BLOCK) - 1) * BLOCK - back\n"
        "        cols = start + tl.arange(0, BLOCK)\n"
    ) in rewrite.kernel.code
    again = edit_named("walk_back").apply(rewrite.kernel, seeds.facts(rewrite.kernel.render()))
    assert isinstance(again, NotApplicable)


def test_of_three_loops_the_third_is_turned_and_options_stay():
    squares = AGAIN.replace("tl.store(y_ptr + row * x_stride + cols, x - mean, cols < n_cols)", "total += x * x")
    last = AGAIN.replace("BLOCK):", "BLOCK, num_stages=3):")
    (rewrite,) = apply(SUM + "total = tl.zeros([BLOCK], tl.float32)\n" + squares + "mean += tl.sum(total, 0)\n" + last)
    assert rewrite.kernel.code.count("- back") == 1
    assert "    for back in tl.range(0, n_cols, BLOCK, num_stages=3):\n" in rewrite.kernel.code


def test_a_loop_inside_one_over_rows_is_turned_too():
    lines = (SUM + AGAIN).replace("row = tl.program_id(0)\n", "").splitlines()
    (rewrite,) = apply("for row in tl.range(tl.program_id(0), 64, 8):\n" + "".join(f"    {line}\n" for line in lines))
    assert "        for back in tl.range(0, n_cols, BLOCK):\n" in rewrite.kernel.code


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x - mean", "x - mean + tl.load(y_ptr + row * x_stride + cols - BLOCK, cols >= BLOCK, other=0.0)"),
        (
            "    tl.store(y_ptr + row * x_stride + cols, x - mean",
            "    mean = mean * 0.5\n    tl.store(y_ptr + cols, mean",
        ),
        ("x - mean, cols < n_cols)\n", "x - mean, cols < n_cols)\nlast = x\ntl.store(y_ptr + row, tl.max(x, 0))\n"),
        ("for start in tl.range(0, n_cols, BLOCK)", "for start in tl.range(0, n_cols - 1, BLOCK)"),
        ("for start in tl.range(0, n_cols, BLOCK)", "for start in tl.range(BLOCK, n_cols, BLOCK)"),
        ("x = tl.load(x_ptr + row * x_stride + cols,", "x = tl.load(x_ptr + row * x_stride + cols + 1,"),
        ("x = tl.load(x_ptr", "x = tl.load(y_ptr"),
    ],
    ids=["stored before", "handed on", "left behind", "other end", "other start", "other tiles", "other rows"],
)
def test_what_depends_on_the_order_or_reads_other_tiles_stays(old, new):
    assert old in AGAIN
    assert isinstance(apply(SUM + AGAIN.replace(old, new)), NotApplicable)


@pytest.mark.parametrize(
    ("name", "looped"), [("softmax_wide", ""), ("layernorm", "tile_loop"), ("rmsnorm", "tile_loop")]
)
def test_results_stay_those_of_the_kernel(name, looped):
    kernel = seeds.variants(looped, name)[0].kernel if looped else seeds.seed(name)
    jobs = [
        {"task": name, "kernel": rewrite.kernel.render(), "config": {}}
        for rewrite in edit_named("walk_back").apply(kernel, seeds.task(name))
    ]
    assert not [a["why"] for a in seeds.ask("runner.py", jobs, interpret=True) if not a["ok"]]
