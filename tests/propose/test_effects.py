"""Edits keep what a kernel does besides its values: kernels that would notice, each through every edit, evaluated."""

from __future__ import annotations

import ast
import math

import edit_seeds as seeds
import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis.effects import LEAVE, LOAD, OTHER, STORE, find_effects
from kernelsearch.propose.edits import EDITS
from turns import take_turn

PARAMS = "x_ptr, y_ptr, z_ptr, x_stride, n_cols, BLOCK: tl.constexpr"
HELPERS = {
    name: f"@triton.jit\ndef {head}:\n" + "".join(f"    {line}\n" for line in lines) + "\n\n"
    for name, head, *lines in [
        ("put", "put(ptr, value)", "tl.store(pointer=ptr, value=value)", "return value"),
        ("pass_on", "pass_on(ptr, value)", "return put(ptr, value) * 1.0"),
        ("take", "take(ptr)", "return tl.load(ptr)"),
    ]
}
START = """row = tl.program_id(0)
x_row = x_ptr + row * x_stride
y_row = y_ptr + row * x_stride
z_row = z_ptr + row * x_stride
cols = tl.arange(0, BLOCK)
"""
LATE = """x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
total = tl.sum(x, axis=0)
{between}
late = tl.load(z_row + cols, mask=cols < n_cols, other=0.0)
tl.store(y_row + cols, late * total, mask=cols < n_cols)
"""
LOOP = """acc = 0.0
last = 0.0
{before}
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_row + cols, mask=mask, other=0.0)
    {inside}
    acc += tl.sum(x, axis=0)
{after}
tl.store(y_row, acc)
"""
PASSES = """top = float("-inf")
scale = 1.0
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf"))
    top = tl.maximum(top, tl.max(x, axis=0))
total = 0.0
{between}
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf"))
    {inside}
    total += tl.sum(tl.exp(x - top), axis=0)
tl.store(z_row, total)
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_row + cols, tl.exp(x - top) / total, mask=cols < n_cols)
{after}
"""
MOMENTS = """total = 0.0
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    {inside}
    total += tl.sum(x, axis=0)
mean = total / n_cols
{between}
squares = 0.0
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_row + cols, mask=mask, other=0.0)
    apart = tl.where(mask, x - mean, 0.0)
    squares += tl.sum(apart * apart, axis=0)
{after}
tl.store(y_row, squares)
"""
TILE = """mask = cols < n_cols
x = tl.load(x_row + cols, mask=mask, other=1.0)
{line}
tl.store(y_row + cols, x, mask=mask)
"""


def late(between: str) -> str:
    return START + LATE.format(between=between)


def loop(inside: str = "pass", before: str = "pass", after: str = "pass") -> str:
    return START + LOOP.format(inside=inside, before=before, after=after)


def passes(between: str = "pass", inside: str = "pass", after: str = "pass") -> str:
    return START + PASSES.format(inside=inside, between=between, after=after)


def moments(between: str = "pass", inside: str = "pass", after: str = "pass") -> str:
    return START + MOMENTS.format(inside=inside, between=between, after=after)


def tile(line: str) -> str:
    return START + TILE.format(line=line)


