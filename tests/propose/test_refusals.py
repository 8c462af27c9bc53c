"""Edits say no where a rewrite would be wrong: one kernel per trap, and the nearest one where it is right."""

from __future__ import annotations

from dataclasses import replace

import edit_seeds as seeds
import pytest

from kernelsearch.core.types import LaunchFact, TensorFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import NotApplicable, edit_named

ROW = """
row = tl.program_id(0)
cols = tl.arange(0, BLOCK)
mask = cols < n_cols
x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other={other})
total = tl.{reduce}({value}, axis=0)
tl.store({out} + cols, x * total, mask=mask)
"""
OUT = "y_ptr + row * x_stride"


def apply(edit: str, kernel: Kernel):
    return edit_named(edit).apply(kernel, seeds.facts(kernel.render()))


LOOP = """
row = tl.program_id(0)
acc = {start}
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0)
    {update}
tl.store(y_ptr + row, acc)
"""


@pytest.mark.parametrize(
    ("edit", "start", "update", "applies"),
    [
        ("lane_accumulator", "0.0", "acc += tl.sum(x, axis=0)", True),
        ("lane_accumulator", "0.0", "acc = acc + tl.sum(x)", True),
        ("lane_accumulator", "0", "acc += tl.sum(x, axis=0)", False),  # an integer accumulator
        ("lane_accumulator", "0.0", "acc = acc * 0.5 + tl.sum(x, axis=0)", False),
        ("lane_accumulator", "0.0", "acc -= tl.sum(x, axis=0)", False),
        ("split_reduction", "0.0", "acc += tl.sum(x, axis=0)", True),
        ("split_reduction", "1.0", "acc += tl.sum(x, axis=0)", False),  # would be counted in every part
        ("split_reduction", "0.0", "acc = tl.maximum(acc, tl.max(x))", False),  # 0 is no identity of max
        ("split_reduction", "float('-inf')", "acc = tl.maximum(acc, tl.max(x))", True),
        ("split_reduction", "0.0", "acc = acc * 0.5 + tl.sum(x, axis=0)", False),
        ("align_rows", "0.0", "acc += tl.sum(x, axis=0)", True),
        ("align_rows", "0.0", "acc += tl.sum(x + 1.0, axis=0)", False),  # a head tile would count twice
        ("align_rows", "float('-inf')", "acc = tl.maximum(acc, tl.max(x))", False),
    ],
)
def test_accumulators(edit, start, update, applies):
    kernel = seeds.drawn(LOOP.format(start=start, update=update))
    assert isinstance(apply(edit, kernel), list) == applies


@pytest.mark.parametrize(("value", "applies"), [("0.0", True), ("1.0", False)])
def test_constants_of_the_file_are_seen_through(value, applies):
    kernel = seeds.drawn(LOOP.format(start="START", update="acc += tl.sum(x, axis=0)"))
    kernel = kernel.with_changes(constants=(f"START = tl.constexpr({value})",))
    assert isinstance(apply("split_reduction", kernel), list) == applies
    shadowed = seeds.drawn(
        LOOP.format(start="START", update="acc += tl.sum(x, axis=0)").replace("row =", "START = row =")
    )
    assert isinstance(apply("split_reduction", shadowed.with_changes(constants=kernel.constants)), NotApplicable)


def test_split_reduction_refuses_pointers_that_walk():
    body = LOOP.format(start="0.0", update="acc += tl.sum(x, axis=0)\n    x_ptr += BLOCK")
    assert isinstance(apply("split_reduction", seeds.drawn(body)), NotApplicable)


def test_persistent_copies_a_parameter_that_the_body_changes():
    """`x_ptr += ...` in a body that runs twice would walk on: the copy must be made in every iteration."""
    body = "row = tl.program_id(0)\nx_ptr += row * x_stride\n" + ROW.format(
        other="0.0", reduce="sum", value="x", out=OUT
    ).replace("x_ptr + row * x_stride + cols", "x_ptr + cols").replace("row = tl.program_id(0)\n", "")
    (variant,) = apply("persistent", seeds.drawn(body))
    text = variant.kernel.functions[0].text
    loop = text.index("for ")
    assert text.index("x_ptr_here = x_ptr") > loop and "x_ptr +=" not in text


