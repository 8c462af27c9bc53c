"""What runs at which size, as a tree of questions: right at the sizes that it knows, small, and readable."""

import random

import pytest

from kernelsearch.core.decision_tree import SizeTest, as_json, choose, fit_tree, format_tree

WIDTHS = [{"rows": 4096, "cols": 2**n} for n in range(6, 16)]


def costs(best):
    return [{name: 0.0 if name == one else 0.5 for name in ("seed", "a", "b")} for one in best]


def test_one_axis_is_cut_where_what_is_best_changes():
    best = ["seed"] * 4 + ["a"] * 4 + ["b"] * 2
    tree = fit_tree(WIDTHS, costs(best))
    assert [choose(tree, sizes) for sizes in WIDTHS] == best
    assert format_tree(tree, {"seed": "the seed"}) in (
        ["cols <= 724: the seed", "cols <= 11585: a", "b"],
        ["cols <= 11585:", "  cols <= 724: the seed", "  a", "b"],
    )


def test_what_is_best_everywhere_needs_no_question():
    assert fit_tree(WIDTHS, costs(["a"] * 10)) == "a" and fit_tree(WIDTHS[:1], costs(["b"])) == "b"
    assert format_tree("a") == ["a"] and as_json("a") == "a"


def test_a_question_that_gains_next_to_nothing_is_not_asked():
    near = [{"seed": 0.0, "a": 0.001} if n % 2 else {"seed": 0.001, "a": 0.0} for n in range(10)]
    assert fit_tree(WIDTHS, near) in ("seed", "a")


def test_the_axis_that_matters_is_asked():
    sizes = [{"rows": r, "cols": c} for r in (1, 64, 4096) for c in (128, 1000, 50257)]
    tree = fit_tree(sizes, costs(["a" if s["rows"] <= 64 else "b" for s in sizes]))
    assert tree == SizeTest("rows", 512.0, "a", "b")
    assert as_json(tree) == {"size": "rows", "at_most": 512.0, "then": "a", "else": "b"}


@pytest.mark.parametrize("seed", range(5))
def test_known_sizes_get_what_is_best_there(seed):
    chance = random.Random(seed)
    sizes = [{"m": m, "n": n} for m in (1, 3, 16, 200) for n in (7, 8, 1024, 1025, 9999)]
    best = [chance.choice("ab") for _ in sizes]
    told = [{name: 0.0 if name == one else 0.3 for name in "ab"} for one in best]
    tree = fit_tree(sizes, told)
    assert [choose(tree, s) for s in sizes] == best
    assert [choose(tree, s) for s in sizes] == [choose(fit_tree(sizes, told), s) for s in sizes]