COUNTED = """i = tl.load(z_row).to(tl.int32) * 0 + {start}
{between}
acc = 0.0
while i < {stop}:
    acc += tl.sum(tl.load(x_row + i + cols, mask=i + cols < n_cols, other=0.0), axis=0)
    tl.store(z_row, 3.0)
    i += BLOCK
tl.store(y_row, acc)
"""
KERNELS = {
    "a store between": late("tl.store(z_row + cols, x, mask=cols < n_cols)"),
    "a store by keywords": late("tl.store(mask=cols < n_cols, value=x, pointer=z_row + cols)"),
    "a helper that stores": late("half = put(z_row, total)"),
    "a helper of a helper that stores": late("half = pass_on(z_row, total)"),
    "an atomic between": late("old = tl.atomic_add(z_row, total)"),
    "another atomic": late("tl.atomic_xchg(z_row, total)"),
    "an atomic of a method": late("old = z_row.atomic_max(total + 9.0)"),
    "a barrier": late("tl.debug_barrier()"),
    "a store under a condition": late("if total > 0.0:\n    tl.store(z_row, total)"),
    "a store in a loop": late("for i in range(0, n_cols):\n    tl.store(z_row + i, total)"),
    "an early return": late("if n_cols < 1:\n    return\nend = tl.load(x_ptr + n_cols - 1)\ntotal += end"),
    "a load in a loop without turns": loop("x = x * tl.load(x_ptr + n_cols - 1)"),
    "a condition of a load": tile("x = x + (tl.load(x_ptr + n_cols - 1) if n_cols > 0 else 0.0)"),
    "a condition of a helper": tile("x = x + (take(x_ptr + n_cols - 1) if n_cols > 0 else 0.0)"),
    "a helper in the middle": tile("x = x + (tl.load(z_row) + put(z_row, 7.0) + tl.load(z_row))"),
    "an atomic of every tile": loop("tl.atomic_add(z_row, 1.0)"),
    "an atomic that is read": loop("x = x + tl.atomic_add(z_row, 1.0)"),
    "an atomic before": loop(before="old = tl.atomic_add(z_row, 1.0)"),
    "an atomic that nobody reads": tile("old = tl.atomic_add(z_row, 1.0)"),
    "an atomic behind a mask": tile("x = tl.where(mask, x, tl.atomic_add(z_row, 1.0))"),
    "an atomic in place of what is masked": tile("x = tl.load(x_row + cols, mask, tl.atomic_add(z_row, 1.0))"),
    "an atomic that is summed": loop("acc += tl.sum(tl.atomic_add(z_row + cols, 1.0, mask=mask), axis=0)"),
    "a store before": loop(before="tl.store(z_row, 2.0)\nold = tl.load(z_row)\ntl.store(z_row, old + 1.0)"),
    "a count that is stored": loop(before="tl.store(z_row, tl.load(z_row) + 1.0)"),
    "a helper that stores in a loop": loop("x = x * put(z_row + start, 2.0)"),
    "a running maximum": loop(
        "last = tl.maximum(last, tl.max(x, axis=0))\n    tl.store(z_row + cols, x + last, mask=mask)"
    ),
    "a running maximum of one place": loop("last = tl.maximum(last, tl.max(x, axis=0))\n    tl.store(z_row, last)"),
    "the last tile": loop("tl.store(z_row, tl.max(x, axis=0))"),
    "the last tile by name": loop("last = tl.max(x, axis=0)", after="tl.store(z_row, last)"),
    "a mask of the last turn": loop(
        before="mask = cols < 3", after="tl.store(z_row + tl.arange(0, BLOCK), 1.0, mask=mask)"
    ),
    "a mask of the turn before": loop(
        "acc += tl.sum(tl.where(mask, x, 0.0), axis=0) + seen\n    seen = tl.max(mask.to(tl.float32), axis=0)",
        before="seen = 0.0",
    ),
    "columns that are set twice": START + "x = cols < n_cols\ncols = cols + 1\ntl.store(y_row + cols, 2.0, mask=x)\n",
    "in place": loop("tl.store(x_row + cols, x * 2.0, mask=mask)"),
    "in place, of the tile before": loop(
        "x += tl.load(x_row + cols - 1, mask=mask & (cols > 0), other=0.0)\n"
        "    tl.store(x_row + cols, x * 2.0, mask=mask)"
    ),
    "several stores to one place": loop(
        "tl.store(z_row + cols, 1.0, mask=mask)\n    tl.store(z_row + cols, x, mask=mask)\n"
        "    tl.store(z_row + cols + 1, 3.0, mask=mask)"
    ),
    "masks that matter": loop("acc = acc + tl.sum(x + 1.0, axis=0)"),
    "passes": passes(),
    "passes with a store between": passes("tl.store(x_row, 9.0)"),
    "passes with an atomic": passes(inside="old = tl.atomic_add(z_row + 1, 1.0)"),
    "passes with what the first leaves": passes(
        "scale = tl.sum(cols.to(tl.float32), axis=0)", after="tl.store(z_row + 1, scale)"
    ),
    "passes with what the second leaves": passes(
        inside="scale = tl.max(x, axis=0)", after="tl.store(z_row + 1, scale)"
    ),
    "moments": moments(),
    "moments with a store to what is read": moments("p = x_row + 1\ntl.store(p, mean)"),
    "moments with a store that is read": moments(
        "tl.store(z_row, mean)\nback = tl.load(z_row)", after="tl.store(z_row + 1, back)"
    ),
    "moments with a branch that stores": moments("if n_cols > 2:\n    tl.store(x_row, mean)"),
    "moments with an atomic": moments(inside="x += tl.atomic_add(z_row + cols, 1.0, mask=cols < n_cols)"),
    "a stop that is loaded": START + COUNTED.format(start="0", between="pass", stop="tl.load(z_row) * 10.0"),
    "a start that is loaded": START
    + COUNTED.format(
        start="(tl.load(z_row + 1) < 9.0).to(tl.int32)", between="tl.store(z_row + 1, 20.0)", stop="n_cols"
    ),
    "a wait": tile("while tl.atomic_add(z_ptr + 1, 0.0) > 1e9:\n    pass\nold = tl.atomic_add(z_ptr + 1, 1.0)"),
}
ALIASED = ("passes", "moments", "in place", "a store between", "masks that matter", "passes with a store between")


