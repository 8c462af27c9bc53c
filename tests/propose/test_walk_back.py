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
        "        start_back = (tl.cdiv(n_cols, BLOCK) - 1) * BLOCK - back\n"
        "        cols = start_back + tl.arange(0, BLOCK)\n"
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


STORE = "tl.store(y_ptr + row * x_stride + cols, x - mean, cols < n_cols)"
LOAD = "tl.load(x_ptr + row * x_stride + cols, cols < n_cols)"
LOOP = "for start in tl.range(0, n_cols, BLOCK)"
ORDERED = {
    "reads what was stored": (STORE, STORE.replace("x - mean", f"x + {LOAD.replace('x_ptr', 'y_ptr')}")),
    "hands a value on": (STORE, f"mean = mean * 0.5\n    {STORE}"),
    "leaves a value": (STORE, f"{STORE}\ntl.store(y_ptr + row, tl.max(x, 0))"),
    "leaves its place": (STORE, f"{STORE}\ntl.store(y_ptr + row, start)"),
    "other end": (LOOP, LOOP.replace("n_cols", "n_cols - 1")),
    "other start": (LOOP, LOOP.replace("0, ", "BLOCK, ")),
    "other tiles": (LOAD, LOAD.replace("cols,", "cols + 1,")),
    "other rows": (LOAD, LOAD.replace("x_ptr", "y_ptr")),
    "stores to one place": (STORE, "tl.store(y_ptr + row * x_stride, tl.max(x, 0))"),
    "stores to two tiles": (STORE, STORE.replace("cols,", "cols + tl.arange(0, BLOCK),")),
    "two pointers": (STORE, STORE.replace("y_ptr + row", "tl.where(row > 1, y_ptr, x_ptr) + row")),
    "a pointer that moves": (STORE, STORE.replace("y_ptr", "moved")),
    "a ticket": (STORE, STORE.replace("cols, x", "cols, x + tl.atomic_add(y_ptr, 1)")),
    "a helper that is not known": (STORE, STORE.replace("x - mean", "something(x)")),
    "a descriptor": (STORE, f"{STORE}\n    described.store([start], x)"),
    "changes its end": (STORE, f"{STORE}\n    n_cols = n_cols // 1"),
}


def test_a_store_may_name_its_arguments():
    named = "tl.store(mask=cols < n_cols, value=x, pointer=y_ptr + row * x_stride + cols)"
    assert not isinstance(apply(SUM + AGAIN.replace(STORE, named)), NotApplicable)


@pytest.mark.parametrize("name", ORDERED)
def test_what_depends_on_the_order_or_reads_other_tiles_stays(name):
    old, new = ORDERED[name]
    assert old in AGAIN
    moved = "moved = y_ptr\nmoved += row * 0\n" if "moved" in new else ""
    assert isinstance(apply(SUM + moved + AGAIN.replace(old, new)), NotApplicable)


@pytest.mark.parametrize("read", ["    mean += tl.max(x, 0)", "    if row > 3:\n        mean += tl.max(x, 0)"])
def test_a_value_that_a_later_turn_of_an_outer_loop_reads_stays(read):
    inner = "".join(f"        {line}\n" for line in (SUM + AGAIN).replace("row = tl.program_id(0)\n", "").splitlines())
    body = (
        f"x = tl.zeros([BLOCK], tl.float32)\nmean = 0.0\nfor row in tl.range(0, 8):\n{read}\n    if row > 2:\n{inner}"
    )
    assert isinstance(apply(body), NotApplicable)
    assert not isinstance(apply(body.replace(read, "    pass")), NotApplicable)


def test_a_third_pass_finds_what_the_second_has_read_last():
    (rewrite,) = apply(SUM + AGAIN + AGAIN.replace("x - mean", "x * mean"))
    code = rewrite.kernel.code
    assert code.count("- back") == 1 and code.index("- back") < code.index("x - mean") < code.index("x * mean")


@pytest.mark.parametrize("name", ["softmax_wide", "layernorm_looped", "rmsnorm_looped"])
def test_results_stay_those_of_the_kernel(name):
    kernel = seeds.seed(name)
    jobs = [
        {"task": name, "kernel": rewrite.kernel.render(), "config": {}}
        for rewrite in edit_named("walk_back").apply(kernel, seeds.task(name))
    ]
    assert not [a["why"] for a in seeds.ask("runner.py", jobs) if not a["ok"]]