def test_early_return_is_refused():
    plain = ROW.format(other="0.0", reduce="sum", value="x", out=OUT)
    kernel = seeds.drawn("row = tl.program_id(0)\nif row > 3:\n    return\n" + plain)
    assert "returns" in apply("persistent", kernel).reason


def test_early_loads_do_not_pass_a_store():
    body = """
cols = tl.arange(0, BLOCK)
x = tl.load(x_ptr + cols)
total = tl.sum(x, axis=0)
{between}
b = tl.load(x_ptr + BLOCK + cols)
tl.store(y_ptr + cols, b * total)
"""
    assert isinstance(apply("early_loads", seeds.drawn(body.format(between="half = total * 0.5"))), list)
    stored = seeds.drawn(body.format(between="tl.store(x_ptr + cols, x)"))
    assert isinstance(apply("early_loads", stored), NotApplicable)


ONLINE = """
row = tl.program_id(0)
top = -float("inf")
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=-float("inf"))
    top = tl.maximum(top, tl.max({first}, axis=0))
total = 0.0
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    z = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=-float("inf"))
    total += tl.sum({second}, axis=0)
tl.store(y_ptr + row, tl.log(total) + top)
"""


@pytest.mark.parametrize(
    ("first", "second", "applies"),
    [
        ("x", "tl.exp(z - top)", True),
        ("x", "tl.exp(z * 2.0 - top)", False),  # another block than the maximum's
        ("x", "z * tl.exp(z - top)", False),
        ("x", "tl.exp(top - z)", False),
        ("x * x_stride", "tl.exp(z * x_stride - top)", True),
    ],
)
def test_online_needs_the_same_block(first, second, applies):
    kernel = seeds.drawn(ONLINE.format(first=first, second=second))
    result = apply("online", kernel)
    assert isinstance(result, list) == applies
    assert not applies or [("tl.reshape(" in r.kernel.code, "GROUP" in r.kernel.space) for r in result] == [
        (True, True), (False, False),
    ]  # fmt: skip


def test_online_keeps_an_axis_by_position_before_keywords():
    text = ONLINE.format(first="x", second="tl.exp(z - top)").replace(", axis=0)", ", 0, keep_dims=False)")
    for lanes in apply("online", seeds.drawn(text)):
        assert "tl.max(top_lanes, 0, keep_dims=False)" in lanes.kernel.code


def test_grouping_is_not_applied_twice():
    (once,) = edit_named("grouped_order").apply(seeds.seed("matmul"), seeds.task("matmul"))
    again = edit_named("grouped_order").apply(once.kernel, seeds.task("matmul"))
    assert isinstance(again, NotApplicable)


def test_stages_of_a_split_are_not_split_again():
    (once,) = edit_named("split_reduction").apply(seeds.seed("matmul"), seeds.task("matmul"))
    assert once.kernel.launches == {"matmul_kernel": ("matmul_kernel_partial", "matmul_kernel")}
    assert isinstance(edit_named("split_reduction").apply(once.kernel, seeds.task("matmul")), NotApplicable)


def test_tf32_only_where_the_task_allows_it():
    task = seeds.task("matmul")
    assert "ieee" in edit_named("dot_precision").apply(seeds.seed("matmul"), task).reason
    (variant,) = edit_named("dot_precision").apply(seeds.seed("matmul"), replace(task, precision="tf32"))
    assert 'input_precision="tf32"' in variant.kernel.code


@pytest.mark.parametrize(
    ("body", "applies"),
    [
        ("return i * 2", True),
        ("return i + tl.program_id(0)", True),
        ("if i > 2:\n        return i\n    return i + tl.program_id(0)", False),  # it cannot be inlined
    ],
)
def test_persistent_looks_into_helpers(body, applies):
    helper = f"@triton.jit\ndef helper(i):\n    {body}\n\n\n"
    kernel = seeds.drawn("row = tl.program_id(0)\ntl.store(y_ptr + helper(row), 1.0)")
    both = Kernel.parse(kernel.render().replace("@triton.jit", helper + "@triton.jit"))
    assert both.entries == ("drawn_kernel",)
    made = apply("persistent", both)
    assert isinstance(made, list) == applies
    for rewrite in made if applies else ():
        text = rewrite.kernel.function("drawn_kernel").text  # each program id that is left is the loop's start
        assert rewrite.kernel.entries == ("drawn_kernel",) and text.count("tl.program_id(0)") == 1