def make(name: str) -> Kernel:
    kernel = seeds.drawn(KERNELS[name], PARAMS)
    text = KERNELS[name]
    used = [h for h in HELPERS if h in text or (h == "put" and "pass_on" in text)]
    return Kernel.parse(
        kernel.render().replace("@triton.jit\n", "".join(HELPERS[h] for h in used) + "@triton.jit\n", 1)
    )


@pytest.mark.slow
def test_every_variant_leaves_what_the_kernel_leaves():
    jobs, labels = [], []
    for name in (kernels := take_turn(KERNELS, 5)):
        kernel = make(name)
        task = seeds.facts(kernel.render())
        found = [(edit.name, edit.apply(kernel, task)) for edit in EDITS]
        made = [(edit, v.kernel) for edit, variants in found if isinstance(variants, list) for v in variants]
        for aliased in (False, True) if name in ALIASED else (False,):
            for edit, variant in [("", kernel), *made]:
                if variant.language == "triton":
                    jobs.append({"kernel": variant.render(), "aliased": aliased})
                    labels.append((name, aliased, edit))
    answers = seeds.ask("launcher.py", jobs)
    wrong, wanted = [], {}
    for (name, aliased, edit), job, answer in zip(labels, jobs, answers, strict=True):
        if not edit:
            assert answer["ok"], f"{name}: {answer['why']}"
            wanted[name, aliased] = answer["left"]
        elif not answer["ok"] or not is_alike(answer["left"], wanted[name, aliased]):
            wrong.append(f"{edit} of {name}{' in place' * aliased}: {answer['why'] or 'it leaves something else'}")
            wrong[-1] += f"\n{job['kernel']}" if len(wrong) == 1 else ""
    assert len(jobs) > 2 * len(kernels)
    assert not wrong, f"{len(wrong)} of {len(jobs)}:\n" + "\n".join(wrong)


def is_alike(one: list[list[float]], other: list[list[float]]) -> bool:
    pairs = ((a, b) for left, right in zip(one, other, strict=True) for a, b in zip(left, right, strict=True))
    return all(a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= 1e-4 * (1 + abs(b)) for a, b in pairs)


@pytest.mark.parametrize(
    ("text", "effects"),
    [
        ("x = tl.exp(a) + libdevice.tanh(b) * tl.math.tanh(b) * tl.sum(c, axis=0)", set()),
        ("x = a.to(tl.float32) + float('inf') + tl.cdiv(a, 2)", set()),
        ("x = tl.load(p)", {LOAD}),
        ("x = tl.load(p, volatile=True)", {OTHER}),
        ("x = desc.load([0, 1])", {LOAD}),
        ("desc.store([0, 1], x)", {STORE}),
        ("if a:\n    tl.store(pointer=p, value=tl.load(q))", {LOAD, STORE}),
        ("tl.atomic_min(p, 1)", {OTHER}),
        ("p.atomic_xchg(1)", {OTHER}),
        ("tl.device_assert(a)", {OTHER}),
        ("assert a", {OTHER}),
        ("tl.device_print('a', a)", {OTHER}),
        ("print(a)", {OTHER}),
        ("x = tl.inline_asm_elementwise('', '', [a], tl.int32, True, 1)", {OTHER}),
        ("x = tl.extra.cuda.globaltimer()", {OTHER}),
        ("x = anything(a)", {OTHER}),
        ("x = a.anything()", {OTHER}),
        ("x = tl.reduce(a, 0, anything)", {OTHER}),
        ("if a:\n    return", {LEAVE}),
        ("while a:\n    x = put(p, 1)", {STORE}),
        ("x = pass_on(p, 1)", {STORE}),
        ("x = tl.reduce(a, 0, put)", {STORE}),
    ],
)
def test_what_a_statement_does(text, effects):
    helpers = {f.name: f for f in Kernel.parse(seeds.HEAD + "".join(HELPERS.values())).functions}
    assert find_effects(ast.parse(text).body, helpers) == effects
