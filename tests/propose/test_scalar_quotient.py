"""Scalar quotients: a tile in one channel divides once, and the results stay those of the kernel."""

from dataclasses import replace

import edit_seeds as seeds
import pytest

from kernelsearch.core.types import LaunchFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.verify import gate

SEED = seeds.seed("channel_weights")


def apply(*pairs, columns=None):
    """The edit of the seed with other texts; columns is what its launcher passed, if that was seen."""
    text, task = SEED.render(), seeds.task("channel_weights")
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    if columns:
        task = replace(task, traces={"timed:0": Trace("timed:0", (LaunchFact(task.sites[0], {"columns": columns}),))})
    return edit_named("scalar_quotient").apply(Kernel.parse(text), task)


def judge(kernel, blocks=(8, 16, 64)):
    """What is wrong with the kernel's answers in the interpreter, for tiles of each width."""
    jobs = [{"task": "channel_weights", "kernel": kernel.render(), "exact": {"BLOCK": block}} for block in blocks]
    return [a["why"] for a in seeds.ask("runner.py", jobs, interpret=True) if not a["ok"]]


def test_a_tile_in_one_channel_divides_once_and_the_results_are_right():
    (rewrite,) = apply()
    assert gate.check(rewrite.kernel.render()).accepted
    head, _, branches = rewrite.kernel.code.partition("        if at - group * columns + BLOCK <= columns:\n")
    inner, _, outer = branches.partition("        else:\n")
    assert head.rstrip().endswith("group = at // columns") and "//" not in inner and "index // columns" in outer
    assert "tl.load(w_ptr + channel_in, mask=at < n_cols, other=0.0)" in inner
    assert (
        "tl.load(b_ptr + channel_in, at < n_cols)" in inner
        and "tl.load(x_ptr + row * n_cols + index, inside_in" in inner
    )
    assert not judge(rewrite.kernel), rewrite.kernel.render()
    assert isinstance(edit_named("scalar_quotient").apply(rewrite.kernel, seeds.task("channel_weights")), NotApplicable)


def test_the_place_in_the_channel_needs_no_division_either():
    place = "        place = index % columns\n        tl.store(y_ptr + row * n_cols + index, "
    (rewrite,) = apply(
        ("        tl.store(y_ptr + row * n_cols + index, ", place), ("x * weight", "x * weight + 0 * place")
    )
    assert "place_in = index - group * columns" in rewrite.kernel.code
    assert not judge(rewrite.kernel), rewrite.kernel.render()


def test_tiles_of_programs_without_a_loop():
    loop = "    for at in tl.range(0, n_cols, BLOCK):\n"
    body = SEED.code.partition(loop)[2].replace("        ", "    ")
    text = SEED.render().partition(loop)[0] + "    at = tl.program_id(1) * BLOCK\n" + body
    (rewrite,) = edit_named("scalar_quotient").apply(Kernel.parse(text), seeds.task("channel_weights"))
    assert "    group = at // columns\n    if at - group * columns + BLOCK <= columns:\n" in rewrite.kernel.code


@pytest.mark.parametrize(("columns", "applies"), [(16384, True), (49, False)])
def test_short_channels_are_left_alone(columns, applies):
    assert isinstance(apply(columns=columns), NotApplicable) is not applies


LEFT = {
    "the channel is no quotient by a parameter": [("index // columns", "index // (columns + 1)")],
    "columns are not neighbours": [("at + tl.arange", "at + 2 * tl.arange")],
    "weights are read by column too": [("w_ptr + channel", "w_ptr + channel + index"),
                                       ("b_ptr + channel", "b_ptr + index")],
    "a mask of something else": [("w_ptr + channel, mask=inside", "w_ptr + channel, mask=x > 0"),
                                 ("b_ptr + channel, inside", "b_ptr + channel, x > 0")],
    "a parameter that changes": [("    row =", "    columns += 1\n    row =")],
    "columns of their own old name": [("        index = at + tl.arange(0, BLOCK)\n",
                                       "        index = at\n        index = index + tl.arange(0, BLOCK)\n")],
    "columns of 64 bits": [("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK).to(tl.int64)")],
    "lanes in the address": [("        index =", "        lane = tl.arange(0, BLOCK)\n        index ="),
                             ("w_ptr + channel", "w_ptr + channel + lane"),
                             ("b_ptr + channel", "b_ptr + channel + lane")],
    "lanes in the mask": [("        index =", "        lane = tl.arange(0, BLOCK)\n        index ="),
                          ("channel, mask=inside", "channel, mask=inside & (lane > 2)"),
                          ("channel, inside", "channel, inside & (lane > 2)")],
    "another value of each column": [("other=0.0)\n        shift", "other=x)\n        shift"),
                                     ("b_ptr + channel, inside", "b_ptr + channel, inside, x")],
    "no address by its place": [("w_ptr + channel, mask", "pointer=w_ptr + channel, mask"),
                                ("b_ptr + channel", "b_ptr + index")],
    "a branch": [("        tl.store", "        if row > 1:\n            x += 1.0\n        tl.store")],
}  # fmt: skip


def test_columns_that_may_be_below_0_are_asked():
    """A quotient is rounded towards 0: -47 and -25 are in two groups of 24."""
    (rewrite,) = apply(
        ("tl.range(0, n_cols, BLOCK)", "tl.range(-64, n_cols, BLOCK)"),
        ("inside = index < n_cols", "inside = index < n_cols"),
    )
    assert "if (at >= 0) & (at - group * columns + BLOCK <= columns):" in rewrite.kernel.code


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_groups_load_is_left_alone(name):
    result = apply(*LEFT[name])
    assert isinstance(result, NotApplicable) and "by nothing but its quotient" in result.reason


REFUSED = {
    "a store has no mask": [("x * weight + shift, inside)", "x * weight + shift)")],
    "has a value before": [("    row =", "    total = 0.0\n    row ="),
                           ("        tl.store", "        total += x\n        tl.store")],
    "a store is of the group": [("        tl.store",
                                 "        tl.store(w_ptr + channel, weight, inside)\n        tl.store")],
    "atomic_add may need a tile": [("        tl.store",
                                    "        tl.atomic_add(w_ptr + index, weight)\n        tl.store")],
    "max_constancy may need a tile": [("index // columns", "tl.max_constancy(index // columns, [16])")],
    "a condition may need a tile": [("x * weight", "x * (weight if row > 0 else x)")],
    "another axis": [("x * weight", "x * weight[None, :]")],
    "each element of a tile by itself": [("x * weight", "x * tl.sum(weight)")],
    "decides what else is": [("x * weight + shift, inside)", "x * weight + shift, inside & (weight > 0))")],
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_columns_beyond_the_end_must_not_matter(why):
    result = apply(*REFUSED[why])
    assert isinstance(result, NotApplicable) and why in result.reason
