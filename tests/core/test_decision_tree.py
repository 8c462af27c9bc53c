"""What runs at which size, as a tree of questions: right at the sizes that it knows, small, and readable."""

import functools
import random

import pytest

from kernelsearch.core.decision_tree import fit_tree, format_tree
from kernelsearch.core.tree_walk import choose

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
    assert format_tree("a") == ["a"]


def test_a_question_that_gains_next_to_nothing_is_not_asked():
    near = [{"seed": 0.0, "a": 0.001} if n % 2 else {"seed": 0.001, "a": 0.0} for n in range(10)]
    assert fit_tree(WIDTHS, near) in ("seed", "a")


def test_the_axis_that_matters_is_asked():
    sizes = [{"rows": r, "cols": c} for r in (1, 64, 4096) for c in (128, 1000, 50257)]
    tree = fit_tree(sizes, costs(["a" if s["rows"] <= 64 else "b" for s in sizes]))
    assert tree == {"size": "rows", "at_most": 512.0, "then": "a", "else": "b"}


def test_what_is_best_at_multiples_of_16_alone_runs_at_these():
    sizes = [{"m": m, "k": k} for m in (64, 65, 4000, 4001) for k in (128, 129, 8000, 8001)]
    tree = fit_tree(sizes, costs(["seed" if s["k"] % 16 else "a" for s in sizes]))
    assert tree == {"size": "k", "multiple_of": 16, "then": "a", "else": "seed"}
    assert format_tree(tree) == ["k a multiple of 16: a", "seed"]


@pytest.mark.parametrize("step", [8, 4])
def test_a_copy_engine_s_step_of_16_bytes_is_found_where_it_is_less_than_16_elements(step):
    """A kernel with descriptors takes rows of 12184 elements of 16 bits: no multiple of 16, yet one of 16 bytes."""
    sizes = [
        {"m": 700 + 300 * n, "k": k} for n, k in enumerate((4352, 5008, 9377, 10390 + 1, 13057, 12184 + 8 - step, 6272))
    ]
    tree = fit_tree(sizes, costs(["a" if s["k"] % step == 0 else "seed" for s in sizes]))
    assert tree == {"size": "k", "multiple_of": step, "then": "a", "else": "seed"}


@pytest.mark.parametrize("seed", range(5))
def test_known_sizes_get_what_is_best_there(seed):
    chance = random.Random(seed)
    sizes = [{"m": m, "n": n} for m in (1, 3, 16, 200) for n in (7, 8, 1024, 1025, 9999)]
    best = [chance.choice("ab") for _ in sizes]
    told = [{name: 0.0 if name == one else 0.3 for name in "ab"} for one in best]
    tree = fit_tree(sizes, told)
    assert [choose(tree, s) for s in sizes] == best
    assert [choose(tree, s) for s in sizes] == [choose(fit_tree(sizes, told), s) for s in sizes]


GRID = [{"m": m, "n": n} for m in (1, 16, 64, 256) for n in (128, 1024, 4096)]
PAIRS = [{"m": m, "n": 2**n} for n, m in enumerate((1, 512, 8, 8, 512, 1, 8, 512, 4096, 1))]


@pytest.mark.parametrize(
    "sizes, best, smallest",
    [
        (WIDTHS, "caaaaaabaa", ["cols <= 90: c", "cols <= 5792: a", "cols <= 11585: b", "a"]),
        (WIDTHS, "abbbbbbbba", ["cols <= 90: a", "cols <= 23170: b", "a"]),
        (GRID, "bbbbbbbbabba", ["m <= 32: b", "n <= 2048: b", "a"]),
        (PAIRS, "aaaabaaaaa", ["n <= 11: a", "n <= 22: b", "a"]),
    ],
)
def test_neighbours_with_one_answer_are_joined(sizes, best, smallest):
    """Of several trees that are right at all sizes the one with the fewest questions."""
    told = [{name: float(name != one) for name in dict.fromkeys(best)} for one in best]
    tree = fit_tree(sizes, told)
    assert [choose(tree, s) for s in sizes] == list(best)
    assert len(format_tree(tree)) <= len(smallest), format_tree(tree)


@pytest.mark.parametrize("seed", range(40))
def test_no_tree_of_a_small_table_asks_a_needless_question(seed):
    """Beside the smallest there is, which is sought among all."""
    chance = random.Random(seed)
    sizes = GRID if seed % 2 else [{"m": chance.choice((1, 8, 64, 512)), "n": 2**n} for n in range(9)]
    best = [chance.choice("aaab" if s["n"] > 100 else "cb") for s in sizes]

    def count(rows):
        if len({best[row] for row in rows}) == 1:
            return 0
        cuts = {(n, sizes[row][n]) for row in rows for n in sizes[row]}
        sides = [[[r for r in rows if (sizes[r][n] <= at) is side] for side in (True, False)] for n, at in cuts]
        return min(1 + sum(known(tuple(side)) for side in both) for both in sides if all(both))

    known = functools.cache(count)
    tree = fit_tree(sizes, [{name: float(name != one) for name in "abc"} for one in best])
    assert [choose(tree, s) for s in sizes] == best
    assert str(tree).count("at_most") <= known(tuple(range(len(sizes)))), format_tree(tree)
