"""What full depth adds to the regimes, on tasks made of parts: padded rows and sizes that only timed shapes have."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.tasks.task import Task
from kernelsearch.verify import regime_words
from kernelsearch.worker.judging import drawn_sizes, planning
from kernelsearch.worker.launcher import fit, tensors
from kernelsearch.worker.messages.jobs import JudgedCase


def task(shapes, tests):
    def builder(params, seed, device):
        raise TaskError("never built here")

    return Task("toy", Path("toy.py"), "0", "native", shapes, tests, builder, module=None)


def test_each_timed_size_alone_on_the_smallest_test_shape():
    toy = task(
        (("timed:0", dict(rows=4096, cols=1024, dtype="bf16")), ("timed:1", dict(rows=4096, cols=257, dtype="bf16"))),
        (("test:0", dict(rows=7, cols=1000)), ("test:1", dict(rows=1, cols=3))),
    )
    added = dict(planning.add_long_shapes(toy).test_shapes[2:])
    assert added == {
        "long:0": dict(rows=4096, cols=3, dtype="bf16"),
        "long:1": dict(rows=1, cols=1024, dtype="bf16"),  # 257 < 1000 is no new size
        "odd:0": dict(rows=3839, cols=3),
        **{f"odd:0:{i}": dict(rows=(3840 >> i) - 1 | 1, cols=3) for i in range(1, 9)},
        "even:0": dict(rows=4096, cols=3), **{f"even:0:{i}": dict(rows=4096 >> i, cols=3) for i in range(1, 9)},
        "over:0": dict(rows=2049, cols=3), **{f"over:0:{i}": dict(rows=(2048 >> i) + 1, cols=3) for i in range(1, 9)},
        "typed:0": dict(rows=7, cols=1000, dtype="bf16"),
        **{f"joint:0:{i}": dict(rows=2 ** (12 - i), cols=1024, dtype="bf16") for i in range(10)},
        **{f"joint:1:{i}": dict(rows=(3840 >> i) - 1 | 1, cols=1024, dtype="bf16") for i in range(9)},
        "joint:1:9": dict(rows=8, cols=1024, dtype="bf16"),
    }  # fmt: skip


def test_a_size_that_is_too_large_is_halved_until_it_fits():
    """Three tensors of 4 million elements were too many, and then nothing beyond the test shapes was judged."""
    toy = task((("timed:0", dict(n=2**22)),), (("test:0", dict(n=37)), ("test:1", dict(n=64))))
    with_more = planning.add_long_shapes(toy)
    assert with_more.params("long:0:1") == dict(n=2**21)

    def launched(key):
        return [Launch(1000, 3 * with_more.params(key)["n"])]

    chosen = planning.make_long_cases(with_more, 3, launched, {})
    assert [(c.shape, c.sampled) for c in chosen if c.kind == "long"] == [("long:0:1", True)]


def test_timed_shapes_are_judged_as_far_as_they_fit():
    """The small ones whole, of larger ones some rows, and none that a test shape has."""
    shapes = [dict(n=2**22 + 1), dict(n=2**20), dict(n=1000), dict(n=37), dict(n=2**20 + 1), dict(n=5), dict(n=2)]
    timed = tuple((f"timed:{i}", shape) for i, shape in enumerate(shapes))
    toy = planning.add_long_shapes(task(timed, (("test:0", dict(n=37)),)))

    def launched(key):
        if toy.params(key)["n"] == 2:
            raise TaskError("the launcher takes no 2")
        return [Launch(1000, toy.params(key)["n"])]

    chosen = planning.make_timed_cases(toy, 3, launched, {}, lambda key: key != "timed:5")
    assert [(c.shape, c.sampled) for c in chosen] == [("timed:2", False), ("timed:1", True), ("timed:4", True)]


def test_a_size_that_no_block_divides_is_judged_by_all_its_programs():
    """A kernel that forgets its tail only where there are several blocks was right at every shape that was judged."""
    toy = task((("timed:0", dict(n=2**20)),), (("test:0", dict(n=37)),))
    with_more = planning.add_long_shapes(toy)

    def launched(key):
        size = with_more.params(key)["n"]
        return [Launch(size // 1024, size)]

    (case,) = [c for c in planning.make_long_cases(with_more, 3, launched, {}) if c.kind == "odd"]
    size = with_more.params(case.shape)["n"]
    assert not case.sampled and size > 8 * 1024 and size % 1024 > 256 and size % 2


def test_a_launcher_that_takes_multiples_only_is_judged_at_one_by_all_its_programs():
    toy = task((("timed:0", dict(n=3 * 2**18)),), (("test:0", dict(n=256)),))
    with_more = planning.add_long_shapes(toy)

    def launched(key):
        size = with_more.params(key)["n"]
        if size % 256:
            raise TaskError("multiples of 256 only")
        return [Launch(size // 1024, size)]

    (case,) = [c for c in planning.make_long_cases(with_more, 3, launched, {}) if c.kind in ("odd", "even")]
    assert case.kind == "even" and not case.sampled and with_more.params(case.shape)["n"] > 8 * 1024


def test_sizes_that_are_equal_everywhere_are_also_larger_together():
    """A kernel for square images that confused their sides was right at every shape that was judged."""
    toy = task((("timed:0", dict(n=8, h=64, w=64)),), (("test:0", dict(n=2, h=1, w=1)),))
    with_more = planning.add_long_shapes(toy)

    def launched(key):
        params = with_more.params(key)
        if params["h"] != params["w"]:
            raise TaskError("square images only")
        return [Launch(params["n"] * params["h"], params["n"] * params["h"] ** 2)]

    sides = {
        c.kind: (with_more.params(c.shape), c.sampled) for c in planning.make_long_cases(with_more, 3, launched, {})
    }
    assert sides["long"] == (dict(n=2, h=64, w=64), True) and sides["odd"] == (dict(n=2, h=29, w=29), False)
    assert with_more.params("even:2") == dict(n=2, h=64, w=64)
    assert {p["h"] - p["w"] for key, p in with_more.test_shapes if key.startswith("joint")} == {0}


def test_of_a_timed_shape_the_first_that_can_be_judged_is():
    toy = task((("timed:0", dict(a=64, b=64)), ("timed:1", dict(a=32, b=64))), (("test:0", dict(a=2, b=3)),))
    sizes = {"joint:0:0": 2**24, "joint:0:1": 2**21, "joint:0:2": 2**20, "joint:1:0": 2**22 + 1, "joint:1:1": 2**20}
    with_more = planning.add_long_shapes(toy)
    assert with_more.params("joint:0:1") == dict(a=32, b=64)
    chosen = planning.make_long_cases(with_more, 3, lambda key: [Launch(1000, sizes.get(key, 2**30))], {})
    assert [(c.shape, c.sampled) for c in chosen] == [("joint:0:1", True), ("joint:1:1", True)]


def test_a_number_that_is_none_in_some_shapes_is_no_size_there():
    toy = task((("timed:0", dict(n=4096, window=512)),), (("test:0", dict(n=16, window=None)),))
    assert dict(planning.add_long_shapes(toy).test_shapes)["long:0"] == dict(n=4096, window=None)


def test_all_large_sizes_are_odd_together():
    """A kernel that is wrong in the last tile of two axes at once was right at every size that was judged."""
    toy = task((("timed:0", dict(a=1024, b=512)),), (("test:0", dict(a=16, b=32)),))
    with_more = planning.add_long_shapes(toy)
    assert with_more.params("joint:2:0") == dict(a=959, b=479) and with_more.params("joint:1:0") == dict(a=959, b=512)
    chosen = planning.make_long_cases(with_more, 3, lambda key: [Launch(1000, 2**20)], {})
    assert "joint:2:0" in [c.shape for c in chosen]


def test_a_shape_that_the_launcher_does_not_take_is_left_out():
    toy = task((("timed:0", dict(a=64, b=64, t="half")),), (("test:0", dict(a=2, b=3)),))

    def launched(key):
        if not key.startswith("long:1"):
            raise TaskError("b must be a multiple of 64")
        return [Launch(1, 64)]

    with_more = planning.add_long_shapes(toy)
    assert [c.shape for c in planning.make_long_cases(with_more, 3, launched, {})] == ["long:1"]
    assert [*planning.list_typed(with_more, launched)] == []
    assert [c.shape for c in planning.make_typed_cases(planning.list_typed(with_more, lambda key: []), 3)] == [
        "typed:0"
    ] * 8


def test_sizes_that_are_equal_when_timed_are_equal_when_judged():
    toy = task((("timed:0", dict(m=512, n=512, k=64)),), (("test:0", dict(m=1, n=2, k=3)),))
    assert dict(planning.add_long_shapes(toy).test_shapes)["equal:0"] == dict(m=80, n=80, k=3)


def test_negative_integers_are_no_sizes():
    toy = task((("timed:0", dict(a=64, b=64, low=-2)),), (("test:0", dict(a=2, b=3, low=-2)),))
    assert {params["low"] for _, params in planning.add_long_shapes(toy).test_shapes} == {-2}


def test_without_test_shapes_nothing_is_added():
    toy = task((("timed:0", dict(n=5)),), ())
    assert planning.add_long_shapes(toy) is toy


class Launch:
    def __init__(self, programs, numel):
        self.args, self.programs = {"x": torch.empty(numel, device="meta")}, programs

    def resolve_grid(self, meta):
        return (self.programs, 1, 1)


def test_only_what_the_interpreter_can_afford():
    toy = task((("timed:0", dict(a=64, b=65, c=66)),), (("test:0", dict(a=1, b=1, c=1)),))
    at = {"long:0": [Launch(4, 100)], "long:1": [Launch(1000, 100)], "long:2": [Launch(1, 2**20)]}
    chosen = planning.make_long_cases(planning.add_long_shapes(toy), 3, lambda key: at.get(key, [Launch(1, 2**30)]), {})
    assert [(c.shape, c.regime, c.seed, c.sampled) for c in chosen] == [
        ("long:0", "randn", 3, False), ("long:1", "randn", 3, True), ("long:2", "randn", 3, True),
    ]  # fmt: skip


def test_a_shape_that_the_task_refuses_is_left_out():
    """A normalisation of 8 groups has none of 4 channels, nor of 59: the launcher, its grid or the reference fails."""
    toy = task((("timed:0", dict(c=64, n=64)),), (("test:0", dict(c=8, n=3)),))
    with_more = planning.add_long_shapes(toy)

    def launched(key):
        channels = with_more.params(key)["c"]
        return [Launch(4, 100 // (channels // 32) if channels < 48 else 100)]

    def choose(is_taken):
        return [c.shape for c in planning.make_long_cases(with_more, 3, launched, {}, is_taken)]

    taken = choose(lambda key: with_more.params(key)["c"] % 8 == 0)
    assert with_more.params("odd:0") == dict(c=59, n=3) and "odd:0" in choose(lambda key: True)
    assert "odd:0" not in taken and "even:0" in taken and "joint:0:0" in taken and "long:1" not in taken
    assert choose(lambda key: False) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(7, 33), (2, 3, 5, 8)])
def test_padded_rows_hold_the_values_and_a_write_between_them_is_seen(dtype, shape):
    value = (torch.rand(shape) * 9).to(dtype)
    wide = tensors.pad_rows(value)
    assert torch.equal(wide, value) and wide.stride()[-2:] == (shape[-1] + 16, 1)
    assert not tensors.has_gap_changed(wide)
    wide.fill_(1)  # its own elements may change
    assert not tensors.has_gap_changed(wide)
    torch.as_strided(wide, (1,), (1,), shape[-1])[0] = 0
    assert tensors.has_gap_changed(wide)


def test_between_padded_rows_lies_nan_also_after_the_way_to_a_worker():
    wide = tensors.unpack(tensors.pack(tensors.pad_rows(torch.rand(3, 20))))
    assert wide.stride() == (36, 1)
    assert torch.isnan(torch.as_strided(wide, (2, 16), (36, 1), 20)).all()


def test_rows_that_lie_apart_already_are_laid_apart_anew():
    value = torch.rand(3, 40)[:, :20]
    wide = tensors.pad_rows(value)
    assert wide.stride() == (56, 1) and torch.equal(wide, value)


@pytest.mark.parametrize(
    "value", [torch.rand(9), torch.rand(4, 6).T, torch.rand(1, 5).expand(4, 5), torch.empty(0, 3), 3.0, None]
)
def test_what_has_no_rows_to_pad_stays_itself(value):
    assert tensors.pad_rows(value) is value and not tensors.has_gap_changed(value)


def test_a_shape_that_does_not_fit_is_halved_where_it_is_largest():
    toy = task((("timed:0", dict(rows=1024, cols=4)),), (("test:0", dict(rows=2, cols=2)),))

    def launched(changed, key):
        return [Launch(1, changed.params(key)["rows"] * changed.params(key)["cols"])]

    per_element = 4 * fit.STAGED + 8 * fit.FLOAT64S
    assert fit.write_fit_notes(toy, 4096 * per_element * 2, launched) == ()
    (note,) = fit.write_fit_notes(toy, 1500 * per_element, launched)
    assert "rows=1024 cols=4 needs about" in note and "rows=256 would fit" in note


def test_a_shape_whose_tensors_alone_do_not_fit_is_left_out():
    sizes = {"timed:0": dict(rows=8, cols=4), "timed:1": dict(rows=1 << 40, cols=4)}
    launches = {key: [Launch(1, params["rows"] * params["cols"])] for key, params in sizes.items()}
    left, (note,) = fit.leave_out_large(task(tuple(sizes.items()), ()), launches, 10**9)
    assert left.shapes == (("timed:0", sizes["timed:0"]),) and "rows=1099511627776 cols=4" in note
    with pytest.raises(TaskError, match="no timed shape fits"):
        fit.leave_out_large(task((("timed:1", sizes["timed:1"]),), ()), launches, 10**9)


def test_without_a_gpu_a_shape_must_fit_this_machine():
    timed = {"timed:0": dict(rows=8, cols=4), "timed:1": dict(rows=1 << 24, cols=4)}
    tests = {"test:0": dict(rows=8, cols=4), "test:1": dict(rows=1 << 20, cols=4)}
    launches = {k: [Launch(1, p["rows"] * p["cols"])] for k, p in {**timed, **tests}.items()}
    whole = task(tuple(timed.items()), tuple(tests.items()))
    assert fit.leave_out_large(whole, launches, 10**11) == (whole, ())
    left, notes = fit.leave_out_large(whole, launches, 10**11, 10**8)
    assert [key for key, _ in (*left.shapes, *left.test_shapes)] == ["timed:0", "test:0"]
    assert (
        "the timed shape rows=16777216 cols=4 needs" in notes[0] and "this machine has 0 GB: it is left out" in notes[0]
    )
    assert "the test shape rows=1048576 cols=4 needs" in notes[1] and " bytes) " in notes[1]
    alone = replace(whole, test_shapes=whole.test_shapes[1:])
    with pytest.raises(TaskError, match="no test shape fits"):
        fit.leave_out_large(alone, launches, 10**11, 10**8)


def test_views_of_one_memory_count_once():
    launch, whole = Launch(1, 1), torch.empty(1 << 20, 1, device="meta")
    launch.args = {"whole": whole, "half": whole[: 1 << 19], "wide": whole.expand(-1, 64)}
    left, notes = fit.leave_out_large(task((("timed:0", dict(rows=8)),), ()), {"timed:0": [launch]}, 5 * 2**20)
    assert len(left.shapes) == 1 and not notes


def test_two_sizes_that_may_be_equal_are_so_in_a_drawn_shape():
    """A kernel that took one axis for the other only in squares was right at every shape that was judged."""
    toy = task((("timed:0", dict(rows=4096, cols=1024, heads=4)),), (("test:0", dict(rows=5, cols=33, heads=2)),))
    for seed in range(5):
        keys = drawn_sizes.draw_shapes(toy, seed, 4, lambda key: 0, 1, lambda key: True)
        *others, square = [dict(part.split("=") for part in key.rpartition(":")[2].split()) for key in keys]
        assert len(others) == 4 and square["rows"] == square["cols"]
        assert 33 <= int(square["rows"]) <= 1024 and 2 <= int(square["heads"]) <= 4


def test_sizes_are_drawn_that_are_large_together():
    """What a kernel did only where rows and columns were both many, and no multiple of 16, was never judged."""
    toy = task((("timed:0", dict(rows=4096, cols=1024, heads=4)),), (("test:0", dict(rows=5, cols=33, heads=2)),))
    for seed in range(20):
        large, any_size = drawn_sizes.draw_large(toy, seed, 2, lambda key: True)
        rows, cols = (int(part.partition("=")[2]) for part in large.rpartition(":")[2].split()[:2])
        assert 2048 <= rows <= 4096 and 512 <= cols <= 1024 and rows % 16 and cols % 16
        assert any_size != large

    def takes_multiples(key):
        return all(int(part.partition("=")[2]) % 16 == 0 for part in key.rpartition(":")[2].split()[:2])

    assert any(drawn_sizes.draw_large(toy, seed, 1, takes_multiples) for seed in range(5))


def test_on_a_gpu_made_sizes_run_whole_and_are_fewer():
    toy = task((("timed:0", dict(a=64, b=65, c=66)),), (("test:0", dict(a=1, b=1, c=1)),))
    launches = lambda key: [Launch(1000, 100 if key != "long:0" else 2**20)]  # noqa: E731
    chosen = planning.make_long_cases(planning.add_long_shapes(toy), 3, launches, {}, on_gpu=True)
    assert not any(c.sampled for c in chosen)
    assert [c.shape for c in chosen if c.kind == "long"] == ["long:1", "long:2"]


def test_sizes_keep_what_divides_them_everywhere():
    """The depth of a product in groups of 128 was only ever a power of two, as all else was refused."""
    toy = task((("timed:0", dict(n=64, k=4096)),), (("test:0", dict(n=3, k=384)), ("test:1", dict(n=5, k=128))))
    assert dict(planning.add_long_shapes(toy).test_shapes)["even:1"] == dict(n=5, k=3840)

    def takes(key):
        return int(key.rpartition("k=")[2]) % 128 == 0

    keys = drawn_sizes.draw_shapes(toy, 3, 8, lambda key: 1, 10, takes)
    depths = [int(key.rpartition("k=")[2]) for key in keys]
    assert len(depths) == 8 and any(depth & (depth - 1) for depth in depths)


def test_a_size_that_is_a_multiple_of_another_everywhere_stays_one():
    shapes = [(f"timed:{n}", dict(heads=h, groups=g)) for n, (h, g) in enumerate([(64, 8), (48, 4)])]
    toy = task(tuple(shapes), (("test:0", dict(heads=4, groups=2)), ("test:1", dict(heads=3, groups=1))))

    def takes(key):
        heads, groups = (int(part.partition("=")[2]) for part in key.rpartition(":")[2].split())
        return heads % groups == 0

    keys = drawn_sizes.draw_shapes(toy, 5, 8, lambda key: 1, 10, takes)
    assert len({key.rpartition("groups=")[2] for key in keys}) >= 4


def test_the_largest_of_each_size_comes_first():
    """Of 36 shapes the first six had one width and five heights."""
    shapes = [
        (f"timed:{n}", dict(rows=r, cols=c)) for n, (r, c) in enumerate([(r, c) for c in (64, 512) for r in (8, 9)])
    ]
    long = dict(planning.add_long_shapes(task(tuple(shapes), (("test:0", dict(rows=1, cols=3)),))).test_shapes)
    assert long["long:0"] == dict(rows=9, cols=3) and long["long:1"] == dict(rows=1, cols=512)


def test_one_stride_of_one_input_may_be_larger():
    inputs, names = [torch.rand(3, 20), 2, torch.rand(1, 2, 3, 5)], ("x", "n", "k")
    assert [*tensors.list_strides(inputs, names)] == ["x.stride(0)", "k.stride(1)", "k.stride(2)"]
    alike = tensors.list_strides([*inputs, torch.ones(3, 20)], (*names, "y"))
    assert alike["x.stride(0) and y.stride(0)"] == ([0, 3], -2) and len(alike) == 5
    strides = {
        of: [v.stride() for v in tensors.pad_inputs(inputs, names, of) if torch.is_tensor(v)]
        for of in ("x.stride(0)", "k.stride(1)", "k.stride(2)", regime_words.PADDED)
    }
    assert strides == {
        "x.stride(0)": [(36, 1), (30, 15, 5, 1)],
        "k.stride(1)": [(20, 1), (62, 31, 5, 1)],
        "k.stride(2)": [(20, 1), (126, 63, 21, 1)],
        regime_words.PADDED: [(36, 1), (126, 63, 21, 1)],
    }


def test_lists_of_lengths_are_drawn_in_their_range_and_keep_what_holds_of_pairs():
    pairs, lengths = ((100, 100), (1, 257), (33, 33)), [0, 7, 300]
    toy = task((("timed:0", dict(at=pairs, lens=lengths, axes=(1, 2), d=64)),), ())
    drawn = [
        toy.params(key)
        for seed in range(20)
        for key in drawn_sizes.draw_lists(toy, seed, 4, lambda key: 1, 9, lambda key: True)
    ]
    assert len(drawn) == 80 and all(p["axes"] == (1, 2) and p["d"] == 64 for p in drawn)
    found = [pair for p in drawn for pair in p["at"]]
    assert all(1 <= q <= k for q, k in found) and {type(p["at"][0]) for p in drawn} == {tuple}
    assert max(q for q, _ in found) <= 101 and {len(p["at"]) for p in drawn} == {1, 2, 3}
    assert sum((k - q) % 16 in (0, 1, 15) for q, k in found) > len(found) / 3
    assert {0} < {n for p in drawn for n in p["lens"]} and all(type(p["lens"]) is list for p in drawn)
    assert drawn_sizes.draw_lists(toy, 3, 4, lambda key: 10, 9, lambda key: True) == []


def test_a_drawn_size_is_one_more_than_many_blocks():
    """A grid of `cdiv(n - 1, BLOCK)` leaves out the last element where it is alone in its block."""
    toy = task((("timed:0", dict(n=500_000)),), (("test:0", dict(n=3000)),))
    for seed in range(5):
        keys = drawn_sizes.draw_shapes(toy, seed, 4, lambda key: 1, 10, lambda key: True)
        assert any(toy.params(key)["n"] % 1024 == 1 for key in keys), keys


def test_of_cases_that_take_too_long_each_kind_of_values_keeps_one():
    """A slow reference was run at all of them, until the judge's time was over."""
    shapes, regimes = ("test:0", "test:1"), ("mixed", "randn", "sparse")
    cases = tuple(JudgedCase(s, r, seed) for seed in range(9) for s in shapes for r in regimes)
    seconds = {"test:0": 1.0, "test:1": 2.0}.__getitem__
    kept = planning.cut_cases(cases, seconds, 10.0)
    assert sum(seconds(c.shape) for c in kept) <= 10.0 and list(kept) == sorted(kept, key=cases.index)
    assert {(c.shape, c.regime) for c in kept} == {(s, r) for s in shapes for r in regimes}
    assert planning.cut_cases(cases, seconds, 1000.0) == cases
    assert planning.cut_cases(cases, seconds, 0.5) == cases[:1]  # of none nothing would be known