TILE = """
rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
cols = tl.arange(0, BLOCK)
mask = {mask}
x = tl.load(x_ptr + {offset}rows[:, None] * x_stride + cols[None, :], mask=mask, other={other})
tl.store(y_ptr + {offset}rows[:, None] * x_stride + cols[None, :], x + 1.0, mask=mask)
"""


VARLEN = """
begin = tl.load(n_ptr + tl.program_id(1)){cast}
rows = begin + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
cols = tl.arange(0, BLOCK)
mask = (rows[:, None] < n_cols) & (cols[None, :] < n_cols)
x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0)
tl.store(y_ptr + rows[:, None] * x_stride + cols[None, :], x + 1.0, mask=mask)
"""


@pytest.mark.parametrize(
    ("cast", "ints", "given", "made"),
    [
        ("", "i32", "fp32", True),
        (".to(tl.int64)", "i32", "fp32", False),  # the hardware's coordinates have 32 bits
        ("", "i64", "fp32", False),
        ("\nfor begin in range(begin, begin + 2):\n    pass", "i64", "fp32", False),  # a loop counts in what bounds it
        ("", "i32", None, False),  # nobody can ask where None is
    ],
)
def test_descriptors_where_the_launches_allow_them(cast, ints, given, made):
    params = "x_ptr, y_ptr, n_ptr, x_stride, n_cols, BLOCK: tl.constexpr"
    kernel = seeds.drawn(VARLEN.format(cast=cast), params)
    passed = {
        "x_ptr": TensorFact(given, (64, 64), (64, 1)) if given else None,
        "y_ptr": TensorFact("fp32", (64, 64), (64, 1)),
        "n_ptr": TensorFact(ints, (8,), (1,)),
        "x_stride": 64,
        "n_cols": 64,
        "BLOCK": 16,
    }
    trace = Trace("timed:0", (LaunchFact("drawn_kernel", passed),))
    task = replace(seeds.facts(kernel.render()), traces={"timed:0": trace})
    assert isinstance(edit_named("tensor_descriptor").apply(kernel, task), list) is made


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({}, "aligned(x_ptr) and x_stride % 16 == 0 and BLOCK >= 16"),
        ({"offset": "7 * x_stride + "}, "aligned(x_ptr) and x_stride % 16 == 0 and BLOCK >= 16"),
        ({"offset": "7 + "}, None),  # another alignment than the base's
        ({"other": "1.0"}, None),  # the hardware fills with zeros
        ({"mask": "rows[:, None] < n_cols"}, "aligned(x_ptr) and x_stride % 16 == 0 and BLOCK >= 16"),
        ({"mask": "cols[None, :] < n_cols"}, None),  # the rows have no bound
        ({"mask": "(rows[:, None] < n_cols) & (cols[None, :] > 2)"}, None),
        ({"mask": "(rows[:, None] < n_cols) & (cols[None, :] + 1 < n_cols)"}, None),
    ],
)
def test_descriptors_where_a_mask_is_the_matrix_end(fields, condition):
    usual = {"mask": "(rows[:, None] < n_cols) & (cols[None, :] < n_cols)", "offset": "", "other": "0.0"}
    result = apply("tensor_descriptor", seeds.drawn(TILE.format(**{**usual, **fields})))
    if condition is None:
        assert isinstance(result, NotApplicable)
        return
    loads, both, *hosted = result
    assert loads.kernel.args == {"drawn_kernel": {"X_TMA": condition}}
    assert both.kernel.args == {"drawn_kernel": {"X_TMA": condition, "Y_TMA": condition.replace("x_ptr", "y_ptr")}}
    assert "tl.store" in loads.kernel.code
    assert "y_tiles.store([tl.program_id(0) * BLOCK, 0], (x + 1.0)" in both.kernel.code
    if fields.get("offset"):  # the launch has no tensor that begins there
        assert not hosted
        return
    of_x = ("x_ptr", f"(n_cols, {'n_cols' if not fields else 'BLOCK'})", "(x_stride, 1)", "(BLOCK, BLOCK)", None)
    assert [r.kernel.descriptors for r in hosted] == [
        {"x_tiles": of_x}, {"x_tiles": of_x, "y_tiles": ("y_ptr", *of_x[1:])}]  # fmt: skip
    for plain, host in zip((loads, both), hosted, strict=True):
        assert host.kernel.args == plain.kernel.args and "make_tensor_descriptor" not in host.kernel.code
        assert set(host.kernel.descriptors) <= set(host.kernel.function("drawn_kernel").params)
        assert isinstance(apply("tensor_descriptor", host.kernel), NotApplicable)


