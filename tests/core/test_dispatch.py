"""The tree of a table: over the sizes that differ, by dtype where that differs, also where not all was timed."""

from kernelsearch.core.decision_tree import format_tree
from kernelsearch.core.dispatch import LOSES, fit_dispatch, list_corners
from kernelsearch.core.tree_walk import choose
from kernelsearch.core.types import ShapeFact


def shapes(**axes):
    (rows, widths, dtypes) = (axes.get(n, d) for n, d in (("rows", [64]), ("cols", [256]), ("dtype", ["half"])))
    product = [dict(rows=r, cols=c, dtype=d) for d in dtypes for r in rows for c in widths]
    return [ShapeFact(f"timed:{i}", "", params) for i, params in enumerate(product)]


def test_a_table_of_widths_is_a_tree_of_widths():
    known = shapes(cols=[256, 1024, 4096, 16384])
    slow = {s.key: 10.0 for s in known}
    wide = {"timed:0": 30.0, "timed:1": 12.0, "timed:2": 5.0, "timed:3": 2.0}
    trees = fit_dispatch(known, {"the seed": slow, "trial 3": wide})
    assert {group: format_tree(tree) for group, tree in trees.items()} == {
        "dtype=half": ["cols <= 2048: the seed", "trial 3"]
    }


def test_each_dtype_has_its_own_tree():
    known = shapes(cols=[256, 4096], dtype=["half", "float"])
    times = {"a": {s.key: 1.0 if s in known[:2] else 9.0 for s in known}, "b": {s.key: 3.0 for s in known}}
    trees = fit_dispatch(known, times)
    assert trees == {"dtype=half": "a", "dtype=float": "b"}


def test_sizes_may_be_negative_or_zero():
    known = [ShapeFact(f"timed:{n}", "", {"shift": shift}) for n, shift in enumerate((-3, 0, 5))]
    times = {"seed": dict(zip((s.key for s in known), (1.0, 9.0, 9.0))), "b": {s.key: 3.0 for s in known}}
    (tree,) = fit_dispatch(known, times).values()
    assert format_tree(tree) == ["shift <= -2: seed", "b"]


def test_no_timed_shape_is_served_worse_by_a_gain_or_by_what_was_not_timed_there():
    known = shapes(cols=[2**n for n in range(1, 61)])
    seed = {s.key: 10.0 for s in known}
    for times in (
        {s.key: 10.4 if s is known[30] else 9.0 for s in known},
        {s.key: 9.0 for s in known if s is not known[30]},
    ):
        (tree,) = fit_dispatch(known, {"seed": seed, "b": times}).values()
        runs = [choose(tree, {"cols": float(s.params["cols"])}) for s in known]
        assert runs == ["seed" if s is known[30] else "b" for s in known]


def test_between_what_was_timed_its_neighbours_decide():
    known = shapes(cols=[2**n for n in range(6, 14)])
    times = {s.key: 10.0 for s in known}
    few = {known[0].key: 20.0, known[5].key: 5.0, known[6].key: 5.0, known[7].key: 5.0}
    (tree,) = fit_dispatch(known, {"seed": times, "b": few}).values()
    assert choose(tree, {"cols": 8192.0, "rows": 64.0}) == "b" and choose(tree, {"cols": 64.0, "rows": 64.0}) == "seed"


def served_at(trees, **sizes):
    (tree,) = trees.values()
    return choose(tree, {name: float(size) for name, size in sizes.items()})


def test_where_sizes_are_larger_together_than_what_was_too_large_something_else_runs():
    """Neither of the timed shapes has many rows and wide ones, and one question about rows would tell these apart."""
    known = [ShapeFact(f"timed:{n}", "", dict(rows=r, cols=c)) for n, (r, c) in enumerate([(512, 256), (64, 16384)])]
    times = {"the seed": {"timed:0": 10.0, "timed:1": 10.0}, "narrow": {"timed:0": 5.0}}
    trees = fit_dispatch(known, times)
    assert served_at(trees, rows=512, cols=256) == served_at(trees, rows=64, cols=256) == "narrow"
    assert served_at(trees, rows=64, cols=16384) == served_at(trees, rows=512, cols=16384) == "the seed"


def test_what_was_timed_at_a_larger_shape_is_not_too_large():
    known = [ShapeFact(f"timed:{n}", "", dict(rows=r, cols=c)) for n, (r, c) in enumerate([(512, 256), (64, 16384)])]
    times = {"a": {"timed:0": 10.0, "timed:1": 10.0}, "b": {"timed:0": 11.0, "timed:1": 5.0}}
    assert [*list_corners([s.params for s in known], {name: {0, 1} for name in times})] == []
    sizes = [{"n": 1.0}, {"n": 2.0}, {"n": 3.0}]
    assert [*list_corners(sizes, {"a": {0, 1, 2}, "b": {2}, "c": {0}})] == []
    assert fit_dispatch(known, times)


def test_where_nothing_else_runs_what_is_too_large_may():
    sizes = [dict(rows=4.0, cols=1.0), dict(rows=1.0, cols=4.0)]
    assert [*list_corners(sizes, {"a": {0}, "b": {1}})] == []
    corners = [*list_corners(sizes, {"a": {0}, "b": {0, 1}})]
    assert corners == [(dict(rows=4.0, cols=4.0), {"a": LOSES, "b": 0.0})]
