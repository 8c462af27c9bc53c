"""The grammars of the shipped seeds: every sentence is a kernel that the gate lets pass, and mistakes have none."""

import ast
import random

import edit_seeds as seeds
import pytest
import traced
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.edits import EDITS, NotApplicable
from kernelsearch.propose.grammar import Answer, build_grammar
from kernelsearch.verify import gate

SEEDS = st.integers(0, 2**32)


def drawn(grammar, seed):
    return grammar.rules.sample(grammar.start, random.Random(seed))


@given(st.sampled_from(traced.NAMES), SEEDS)
@settings(max_examples=150)
def test_every_sentence_is_an_answer(name, seed):
    """It parses, its names resolve, and the gate accepts it; no longer than the budget."""
    grammar = traced.grammar(name)
    text = drawn(grammar, seed)
    assert len(text.encode()) <= grammar.longest <= grammar.budget
    assert grammar.accepts(text)
    answer = grammar.apply(text, gate=gate.check)
    assert isinstance(answer, Answer), (text, answer)
    assert answer.kernel.names == grammar.parent.names


@given(st.integers(0, len(traced.cheats()) - 1), SEEDS, st.sampled_from([128, 512, 2000]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_every_sentence_of_the_corpus_of_cheats_is_an_answer(at, seed, budget):
    name, file, kernel = traced.cheats()[at]
    grammar = build_grammar(kernel, traced.task(name), budget=budget)
    text = drawn(grammar, seed)
    assert len(text) <= grammar.longest <= budget
    assert isinstance(answer := grammar.apply(text, gate=gate.check), Answer), (file, text, answer)


@pytest.mark.parametrize("name", traced.NAMES)
def test_rewritten_parents_have_grammars_too(name):
    kernel, task = seeds.seed(name), traced.task(name)
    for at, edit in enumerate(EDITS):
        found = edit.apply(kernel, task) if at % 4 == len(name) % 4 else NotApplicable("")
        for rewrite in [] if isinstance(found, NotApplicable) else found[:1]:
            grammar = build_grammar(rewrite.kernel, task)
            for seed in range(3):
                text = drawn(grammar, seed)
                assert isinstance(answer := grammar.apply(text, gate=gate.check), Answer), (edit.name, text, answer)


@pytest.mark.parametrize("name", traced.NAMES)
def test_each_statement_of_a_seed_may_stand_where_it_stands(name):
    """The parent's own line is a sentence, and so is each edit that changes one part of it."""
    grammar = traced.grammar(name)
    for place in grammar.page.places:
        own = " " * place.indent + tree.text_of(place.node).splitlines()[0].replace("'", '"')
        text = f"LINE {place.line}\n{own}\nEND"
        assert grammar.accepts(text), grammar.mismatch(text).sentence(text)
        assert grammar.apply(text).kernel.digest == grammar.parent.digest


def test_a_grammar_is_a_function_of_its_parent():
    one = build_grammar(seeds.seed("matmul"), traced.task("matmul"))
    assert one.digest == traced.grammar("matmul").digest and one.lark == traced.grammar("matmul").lark
    assert one.digest != traced.grammar("linear_gelu").digest


def test_a_larger_budget_allows_more():
    kernel, task = seeds.seed("softmax"), traced.task("softmax")
    small, large = build_grammar(kernel, task, budget=256), build_grammar(kernel, task, budget=1500)
    assert small.longest <= 256 < large.longest <= 1500
    text = (
        "LINE 9\n    mask = cols < n_cols\nLINE 11\n    x = x - tl.max(x, axis=0)\n"
        "LINE 12\n    t0 = tl.maximum(x, 0.0)\n    numerator = tl.exp(x)\n"
        "LINE 13\n    denominator = tl.sum(numerator, axis=0)\nEND"
    )
    assert large.accepts(text) and not small.accepts(text)


# One entry a class of mistake: (task, the start of the line, a right line, a wrong one).
MISTAKES = {
    "a mask for a float": ("softmax", "numerator =", "numerator = tl.exp(x)", "numerator = mask"),
    "a float for a mask": ("softmax", "mask =", "mask = cols < n_cols", "mask = cols"),
    "a float as a mask": (
        "softmax", "x = tl.load", 'x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)',
        "x = tl.load(x_ptr + cols, mask=cols, other=0.0).to(tl.float32)",
    ),
    "other without mask": (
        "softmax", "x = tl.load", "x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)",
        "x = tl.load(x_ptr + cols, other=0.0).to(tl.float32)",
    ),
    "an integer as an address": (
        "softmax", "x = tl.load", "x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)",
        "x = tl.load(row + cols, mask=mask, other=0.0).to(tl.float32)",
    ),
    "a load from where nothing is read": (
        "softmax", "x = tl.load", "x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)",
        "x = tl.load(y_ptr + cols, mask=mask, other=0.0).to(tl.float32)",
    ),
    "a store into an input": (
        "softmax", "tl.store", "tl.store(y_ptr + cols, y, mask=mask)", "tl.store(x_ptr + cols, y, mask=mask)",
    ),
    "a store without the mask that the parent needs": (
        "softmax", "tl.store", "tl.store(y_ptr + cols, y, mask=mask)", "tl.store(y_ptr + cols, y)",
    ),
    "a function of a half": ("attention", "p =", "p = tl.exp(scores)", "p = tl.exp(q)"),
    "a scalar for a block": ("softmax", "numerator =", "numerator = x * 2.0", "numerator = tl.sum(x, axis=0)"),
    "a block for a scalar": ("softmax", "denominator =", "denominator = tl.max(x, axis=0)", "denominator = x"),
    "another block's shape": (
        "attention", "correction =", "correction = tl.exp(row_max)", "correction = tl.exp(scores)",
    ),
    "an axis that is not there": (
        "softmax", "denominator =", "denominator = tl.sum(x, axis=0)", "denominator = tl.sum(x, axis=1)",
    ),
    "a bound of arange that is no constexpr": (
        "softmax", "cols =", "cols = tl.arange(0, BLOCK)", "cols = tl.arange(0, n_cols)",
    ),
    "tiles that do not fit": (
        "matmul", "acc = tl.dot", 'acc = tl.dot(a, b, acc, input_precision="ieee")',
        'acc = tl.dot(b, a, acc, input_precision="ieee")',
    ),
    "a precision that the task forbids": (
        "matmul", "acc = tl.dot", 'acc = tl.dot(a, b, acc, input_precision="ieee")',
        'acc = tl.dot(a, b, acc, input_precision="tf32")',
    ),
    "a keyword that the function does not have": (
        "softmax", "denominator =", "denominator = tl.sum(x, axis=0)", "denominator = tl.sum(x, dim=0)",
    ),
    "a keyword value that is not one": (
        "softmax", "tl.store", 'tl.store(y_ptr + cols, y, mask=mask, cache_modifier=".cs")',
        'tl.store(y_ptr + cols, y, mask=mask, cache_modifier=".cx")',
    ),
    "two hints on one access, which ptxas refuses": (
        "softmax", "tl.store", 'tl.store(y_ptr + cols, y, mask=mask, cache_modifier=".cs")',
        'tl.store(y_ptr + cols, y, mask=mask, cache_modifier=".cs", eviction_policy="evict_first")',
    ),
    "two more hints on an access as it was": (
        "softmax", "x = tl.load",
        'x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)',
        'x = tl.load(x_ptr + cols, mask=mask, other=0.0, cache_modifier=".cg", eviction_policy="evict_first")'
        ".to(tl.float32)",
    ),
    "a name that is not bound yet": ("softmax", "mask =", "mask = cols < n_cols", "mask = x < 0.0"),
    "a loop's name after the loop": (
        "column_sum", "tl.store", "tl.store(y_ptr + cols, total, mask=col_mask)",
        "tl.store(y_ptr + cols, tl.sum(x, axis=0), mask=col_mask)",
    ),
    "another name in place of the one that was assigned": ("softmax", "y =", "y = numerator / denominator", "z = x"),
    "a number with a leading zero": ("softmax", "mask =", "mask = cols < 1", "mask = cols < 01"),
    "another indentation": ("softmax_wide", "cols =", "cols = start + tl.arange(0, BLOCK)", " cols = start + 1 * cols"),
    "a bound of a loop that is a block": (
        "softmax_wide", "for start", "for start in range(0, n_cols, BLOCK):", "for start in range(0, x_row, BLOCK):",
    ),
    "a function that is refused": ("softmax", "y =", "y = tl.exp(x)", "y = tl.device_print(x)"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_no_sentence(mistake):
    name, start, right, wrong = MISTAKES[mistake]
    grammar = traced.grammar(name)
    number, line = next((n, t) for n, t in enumerate(grammar.lines, 1) if t.strip().startswith(start))
    indent = line[: len(line) - len(line.lstrip())]
    assert grammar.mismatch(f"LINE {number}\n{indent}{right}\nEND") is None
    assert not grammar.accepts(f"LINE {number}\n{indent}{wrong}\nEND")


def test_fresh_names_are_bound_before_they_are_read():
    grammar = traced.grammar("softmax")
    assert grammar.fresh == {"t0": "float32 [BLOCK]", "t1": "float32", "t2": "mask [BLOCK]"}
    assert grammar.accepts("BEFORE 11\n    t0 = x * 2.0\nLINE 12\n    numerator = tl.exp(t0)\nEND")
    assert not grammar.accepts("LINE 12\n    numerator = tl.exp(t0)\nEND")
    assert not grammar.accepts("BEFORE 12\n    t0 = x * 2.0\nLINE 11\n    x = t0\nEND")
    three = "BEFORE 11\n    t0 = x * 2.0\n    t1 = tl.sum(x, axis=0)\nBEFORE 12\n    t2 = cols < 4\nEND"
    assert not grammar.accepts(three)


def test_a_fresh_name_of_a_loop_is_gone_after_it():
    grammar = traced.grammar("column_sum")
    at = {line.strip().partition(" ")[0]: n for n, line in enumerate(grammar.lines, 1) if line.strip()}
    (name,) = (n for n, kind in grammar.fresh.items() if kind == "float32 [BLOCK_COLS]")
    inside = f"LINE {at['total']}\n        {name} = tl.sum(x, axis=0)\n        total += {name}\nEND"
    assert grammar.accepts(inside)
    store = next(n for n, line in enumerate(grammar.lines, 1) if "tl.store" in line)
    outside = f"BEFORE {at['total']}\n        {name} = total\n"
    outside += f"LINE {store}\n    tl.store(y_ptr + cols, {name}, mask=col_mask)\nEND"
    assert not grammar.accepts(outside)
    assert grammar.accepts(outside.replace(f", {name}, ", ", total, "))


def test_a_statement_goes_only_when_its_name_has_another_value():
    grammar = traced.grammar("softmax")
    may = {
        ast.unparse(p.node).split(" ")[0] for p in grammar.page.places if grammar.accepts(f"DELETE {p.line}\nEND")
    }  # fmt: skip
    assert may == {"x"}


def test_alignment_hints_stand_on_blocks_of_one_dimension_only():
    """They want one number for each dimension: `rows_2d` of a kernel of rows makes integers of two."""
    task, made = traced.task("softmax"), next(e for e in EDITS if e.name == "rows_2d")
    kernel = made.apply(seeds.seed("softmax"), task)[0].kernel
    grammar = build_grammar(kernel, task)
    number, line = next((n, t) for n, t in enumerate(grammar.lines, 1) if t.strip().startswith("row = "))
    indent = line[: len(line) - len(line.lstrip())]
    assert grammar.accepts(f"LINE {number}\n{indent}row = tl.where(row_mask, rows, 1)\nEND")
    assert not grammar.accepts(f"LINE {number}\n{indent}row = tl.max_contiguous(rows, 16)\nEND")
