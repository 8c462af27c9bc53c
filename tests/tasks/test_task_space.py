"""Where a task's space comes from: its file, its autotuner, or its names."""

import pytest
import triton
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.core.errors import SpaceError
from kernelsearch.core.types import LaunchFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import pipelines_loops
from kernelsearch.tasks.space import find_numbers, is_tunable, powers_around

SEED = Kernel.parse(
    "import triton\nimport triton.language as tl\n@triton.jit\n"
    "def k(x_ptr, n, BLOCK: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr):\n"
    "    for i in range(n):\n        tl.dot(x_ptr, x_ptr)\n"
)


def plain(x_ptr, n, BLOCK, ROWS, HEAD_DIM, CAUSAL):
    """Stands for the function under the decorators."""


def traces(*rows, grid=None, **options):
    return [Trace(f"test:{i}", (LaunchFact("k", dict(row), options, grid),)) for i, row in enumerate(rows)]


SAME = dict(n=100, BLOCK=256, ROWS=2, HEAD_DIM=64, CAUSAL=True)


def test_declared():
    found = find_numbers(
        {"BLOCK": [128, 512], "num_warps": [2, 8]}, None, {"k": plain}, SEED, traces(SAME, num_warps=4)
    )
    assert found.space == {"BLOCK": (128, 256, 512), "num_warps": (2, 4, 8)}  # the seed's own values are in it
    assert found.config == {"BLOCK": 256, "num_warps": 4} and found.notes == ()


def test_declared_config_wins():
    assert find_numbers({"BLOCK": [128]}, {"BLOCK": 128}, {"k": plain}, SEED, traces(SAME)).config == {"BLOCK": 128}


def test_inferred_never_takes_flags_or_dimensions():
    found = find_numbers(None, None, {"k": plain}, SEED, traces(SAME, SAME))
    assert set(found.space) == {"BLOCK", "ROWS", "num_warps", "num_stages"}
    assert found.space["BLOCK"] == (64, 128, 256, 512, 1024) and found.space["ROWS"] == (1, 2, 4, 8)
    assert found.config == {"BLOCK": 256, "ROWS": 2, "num_warps": 4, "num_stages": 3}
    assert "inferred" in found.notes[0]


@pytest.mark.parametrize(
    ("loop", "pipelined"),
    [
        ("for i in range(n):\n        tl.dot(x, x)", True),
        ("for i in tl.range(0, n):\n        for j in range(4):\n            helper(x)", True),
        ("for i in range(n):\n        tl.sum(x)", False),
        ("for i in tl.range(0, n, num_stages=4):\n        tl.dot(x, x)", False),
        ("for i in tl.static_range(4):\n        tl.dot(x, x)", False),
        ("while n > 0:\n        tl.dot(x, x)", False),
        ("tl.dot(x, x)", False),
    ],
)
def test_stages_are_tuned_where_a_loop_can_have_them(loop, pipelined):
    """Where it is so, and nowhere else, the machine code differs with num_stages (Triton 3.6, sm_80 and sm_90)."""
    text = f"@triton.jit\ndef k(x, n):\n    {loop}\n\n\n@triton.jit\ndef helper(x):\n    return tl.dot(x, x)\n"
    kernel = Kernel.parse("import triton\nimport triton.language as tl\n" + text)
    assert pipelines_loops(kernel, "k") is pipelined


def test_what_the_launcher_computes_from_the_shape_is_left_to_it():
    found = find_numbers(None, None, {"k": plain}, SEED, traces(SAME, dict(SAME, BLOCK=1024)))
    assert "BLOCK" not in found.space and "ROWS" in found.space
    assert found.notes[1].startswith("not tuned: BLOCK, which the launcher computes from the shape")


def test_the_seed_has_the_options_of_the_first_timed_shape():
    """Else its first trial, against which gains are counted, is another kernel than the user's."""
    launches = [Trace(key, (LaunchFact("k", SAME, {"num_warps": warps}, None),)) for key, warps in
                (("test:0", 1), ("timed:0", 8), ("timed:1", 4))]  # fmt: skip
    assert find_numbers(None, None, {"k": plain}, SEED, launches).config["num_warps"] == 8


