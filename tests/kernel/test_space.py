"""What a space promises: its product, its neighbours, and which configs are never worth a trial."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.core.errors import SpaceError
from kernelsearch.core.types import LaunchFact, ShapeFact, TaskFacts, TensorFact, Trace, config_key
from kernelsearch.kernel import space as spaces
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space, largest_block_of

ROW = Kernel.parse(
    """
import triton
import triton.language as tl

@triton.jit
def row_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    acc = tl.zeros((ROWS, BLOCK // 2), dtype=tl.float32)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < n))
"""
)

numbers = st.dictionaries(
    st.sampled_from("ABCD"), st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=4).map(tuple), min_size=1
)
mixed = st.dictionaries(
    st.sampled_from("ABC"),
    st.lists(st.sampled_from([True, None, "n", 3]), min_size=1, max_size=3).map(tuple),
    min_size=1,
)


@given(st.one_of(numbers, mixed))
def test_the_product_has_size_distinct_configs(values):
    space = Space(values)
    keys = [config_key(c) for c in space.iterate_configs()]
    assert len(keys) == len(set(keys)) == space.size
    assert all(c in space for c in space.iterate_configs())


@given(st.one_of(numbers, mixed), st.randoms())
def test_outward_visits_every_config_once_and_the_nearest_first(values, random):
    space = Space(values)
    start = random.choice(list(space.iterate_configs()))
    visited = [config_key(c) for c in space.iterate_outward(start)]
    assert visited[0] == config_key(start)
    assert sorted(visited) == sorted(config_key(c) for c in space.iterate_configs())
    near = {config_key(c) for c in space.iterate_neighbours(start)}
    assert set(visited[1 : 1 + len(near)]) == near


@given(st.one_of(numbers, mixed), st.randoms())
def test_outward_goes_as_neighbours_lead(values, random):
    space = Space(values)
    level = [random.choice(list(space.iterate_configs()))]
    visited, seen = list(level), {config_key(level[0])}
    while level:
        level = [
            n
            for at in level
            for n in space.iterate_neighbours(at)
            if not (config_key(n) in seen or seen.add(config_key(n)))
        ]
        visited += level
    assert list(space.iterate_outward(visited[0])) == visited


@given(numbers)
def test_being_a_neighbour_is_mutual_and_changes_one_name(values):
    space = Space(values)
    for config in itertools.islice(space.iterate_configs(), 20):
        for near in space.iterate_neighbours(config):
            assert sum(near[n] != config[n] for n in space.values) == 1
            assert config in list(space.iterate_neighbours(near))


def test_a_start_outside_the_space_still_reaches_all_of_it():
    space = Space({"BLOCK": (64, 256), "num_warps": (4,)})
    assert [c["BLOCK"] for c in space.iterate_outward({"BLOCK": 128, "num_warps": 4})] == [64, 256]
    assert len(list(space.iterate_outward({}))) == 2


def test_a_bool_is_not_the_number_one():
    space = Space({"FLAG": (True, False)})
    assert {"FLAG": 1} not in space and {"FLAG": True} in space


@pytest.mark.parametrize("values", [{"BLOCK": ()}, {"BLOCK": 4}, {"BLOCK": "128"}])
def test_a_name_without_a_list_of_values_is_a_space_error(values):
    with pytest.raises(SpaceError, match="BLOCK"):
        Space(values)


def test_an_empty_and_an_impossible_space_are_space_errors():
    with pytest.raises(SpaceError, match="empty"):
        spaces.require_possible_config(Space({}), ROW, spaces.is_possible)
    with pytest.raises(SpaceError, match="none of the 2 configs"):
        spaces.require_possible_config(Space({"num_warps": (3, 5)}), ROW, spaces.is_possible)
    spaces.require_possible_config(Space({"num_warps": (3, 4)}), ROW, spaces.is_possible)
    large = Space({"num_warps": (3, 4), **{f"k{i}.num_warps": tuple(range(10)) for i in range(5)}})
    with pytest.raises(SpaceError, match="none of the 200000 configs"):  # the last names change fastest
        spaces.require_possible_config(large, ROW, spaces.is_possible)
    start = {"num_warps": 4, **{f"k{i}.num_warps": 4 for i in range(5)}}
    spaces.require_possible_config(large, ROW, spaces.is_possible, start)


@pytest.mark.parametrize(
    ("config", "answer"),
    [
        ({"BLOCK": 4096, "ROWS": 1, "num_warps": 1}, True),  # 128 elements a thread
        ({"BLOCK": 8192, "ROWS": 1, "num_warps": 1}, False),
        ({"BLOCK": 4096, "ROWS": 4, "num_warps": 1}, False),  # the accumulator, ROWS * BLOCK // 2
        ({"BLOCK": 4096, "ROWS": 4, "num_warps": 2}, True),
        ({"BLOCK": 65536, "num_warps": 8}, False),
        ({"BLOCK": "next_power_of_2(n)", "num_warps": 1}, True),  # unknown here
        ({"num_warps": 6}, False),
        ({"num_warps": 64}, False),
        ({"num_warps": "num_sms"}, True),
        ({"BLOCK": 16384, "ROWS": 1}, True),  # Triton's own four warps
        ({"BLOCK": 32768, "ROWS": 1}, False),
        ({"BLOCK": 32768, "ROWS": 1, "row_kernel.num_warps": 8}, True),
    ],
)
def test_what_is_known_to_be_impossible(config, answer):
    assert spaces.is_possible(ROW, config) is answer


SUMS = """
import triton
import triton.language as tl

@triton.jit
def sum_kernel(n, BLOCK: tl.constexpr):
    total = tl.zeros((128, BLOCK), dtype=tl.float32)
    for _ in tl.range(n, warp_specialize=True):
        total += 1.0
"""


def test_the_warps_that_share_out_the_blocks_of_a_specialised_loop_are_counted():
    plain = SUMS.replace(", warp_specialize=True", "")
    config = {"BLOCK": 256, "num_warps": 4}
    assert spaces.is_possible(Kernel.parse(SUMS), config) and not spaces.is_possible(Kernel.parse(plain), config)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("BLOCK", True),
        ("num_warps", True),
        ("maxnreg", True),
        ("SPLIT", False),
        ("row_kernel.BLOCK", True),
        ("other.BLOCK", False),
        ("other.num_warps", False),
    ],
)
def test_which_names_still_exist(name, answer):
    assert spaces.is_name_of(name, ROW) is answer


def test_a_sites_numbers_count_for_every_step_at_it():
    whole = Kernel.parse("""
LAUNCHES = {"f": ["f_partial", "f"]}
@triton.jit
def f_partial(x_ptr, BLOCK: tl.constexpr): x = tl.load(x_ptr + tl.arange(0, BLOCK))
@triton.jit
def f(x_ptr): pass
""")
    assert spaces.is_name_of("f.BLOCK", whole) and spaces.is_name_of("f_partial.BLOCK", whole)
    assert not spaces.is_name_of("f.ROWS", whole) and not spaces.is_name_of("g.BLOCK", whole)
    large = {"f.BLOCK": 32768, "f.num_warps": 4}
    assert not spaces.is_possible(whole, large) and spaces.is_possible(whole, {**large, "f.num_warps": 8})
    assert spaces.is_possible(whole, {**large, "f_partial.BLOCK": 1024})


def test_blocks_that_only_the_launcher_sets_are_known_from_the_traces_of_the_timed_shapes():
    def fact(key, block):
        launch = LaunchFact("row_kernel", {"x_ptr": TensorFact("fp32", (4,), (1,)), "n": 4, "BLOCK": block, "ROWS": 1})
        return ShapeFact(key, key, {}), Trace(key, (launch,))

    pairs = [fact("timed:0", 1024), fact("timed:1", 8192), fact("test:0", 65536)]
    task = TaskFacts(
        "row", "row.py", "d", "native", "", ("row_kernel",), (pairs[0][0], pairs[1][0]), (pairs[2][0],), {}, {},
        traces={shape.key: trace for shape, trace in pairs},
    )  # fmt: skip
    possible = spaces.TaskPredicate(task)
    assert possible(ROW, {"num_warps": 1}) and possible.find_shapes(ROW, {"num_warps": 1}) == {"timed:0"}
    assert possible.find_shapes(ROW, {"num_warps": 2}) == {"timed:0", "timed:1"}
    both = replace(task, traces={**task.traces, "timed:0": task.traces["test:0"]})
    assert not spaces.TaskPredicate(both)(ROW, {"num_warps": 1})
    assert possible(ROW, {"num_warps": 1, "BLOCK": 4096})  # a config overrides what the launcher passes
    assert spaces.is_possible(ROW, {"num_warps": 1})


def test_a_block_that_two_ranges_span_counts_whole():
    """[:, None] against [None, :] is one block; in a matrix product columns and rows of two operands never meet."""
    crossed = (
        "@triton.jit\ndef k(x, ROWS: tl.constexpr, BLOCK: tl.constexpr):\n"
        "    rows = tl.arange(0, ROWS)\n"
        "    y = tl.load(x + rows[:, None] * 8 + tl.arange(0, BLOCK)[None, :])\n"
    )
    assert largest_block_of(crossed, {"ROWS": 32, "BLOCK": 8192}) == 32 * 8192
    assert largest_block_of(crossed + "    z = tl.dot(y, y)\n", {"ROWS": 32, "BLOCK": 8192}) == 8192
    named = crossed.replace("arange(0, ROWS)", "arange(0, end=ROWS)")  # is not read, and is no fault
    assert largest_block_of(named, {"ROWS": 32, "BLOCK": 8192}) == 8192