def test_descriptors_take_the_axis_of_unit_stride_last():
    """linear_gelu's weights are (N, K): the launcher passes 1 as the stride along K."""
    task = seeds.task("linear_gelu")
    passed = LaunchFact("linear_gelu_kernel", {"stride_wk": 1, "stride_wn": 64, "stride_xk": 1, "stride_xm": 64})
    task = replace(task, traces={"timed:0": Trace("timed:0", (passed,))})
    loads, _, hosted, _ = edit_named("tensor_descriptor").apply(seeds.seed("linear_gelu"), task)
    assert "[N, K], [stride_wn, 1], [BLOCK_N, BLOCK_K])" in loads.kernel.code
    for kernel in (loads.kernel, hosted.kernel):
        assert "w = tl.trans(weight_tiles.load([pid_n * BLOCK_N, start]))" in kernel.code
    assert hosted.kernel.descriptors["weight_tiles"][1:4] == ("(N, K)", "(stride_wn, 1)", "(BLOCK_N, BLOCK_K)")


LENGTH = """
cols = tl.arange(0, BLOCK)
x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0)
{line}
tl.store(y_ptr + cols, x * part, mask=cols < n_cols)
"""


@pytest.mark.parametrize(
    ("line", "passed", "applies"),
    [
        ("part = n_cols // 2", 1000, True),
        ("part = (n_cols - 1) // 2", 1000, False),  # of a negative number the compiler and Python round differently
        ("part = n_cols.to(tl.float32)", 1000, False),  # a number has no method
        ("part = tl.load(y_ptr).to(tl.int8) * n_cols", 1000, False),  # the product would have 8 bits
        ("n_cols = n_cols + 1\npart = n_cols", 1000, False),
        ("part = n_cols", 2.5, False),  # a threshold, no length
    ],
)
def test_constant_sizes_keeps_the_arithmetic(line, passed, applies):
    kernel = seeds.drawn(LENGTH.format(line=line))
    launch = LaunchFact(kernel.entries[0], {"n_cols": passed})
    facts = replace(seeds.facts(kernel.render()), traces={"timed:0": Trace("timed:0", (launch,))})
    result = edit_named("constant_sizes").apply(kernel, facts)
    assert isinstance(result, list) == applies
    if applies:
        assert result[0].kernel.functions[0].constexprs == ("n_cols", "BLOCK")
        if "//" in line:  # Triton takes no constexpr in that list
            flagged = kernel.render().replace(
                "@triton.jit\n", "@triton.jit(do_not_specialize=['x_stride', 'n_cols', 3])\n"
            )
            (change,) = edit_named("constant_sizes").apply(Kernel.parse(flagged), facts)
            assert "@triton.jit(do_not_specialize=['x_stride'])\n" in change.kernel.render()


ROWS_ONLINE = """
row = tl.program_id(0)
m = float("-inf")
s = 0.0
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
    new = tl.maximum(m, tl.max(x, axis=0))
    {step}
    m = new
tl.store(y_ptr + row, m + tl.log(s))
"""


