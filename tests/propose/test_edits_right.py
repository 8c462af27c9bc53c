"""Edits keep results: every variant of every seed, and random chains, in the evaluator against float64."""

from __future__ import annotations

import random

import edit_seeds as seeds
import pytest

from kernelsearch.propose.contract import Request
from kernelsearch.propose.edits import EDITS
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.verify import gate
from turns import take_turn

CHAINS = 24
DIRECTED = {
    "softmax": ["rows_2d+persistent+drop_mask"],
    "softmax_wide": ["online+share_rows", "online+align_rows+reciprocal+exp2", "lane_accumulator+peel_tail",
                     "lane_accumulator+rows_2d", "lane_accumulator+align_rows+persistent"],
    "layernorm": ["persistent+drop_mask"],
    "layernorm_looped": ["share_rows", "fused_passes", "rows_2d+fused_passes+persistent", "align_rows"],
    "cross_entropy": ["online+rows_2d+persistent", "early_loads+lane_accumulator+align_rows"],
    "column_sum": ["lane_accumulator+split_reduction", "split_reduction+drop_mask+loop_stages",
                   "peel_tail+inner_tiles"],
    "matmul": ["split_reduction+drop_mask", "grouped_order+drop_mask+loop_stages",
               "persistent+grouped_order+flatten_loops", "split_reduction+peel_tail",
               "tensor_descriptor+grouped_order+persistent", "drop_mask+tensor_descriptor+loop_stages"],
    "linear_gelu": ["tensor_descriptor+split_epilogue+short_functions+persistent+grouped_order+flatten_loops",
                    "persistent+drop_mask+early_loads", "split_reduction+peel_tail"],
    "attention": ["tensor_descriptor+exp2+persistent+split_epilogue", "exp2+reciprocal+persistent+grouped_order",
                  "drop_mask+flatten_loops", "peel_tail+loop_stages"],
}  # fmt: skip


def all_variants():
    for name in seeds.NAMES:
        for edit in EDITS:
            for variant in seeds.variants(edit.name, name):
                yield name, edit.name, variant.kernel


def chained(name: str, chain: str):
    """The seed after each edit of the chain in turn, as far as they apply; first variants."""
    kernel, task, done = seeds.seed(name), seeds.task(name), []
    for wanted in chain.split("+"):
        rewrite = TypedEdits().propose(Request(kernel, task, edit=wanted), random.Random(0))
        if rewrite is not None:
            kernel = rewrite.kernel
            done.append(wanted)
    return name, "+".join(done), kernel


def drawn_chains():
    for number in range(CHAINS):
        rng = random.Random(f"chain {number}")
        name = seeds.NAMES[number % len(seeds.NAMES)]
        kernel, task, done = seeds.seed(name), seeds.task(name), []
        for _ in range(rng.randint(2, 5)):
            rewrite = TypedEdits().propose(Request(kernel, task), rng)
            if rewrite is None:
                break
            kernel = rewrite.kernel
            done.append(rewrite.edit)
        yield name, "+".join(done), kernel


@pytest.fixture(scope="module")
def judged():
    cases = [*all_variants(), *drawn_chains(), *(chained(n, c) for n, chains in DIRECTED.items() for c in chains)]
    unique = {(name, kernel.digest): (name, edits, kernel) for name, edits, kernel in cases}
    todo = take_turn(unique.values(), 4)
    jobs = [{"task": name, "kernel": kernel.render()} for name, _, kernel in todo]
    return list(zip(todo, seeds.ask("runner.py", jobs), strict=True))


@pytest.mark.slow
def test_results_stay_right(judged):
    wrong = [f"{n} {e}: {a['why']}\n{k.render()}" for (n, e, k), a in judged if not a["ok"]]
    assert not wrong, f"{len(wrong)} of {len(judged)} wrong, the first:\n{wrong[0]}"


def test_chains_are_accepted_by_the_gate(judged):
    for (name, edits, kernel), _ in judged:
        verdict = gate.check(kernel.render())
        assert verdict.accepted, f"{name} {edits}: {verdict.reason}"


def test_the_runner_sees_a_wrong_kernel():
    """The comparison must be able to fail: a softmax with half a denominator, one column short, another row."""
    right = seeds.task("softmax").seed
    breaks = [
        ("numerator / denominator", "numerator / (2.0 * denominator)"),
        ("cols < n_cols", "cols < n_cols - 1"),
        ("row * y_stride", "0 * row * y_stride"),
    ]
    wrong = [right.replace(a, b) for a, b in breaks]
    answers = seeds.ask("runner.py", [{"task": "softmax", "kernel": t} for t in [right, *wrong]])
    assert [a["ok"] for a in answers] == [True, False, False, False]


OTHER_CONFIGS = [
    ("softmax_wide", "align_rows", {"VEC": 64, "BLOCK": 16}),
    ("softmax_wide", "online+align_rows", {"VEC": 16, "BLOCK": 128}),
    ("softmax_wide", "lane_accumulator", {"BLOCK": 128}),
    ("softmax_wide", "online", {"BLOCK": 128}),
    ("softmax", "rows_2d+drop_mask", {"ROWS": 8}),
    ("rmsnorm_looped", "rows_2d", {"ROWS": 1, "TILE": 8}),
    ("layernorm_looped", "fused_passes", {"TILE": 16}),
    ("column_sum", "split_reduction", {"SPLIT": 32}),
    ("matmul", "split_reduction+drop_mask", {"SPLIT": 1}),
    ("matmul", "grouped_order", {"GROUP": 16}),
    ("matmul", "persistent+grouped_order", {"GROUP": 1, "WAVES": 16}),
]


def test_any_config_of_the_space_is_right():
    """What an edit adds is right for blocks wider than the row, for one row, and for more parts than work."""
    jobs = []
    for name, chain, config in OTHER_CONFIGS:
        _, done, kernel = chained(name, chain)
        assert done == chain
        jobs.append({"task": name, "kernel": kernel.render(), "config": config})
    answers = seeds.ask("runner.py", jobs)
    assert not [(case, a["why"]) for case, a in zip(OTHER_CONFIGS, answers, strict=True) if not a["ok"]]