def test_a_plain_grid_cannot_follow_a_tile():
    assert set(find_numbers(None, None, {"k": plain}, SEED, traces(SAME, grid=(4,))).space) == {
        "num_warps",
        "num_stages",
    }


def test_what_is_not_tuned_is_said_with_what_would_tune_it():
    cols = Kernel.parse(
        "import triton.language as tl\n@triton.jit\n"
        "def k(x_ptr, n, BLOCK: tl.constexpr, COLS: tl.constexpr, CAUSAL: tl.constexpr):\n    pass\n"
    )
    args = dict(n=100, BLOCK=256, COLS=64, CAUSAL=True)
    (_, names) = find_numbers(None, None, {"k": plain}, cols, traces(args)).notes
    assert names == "not tuned: COLS=64, which may be a size of the problem: if it is a tile, name it in SPACE"
    (_, names, fixed) = find_numbers(None, None, {"k": plain}, cols, traces(args, grid=(4,))).notes
    assert fixed.startswith("not tuned: BLOCK=256, because the launcher's grid is a tuple") and "COLS" not in fixed
    assert find_numbers({"BLOCK": [256]}, None, {"k": plain}, cols, traces(args)).notes == (), (
        "a declared space is as it was meant"
    )


BY_USE = """import triton
import triton.language as tl
@triton.jit
def k(x_ptr, y_ptr, s_ptr, n, D, SEGMENT: tl.constexpr, CHANNELS: tl.constexpr, SCALED: tl.constexpr):
    d = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros((CHANNELS,), tl.float32)
    for start in range(0, n, SEGMENT):
        at = start + tl.arange(0, SEGMENT)
        x = tl.load(x_ptr + at[:, None] * D + d[None, :], mask=(at[:, None] < n) & (d[None, :] < D), other=0.0)
        total += tl.sum(x, 0)
    tl.store(y_ptr + d, total * tl.load(s_ptr + d // SCALED), mask=d < D)
"""


@pytest.mark.parametrize(("read", "tuned"), [(("CHANNELS",), {"SEGMENT", "CHANNELS"}), ((), {"SEGMENT"})])
def test_a_tile_of_any_name_is_tuned_where_its_use_shows_it(read, tuned):
    """By steps of a loop, or by a division along an axis of the grid if the launcher's grid reads it too."""
    args = dict(n=100, D=64, SEGMENT=16, CHANNELS=32, SCALED=8)
    found = find_numbers(
        None, None, {"k": plain}, Kernel.parse(BY_USE), [Trace("test:0", (LaunchFact("k", args, tiles=read),))]
    )
    assert set(found.space) - {"num_warps", "num_stages"} == tuned
    assert ("SCALED=8" in found.notes[1]) and ("CHANNELS" in found.notes[1]) is ("CHANNELS" not in tuned)


def test_autotuned_is_the_union():
    configs = [triton.Config({"BLOCK": 64, "CAUSAL": True}), triton.Config({"BLOCK": 256}, num_warps=8, num_stages=2)]
    tuned = triton.autotune(configs, key=[])(_Fake())
    found = find_numbers(None, None, {"k": tuned}, SEED, traces(dict(n=1)))
    assert found.space == {"BLOCK": (64, 256), "CAUSAL": (True,), "num_warps": (4, 8), "num_stages": (2, 3)}
    assert found.config == {"BLOCK": 64, "CAUSAL": True, "num_warps": 4, "num_stages": 3}


def test_two_sites_have_dotted_names():
    two = Kernel.parse(
        "import triton\n@triton.jit\ndef a(x, BLOCK: tl.constexpr):\n    pass\n@triton.jit\ndef b(x):\n    pass\n"
    )
    rows = [Trace("timed:0", (LaunchFact("a", {"BLOCK": 64}), LaunchFact("b", {}, {"num_warps": 8})))]
    found = find_numbers(None, None, {"a": plain, "b": plain}, two, rows)
    assert set(found.space) == {"a.BLOCK", "a.num_warps", "b.num_warps"}
    assert found.config == {"a.BLOCK": 64, "a.num_warps": 4, "b.num_warps": 8}