@pytest.mark.parametrize(
    ("step", "applies"),
    [
        ("s = s * tl.exp(m - new) + tl.sum(tl.exp(x - new), axis=0)", True),
        ("s = s * tl.exp2((m - new) * 1.44) + tl.sum(tl.exp2((x - new) * 1.44), axis=0)", True),
        ("s = s * tl.exp(m - new) + tl.sum(tl.exp(x - new) + 1.0, axis=0)", False),  # idle lanes would count
        ("s = s * tl.exp(m - new - 1.0) + tl.sum(tl.exp(x - new), axis=0)", False),  # a tile more would shrink it
        ("s = s * 0.5 + tl.sum(tl.exp(x - new), axis=0)", False),
    ],
)
def test_an_online_sum_is_aligned_if_idle_lanes_leave_it(step, applies):
    assert isinstance(apply("align_rows", seeds.drawn(ROWS_ONLINE.format(step=step))), list) == applies


@pytest.mark.parametrize(
    "step",
    [
        "a = tl.sum(tl.reshape(x, [BLOCK // 4, 4]), axis=1)\n    s += tl.sum(a * a, axis=0)",
        "phases += tl.sum(tl.reshape(x, [BLOCK // 4, 4]), axis=0)",
        "a = tl.max(tl.reshape(x, [4, BLOCK // 4]), axis=1)\n    s += tl.sum(a, axis=0)",
        "t = tl.sum(x, axis=0)\n    s += tl.sum(x * t, axis=0)",
    ],
)
def test_what_depends_on_where_a_tile_begins_is_not_aligned(step):
    """Groups of neighbours, phases and sums of a tile are others where tiles begin elsewhere or are wider."""
    text = ROWS_ONLINE.replace("    new = tl.maximum(m, tl.max(x, axis=0))\n", "").replace("    m = new\n", "")
    text = text.replace('other=float("-inf")', "other=0.0").replace(
        "s = 0.0", "s = 0.0\nphases = tl.zeros([4], tl.float32)"
    )
    text = text.replace("m + tl.log(s)", "s + tl.sum(phases, axis=0)")
    for edit in ("align_rows", "share_rows"):
        assert isinstance(apply(edit, seeds.drawn(text.format(step=step))), NotApplicable)
    assert isinstance(apply("align_rows", seeds.drawn(text.format(step="s += tl.sum(x, axis=0)"))), list)


def test_a_tile_may_be_smaller_than_a_group():
    grouped = [r.kernel for r in seeds.variants("online", "softmax_wide") if "GROUP" in r.kernel.space]
    assert grouped
    seeds.assert_right("softmax_wide", grouped, ({"BLOCK": 8, "GROUP": 16}, {"BLOCK": 1}, {"BLOCK": 16, "GROUP": 16}))


def test_all_loops_of_an_online_softmax_are_aligned():
    task = seeds.task("softmax_wide")
    for online in seeds.variants("online", "softmax_wide"):
        (aligned,) = edit_named("align_rows").apply(online.kernel, task)
        assert "tl.load(x_base" in aligned.kernel.code and "tl.load(x_row" not in aligned.kernel.code


GROUPS = """
group = tl.program_id(0)
count = tl.num_programs(0)
cols = tl.arange(0, BLOCK)
scale = tl.load(x_ptr + group)
scale = 1.0 if scale == 0.0 else {other}
x = tl.load(x_ptr + count + group * x_stride + cols, mask=cols < n_cols, other=0.0)
tl.store(y_ptr + group * x_stride + cols, x / scale, mask=cols < n_cols)
"""


def test_rows_2d_knows_how_many_programs_there_were_and_chooses_by_row():
    kernel = seeds.drawn(GROUPS.format(other="scale"))
    (change,) = edit_named("rows_2d").apply(kernel, seeds.facts(kernel.render()))
    code = change.kernel.code
    assert "count = n_rows" in code and "num_programs" not in code
    assert "scale = tl.where(scale == 0.0, 1.0, scale)" in code
    kernel = seeds.drawn(GROUPS.format(other="tl.load(y_ptr + group)"))
    refused = edit_named("rows_2d").apply(kernel, seeds.facts(kernel.render()))
    assert isinstance(refused, NotApplicable) and "whether it loads" in refused.reason
