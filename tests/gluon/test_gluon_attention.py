"""The edit that writes attention in Gluon: what it takes for attention, where it is offered, that it compiles."""

from dataclasses import replace

import edit_seeds as seeds
import pytest

from kernelsearch.compile.build import Built, build
from kernelsearch.core.types import LaunchFact, ShapeFact, TensorFact, Trace
from kernelsearch.kernel.launch import make_plan, specialise
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space, TaskPredicate
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.verify import gate

EDIT, SEED = edit_named("gluon_attention"), seeds.task("attention").seed


def fact_of(seq=4096, dim=128, dtype="bf16", scale=0.088):
    shape, stride = (4, 16, seq, dim), (16 * seq * dim, seq * dim, dim, 1)
    args = {f"{n}_ptr": TensorFact(dtype, shape, stride) for n in "qkvo"}
    args |= {"head_stride": seq * dim, "seq_stride": dim, "seq_len": seq, "scale": scale, "HEAD_DIM": dim}
    return LaunchFact("attention_kernel", {**args, "BLOCK_M": 64, "BLOCK_N": 64}, {"num_warps": 4}, (-(-seq // 64), 64))


def task_of(capability=90, **facts):
    shape, trace = ShapeFact("timed:0", "seq", {}, None, None), Trace("timed:0", (fact_of(**facts),))
    task = seeds.task("attention")
    return replace(task, shapes=(shape,), traces={"timed:0": trace}, capability=capability)


def apply(text=SEED, **facts):
    return EDIT.apply(Kernel.parse(text), task_of(**facts))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"capability": 0}, "judged on a Hopper GPU"),
        ({"seq": 4000}, "whole tiles"),
        ({"dim": 32}, "whole tiles"),
        ({"scale": -1.0}, "whole tiles"),
        ({"dtype": "fp32"}, "16-bit float"),
    ],
)
def test_it_is_offered_only_where_it_fits(facts, said):
    assert said in apply(**facts).reason


@pytest.mark.parametrize(
    ("facts", "shared"), [({}, 200_000), ({"dim": 64, "dtype": "fp16"}, 100_000), ({"seq": 45, "dim": 16}, 0)]
)
def test_it_compiles_into_warps_that_load_and_warps_that_multiply(facts, shared):
    (rewrite,) = apply()
    kernel, fact = rewrite.kernel, fact_of(**facts)
    assert gate.check(kernel.render()).accepted and Kernel.parse(kernel.render()).digest == kernel.digest
    assert kernel.config in Space(kernel.space) and TaskPredicate(task_of())(kernel, kernel.config)
    plan = make_plan(kernel, (fact.site,), kernel.config, fact, lambda _: fact.grid, 132)
    built = build(kernel.code, "k", specialise(plan.steps[0], fact, plan.scratch), 90, 232448)
    assert isinstance(built, Built), built
    binary = built.binary
    assert binary.num_warps == (12 if shared else 4) and binary.stack_bytes == 0 and not binary.code.serialised
    assert bool(binary.mix["wgmma"]) == bool(shared) and binary.shared <= shared and not binary.unsupported


LATER = ("keys[None, :] < seq_len, scores", "(keys[None, :] < seq_len) & (keys[None, :] <= rows[:, None]), scores")


APART = [
    ("    head_stride,\n", "    z_stride,\n    head_stride,\n    d_stride,\n    n_heads,\n"),
    ("base = head * head_stride", "base = (head // n_heads).to(tl.int64) * z_stride + (head % n_heads) * head_stride"),
    ("dims[None, :]", "dims[None, :] * d_stride"),
    ("dims[:, None]", "dims[:, None] * d_stride"),
]
"""Batch and head apart, and a stride between the elements of a head."""


@pytest.mark.parametrize(
    ("changes", "has"),
    [
        ([], "scale * 1.4426950408889634, HEAD_DIM, BLOCK_N, STAGES, False)"),
        ([LATER], "STAGES, True)"),
        ([LATER, ("range(0, seq_len, BLOCK_N)", "range(0, (tl.program_id(0) + 1) * BLOCK_M, BLOCK_N)")], "True)"),
        ([("tl.exp(", "tl.exp2(")], "seq_len, scale, HEAD_DIM"),
        ([(" * scale\n", "\n")], "1.0 * 1.4426950408889634"),
        ([("acc = tl.dot(p.to(v.dtype), v, acc, ", "acc += tl.dot(p.to(v.dtype), v, ")], "False)"),
    ],
)
def test_ways_to_write_attention_are_known(changes, has):
    text = SEED
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    assert has in apply(text)[0].kernel.function("attention_kernel").text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('scores, float("-inf"))\n        new', "scores, -1e4)\n        new", "minus infinity"),
        ("keys[None, :] < seq_len, scores", "keys[None, :] > rows[:, None], scores", "other keys than later ones"),
        ("range(0, seq_len, BLOCK_N)", "range(0, seq_len // 2, BLOCK_N)", "over all keys"),
        ("range(0, seq_len, BLOCK_N)", "range(0, (tl.program_id(0) + 1) * BLOCK_M, BLOCK_N)", "over all keys"),
        ("row_sum * correction +", "row_sum +", "its sum is not"),
        ("acc = acc * correction[:, None]", "acc = acc + correction[:, None]", "its tile is not"),
        ("tl.maximum(row_max, ", "tl.minimum(row_max, ", "its maximum is not"),
        ("tl.max(scores, axis=1)", "tl.max(scores, axis=0)", "does not carry a maximum"),
        (" * scale\n", " * scale + 1.0\n", "expression of arguments"),
        (" * scale\n", " * start\n", "expression of arguments|more than a scaled dot"),
        ("o = acc / row_sum[:, None]", "o = acc / row_max[:, None]", "not the tile over the sum"),
        ("base + keys[:, None] * seq_stride", "base + HEAD_DIM + keys[:, None] * seq_stride", "a head does not begin"),
        ("rows = tl.program_id(0) * BLOCK_M", "rows = tl.program_id(1) * BLOCK_M", "one a head and tile of rows"),
    ],
)
def test_what_is_not_attention_stays(old, new, said):
    assert old in SEED
    result = apply(SEED.replace(old, new))
    assert isinstance(result, NotApplicable), result
    assert any(part in result.reason for part in said.split("|")), result