@pytest.mark.parametrize(
    ("declared", "says"),
    [({}, "empty"), ({"BLOCKS": [1]}, "no constexpr of k"), ({"BLOCK": []}, "non-empty"), ([1], "dict")],
)
def test_a_space_that_is_none(declared, says):
    with pytest.raises(SpaceError, match=says):
        find_numbers(declared, None, {"k": plain}, SEED, traces(SAME))


@given(st.integers(0, 14))
def test_around_holds_its_middle_and_only_powers_of_two(exponent):
    values = powers_around(2**exponent, 1)
    assert 2**exponent in values and all(v & (v - 1) == 0 for v in values) and list(values) == sorted(values)


@pytest.mark.parametrize(
    ("name", "value", "yes"),
    [("BLOCK_SIZE_M", 64, True), ("GROUP_M", 8, True), ("SPLIT_K", 1, True), ("TILE", 96, False),
     ("IS_BLOCKED", True, False), ("BLOCK_DMODEL", 64, False), ("BLOCK_HEADDIM", 64, False),
     ("BLOCK_D", 64, False), ("HEAD_DIM", 64, False),
     ("BM", 64, True), ("B_K", 32, True), ("BD", 64, False), ("NB", 8, False)],
)  # fmt: skip
def test_tunable(name, value, yes):
    assert is_tunable(name, value) is yes


class _Fake:
    """The least of a jit function that `triton.autotune` looks at."""

    arg_names = ("x_ptr", "n", "BLOCK")
    fn = staticmethod(plain)


def test_a_space_without_one_possible_num_warps_is_refused():
    """The launcher's own value joins the space, but must not hide that the file's are all impossible."""
    with pytest.raises(SpaceError, match=r"num_warps is a power of two from 1 to 32, not one of \[3, 5\]"):
        find_numbers({"num_warps": [3, 5]}, None, {"k": plain}, SEED, traces(SAME, num_warps=4))


def constrained(*texts):
    return SEED.with_changes(constraints=texts)


def test_a_misspelt_name_is_said_with_the_nearest():
    for space, config, said in (
        ({"num_warp": [4]}, None, "SPACE has 'num_warp'.*did you mean 'num_warps'"),
        (None, {"BLOK": 4}, "CONFIG has 'BLOK'.*did you mean 'BLOCK'"),
        (None, {"launch_pdl": True}, "CONFIG has 'launch_pdl'.*options are num_warps"),
        (None, {"j.BLOCK": 4}, "CONFIG has 'j.BLOCK', which is no constexpr of j"),
    ):
        with pytest.raises(SpaceError, match=said):
            find_numbers(space, config, {"k": plain}, SEED, traces(SAME))
    assert find_numbers(None, {"n": 7, "k.ROWS": 4}, {"k": plain}, SEED, traces(SAME)).config["k.ROWS"] == 4


def test_constraints_are_expressions_over_the_seeds_numbers():
    good = constrained("BLOCK * ROWS <= 16384", "num_warps > 1", "BLOCK > n or CAUSAL")
    assert find_numbers(None, None, {"k": plain}, good, traces(SAME)).space["ROWS"] == (1, 2, 4, 8)
    for text, said in (
        ("BLOCK.x < 3", "CONSTRAINTS: Attribute is not allowed"),
        ("BLOC < 3", "CONSTRAINTS has 'BLOC'.*did you mean 'BLOCK'"),
        ("numel(x_ptr) > BLOCK", "CONSTRAINTS has 'x_ptr'"),
    ):
        with pytest.raises(SpaceError, match=said):
            find_numbers(None, None, {"k": plain}, constrained(text), traces(SAME))
