"""Kernels with exactly one fault are diagnosed rightly from the binary alone; healthy ones raise no alarm."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triton import knobs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hints"))

import binary_alone

from kernelsearch.compile.code import Access, Code, InstructionCounts, Loop, Work
from kernelsearch.core import formats
from kernelsearch.core.types import (
    LAUNCH_OPTIONS,
    Hint,
    Outcome,
    Proposal,
    ProposalKind,
    TensorFact,
    Trial,
    Verdict,
    Word,
)
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.measure.hints import findings as hinting
from kernelsearch.measure.hints.changes import (
    BOTTLENECKS,
    CHANGES,
    NOT_EDITS,
    format_suggestion,
    list_suggested_edits,
    make_finding,
    round_for_people,
    withdraw_tried,
    word_of,
)
from kernelsearch.measure.hints.detectors import DETECTORS
from kernelsearch.measure.hints.memory_detectors import _advise_on_occupancy, detect_narrow_loads, detect_second_read
from kernelsearch.measure.static_model import device_launch
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.occupancy import BinaryResources
from kernelsearch.propose.edits.registry import EDITS
from made_outcomes import accept

H100 = target_by_name("h100")


@pytest.fixture(scope="module", autouse=True)
def quiet_compiler(tmp_path_factory):
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path_factory.mktemp("cache"))
        knobs.compilation.disable_line_info = True
        yield


@pytest.mark.slow
@pytest.mark.parametrize("path", binary_alone.KERNELS, ids=lambda p: p.stem)
def test_the_one_fault_is_the_first_hint(path):
    said = binary_alone.said(path)
    calls = binary_alone.calls(path)
    first, *others = hinting.make_hints(calls)
    assert binary_alone.agrees(said, first.bottleneck, word_of(first)), first
    assert len(first.evidence) <= 4 and len(others) < hinting.MOST
    for hint in (first, *others):
        head, why, advice = formats.explain_hint(hint)
        assert hint.name in head and why.endswith(".") and not re.search("[a-z]_[a-z]+ [0-9]", why), why
        assert bool(hint.lost) == bool("x faster (an estimate), if " in head) and ": " in advice
    if said["fault"] == "none":
        assert all(f.lost == 0 for c in calls for f in hinting.diagnose(c))


@pytest.mark.parametrize(
    ("name", "bottleneck", "word", "faulty"),
    [
        ("column_sum", "occupancy", "split_reduction", True), ("cross_entropy", "memory bandwidth", "online", True),
        ("softmax_wide", "memory bandwidth", "online", True), ("matmul", "memory bandwidth", "tile size", True),
        ("rmsnorm", "memory bandwidth", "none", False), ("swiglu", "memory bandwidth", "none", False),
        ("layernorm", "memory bandwidth", "rows_2d", False),
    ],
)  # fmt: skip
def test_the_shipped_seeds(name, bottleneck, word, faulty):
    call = binary_alone.calls(Path(__file__).resolve().parents[2] / "studies" / name / f"{name}.py")[0]
    first = hinting.diagnose(call)[0]
    assert (first.hint.bottleneck, word_of(first.hint)) == (bottleneck, word)
    assert (first.lost > 0) == faulty


@pytest.mark.parametrize(
    ("missing", "words"),
    [((), ["gluon_product", "streamed_product"]), (("gluon_product", "gluon_attention"), ["streamed_product"])],
)
def test_a_way_in_gluon_comes_with_the_one_in_triton(missing, words):
    call = binary_alone.calls(Path(binary_alone.__file__).with_name("healthy_matmul.py"))[0]
    found = hinting.diagnose(replace(call, applies=lambda _, edit: edit not in missing))
    assert [word_of(f.hint) for f in found] == words
    assert [
        word_of(h) for h in hinting.make_hints([replace(call, applies=lambda _, edit: edit not in missing)])
    ] == words


def test_every_kind_of_fault_has_a_kernel():
    said = [binary_alone.said(p) for p in binary_alone.KERNELS]
    assert {s["bottleneck"] for s in said if s["fault"] != "none"} == set(BOTTLENECKS)
    assert sum(s["fault"] == "none" for s in said) >= 5


def test_suggestions_are_in_the_words_of_the_edits():
    edits = {e.name for e in EDITS}
    assert set(CHANGES) - NOT_EDITS <= edits
    assert NOT_EDITS - {"tile size", "none"} <= set(LAUNCH_OPTIONS)
    with pytest.raises(KeyError):
        format_suggestion("faster", "be faster")
    hints = [Hint("issue", {}, format_suggestion(w, "x")) for w in ("exp2", "num_warps", "none", "exp2", "rows_2d")]
    assert list_suggested_edits(hints) == ("exp2", "rows_2d")


def test_a_finding_has_at_most_four_numbers_and_a_known_bottleneck():
    with pytest.raises(ValueError, match="5 numbers"):
        make_finding(0.5, "issue", "Rule", "Why.", "none: more", a=1, b=2, c=3, d=4, e=5)
    with pytest.raises(ValueError, match="bad luck"):
        make_finding(0.5, "bad luck", "Rule", "Why.", "none: more")
    with pytest.raises(ValueError, match="may not apply: exp2"):
        make_finding(0.5, "issue", "Rule", "Why.", "none: more", "exp2")
    assert round_for_people(1234567.0) == 1234567 and round_for_people(0.123456) == 0.123


# ---------------------------------------------------------------- arithmetic of one launch

LOOP = Loop(0, ("arg", "n"), 128)


def row_sum(programs=65536, n=4096, tile=128, stride=1, **machine):
    load = Access("load", "x", 4, (tile,), (stride,), (LOOP,), 1)
    store = Access("store", "y", 4, (), (), (), 2)
    args = {"x": TensorFact("fp32", (programs, n), (n, 1)), "y": TensorFact("fp32", (programs,), (1,)), "n": n}
    binary = replace(BinaryResources(4, 32, 0, 0, InstructionCounts(loads={16: 1})), **machine)
    return DeviceLaunch(
        "k", binary, Code((load, store), (), (Work("float", tile, (LOOP,)),)), (programs, 1, 1), args, H100
    )


def test_bytes_and_loops_follow_from_the_arguments():
    launch = row_sum()
    assert launch.trips_of((LOOP,)) == 32
    assert launch.traffic == 65536 * 4096 * 4 + 65536 * 4
    assert launch.footprint == launch.traffic
    assert launch.roofline_us == pytest.approx(launch.footprint / 3350e3)
    assert launch.evaluate(("//", ("+", ("arg", "n"), ("pid", 0)), 7)) == (4096 + 32768) // 7
    assert launch.evaluate(("//", 3, ("-", ("arg", "n"), 4096))) is None
    assert launch.trips_of((Loop(0, ("arg", "missing"), 128),)) == 1


@pytest.mark.parametrize(
    ("shape", "strides", "over"),
    [((128,), (1,), 1), ((128,), (2,), 2), ((128,), (1000,), 8), ((64, 64), (4096, 1), 1), ((64, 4), (4096, 1), 2),
     ((4, 64), (1, 4096), 2), ((64, 64), (1, 4096), 1), ((32, 1), (4096, 1), 8), ((128,), (None,), 1),
     ((8, 128), (0, 1), 1)],
)  # fmt: skip
def test_sectors_fetched_over_used(shape, strides, over):
    access = Access("load", "x", 4, shape, strides, (), 1)
    assert row_sum().sector_ratio_of(access) == pytest.approx(over)


@given(st.integers(1, 2**20), st.integers(1, 2**14), st.sampled_from([1, 2, 8, 4096]), st.sampled_from([1, 4, 16]))
def test_no_launch_breaks_the_detectors(programs, n, stride, num_warps):
    launch = row_sum(programs, n, stride=stride, num_warps=num_warps)
    for detect in DETECTORS:
        found = detect(launch)
        assert found is None or (0 <= found.lost <= 1 and found.hint.bottleneck in BOTTLENECKS)
    hints = hinting.make_hints([hinting.LauncherCall("s", (launch,))])
    assert 1 <= len(hints) <= hinting.MOST


def test_a_measured_time_overrules_what_is_only_likely():
    """Loads of two bytes are a fault, unless the kernel is at the roofline all the same."""
    launch = row_sum(tile=4096, mix=InstructionCounts(loads={2: 8}))
    slow, fast = (
        hinting.diagnose(hinting.LauncherCall("s", (launch,), us, True))
        for us in (3 * launch.roofline_us, launch.roofline_us + 2)
    )
    assert slow[0].hint.bottleneck == "issue" and slow[0].lost > 0
    assert fast[0].hint.bottleneck == "memory bandwidth" and fast[0].lost == 0


def test_hints_of_several_shapes_are_said_once():
    spilling = row_sum(tile=4096, stack_bytes=400)
    calls = [
        hinting.LauncherCall("a", (spilling,)),
        hinting.LauncherCall("b", (spilling,)),
        hinting.LauncherCall("c", (row_sum(tile=4096),)),
    ]
    hints = hinting.make_hints(calls)
    assert [h.bottleneck for h in hints] == ["spills"]
    assert hints[0].evidence["stack_bytes_per_thread"] == 400


def test_a_call_of_two_launches_weighs_them():
    big, small = row_sum(tile=4096), row_sum(programs=64, tile=4096, stack_bytes=400)
    assert hinting.diagnose(hinting.LauncherCall("s", (big, small)))[0].lost == 0
    assert (
        hinting.diagnose(hinting.LauncherCall("s", (replace(big, machine=small.machine), small)))[0].hint.bottleneck
        == "spills"
    )


ROW, FAR = 1 << 20, 1 << 30
PROGRAM = ("+", ("*", ("pid", 0), ROW), ("*", ("pid", 1), FAR))


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("insufficient register resources for the wgmma pipeline", "smaller tiles"),
        ("non wgmma instructions reading accumulator registers of a wgmma", "leave the accumulator alone"),
        ("non wgmma instructions defining input registers of a wgmma", "leave an operand in registers alone"),
        ("ill formed pipeline stage", "on one path"),
        ("the presence of Extern calls", "no call and no branch"),
    ],
)
def test_products_that_wait_for_each_other_are_said_with_the_compilers_reason(words, change):
    launch = row_sum(tile=4096)
    launch = replace(launch, code=replace(launch.code, serialised=(f"C7514 {words}", "C7512 another")))
    (hint,) = hinting.make_hints([hinting.LauncherCall("s", (launch,))])
    _, why, advice = formats.explain_hint(hint)
    assert hint.bottleneck == "tensor core" and f"{words} (C7514)." in why and change in advice
    gluon = replace(launch, code=Code(serialised=launch.code.serialised))  # whose accesses are not read
    assert [h.name for h in hinting.make_hints([hinting.LauncherCall("s", (gluon,))])] == [hint.name]
    assert hinting.make_hints([hinting.LauncherCall("s", (replace(gluon, code=Code()),), 50.0, True)]) == ()


@pytest.mark.parametrize(("order", "loaded_twice"), [(("load", "store"), False), (("store", "load"), True)])
def test_an_update_in_place_is_no_second_read(order, loaded_twice):
    launch = row_sum()
    accesses = tuple(Access(kind, "x", 4, (128,), (1,), (LOOP,), 1) for kind in order)
    found = detect_second_read(replace(launch, code=replace(launch.code, accesses=accesses)))
    assert (found is not None) == loaded_twice
    assert not loaded_twice or found.hint.evidence["times_read"] == 2


def test_bytes_that_must_move_are_those_of_the_roofline():
    """A vector that every program reads is in L2: it is in neither figure of a second read."""
    launch = row_sum(n=4096, tile=4096)
    first, store = launch.code.accesses
    loads = [replace(first, loops=(), address=at) for at in (1, 1)] + [replace(first, base="w", loops=(), address=2)]
    args = {**launch.args, "w": TensorFact("fp32", (4096,), (1,))}
    launch = replace(launch, args=args, code=replace(launch.code, accesses=(*loads, store)))
    found = detect_second_read(launch)
    size = 65536 * 4096 * 4 / 1e9
    assert found.hint.evidence["read_again_gb"] == round_for_people(size)
    assert found.hint.evidence["needed_gb"] == round_for_people(launch.footprint / 1e9) == round_for_people(size)
    assert found.lost < 0.51


@pytest.mark.parametrize("over", [1.0, 2.06, 40.0])
def test_no_gain_is_more_than_the_roofline_leaves_of_an_estimated_time(over):
    launch = row_sum(tile=4096, stack_bytes=40000)
    call = hinting.LauncherCall("s", (launch,), over * launch.roofline_us)
    raw = hinting.diagnose(replace(call, time_us=None))
    found = hinting.diagnose(call)
    assert [f.hint.name for f in found] == [f.hint.name for f in raw] and raw[0].lost > 0.6
    assert [f.lost for f in found] == pytest.approx([min(f.lost, 1 - 1 / over) for f in raw])


@pytest.mark.parametrize(("others", "word"), [((("w", 2),), "rows_2d"), ((("x", 2), ("x", 3)), "tile size")])
def test_only_what_programs_share_is_said_to_be_shared(others, word):
    """Every program loads a row of weights; neighbours of an element are loaded at other places of the same one."""
    launch = row_sum(mix=InstructionCounts(loads={16: 3}))
    first, store = launch.code.accesses
    loads = tuple(replace(first, base=base, address=address) for base, address in others)
    args = {**launch.args, "w": TensorFact("fp32", (4096,), (1,))}
    launch = replace(launch, args=args, code=replace(launch.code, accesses=(first, *loads, store)))
    (found,) = hinting.diagnose(hinting.LauncherCall("s", (launch,), 4 * launch.roofline_us))
    assert found.hint.bottleneck == "memory bandwidth" and word_of(found.hint) == word


@pytest.mark.parametrize("path", binary_alone.KERNELS, ids=lambda p: p.stem)
def test_where_no_edit_applies_none_is_named(path):
    calls = [replace(call, applies=lambda function, edit: False) for call in binary_alone.calls(path)]
    assert not list_suggested_edits(hinting.make_hints(calls))


@pytest.mark.parametrize(("n", "said"), [(4096, "its rows do, but its tiles do not"), (4099, "pad the rows")])
def test_narrow_loads_of_rows_that_are_aligned_are_not_to_be_padded(n, said):
    launch = row_sum(n=n, tile=512, mix=InstructionCounts(loads={4: 8}))
    by_hand = detect_narrow_loads(launch).others[-1]
    assert by_hand.startswith("none: ") and said in by_hand


def test_the_first_edit_that_applies_is_named():
    launch = row_sum(programs=32)
    words = {}
    for edits in (("split_reduction", "loop_stages"), ("loop_stages",), ()):
        call = hinting.LauncherCall("s", (launch,), applies=lambda function, edit: function == "k" and edit in edits)  # noqa: B023
        words[edits] = [word_of(f.hint) for f in hinting.diagnose(call)]
    assert list(words.values()) == [["split_reduction"], ["tile size"], ["tile size"]]


def test_a_row_that_registers_cannot_hold_is_not_to_be_one_tile():
    """The columns of 65,536 rows, read twice, and rows of 4,096 elements."""
    launch = row_sum(mix=InstructionCounts(loads={16: 3}))
    first, store = launch.code.accesses
    words = []
    for n in (4096, 65536):
        args = {**launch.args, "x": TensorFact("fp32", (65536, n), (n, 1)), "n": n}
        twice = replace(launch, args=args, code=replace(launch.code, accesses=(first, first, store)))
        words.append(word_of(detect_second_read(twice).hint))
    assert words == ["tile size", "fused_passes"]
    whole = replace(twice, code=replace(twice.code, accesses=(replace(first, shape=(65536,), loops=()),) * 2))
    nothing = hinting.settle_advice(
        hinting.LauncherCall("s", (whole,), applies=lambda *_: False), whole, detect_second_read(whole), 0.5
    )
    assert nothing.hint.suggestion == "none: load the tile once into a variable and use that"


def test_what_is_near_a_limit_is_named_before_it_is_called_unexplained():
    """A row of 257 in a tile of 512, four bytes a thread: small faults, and a time far from the roofline."""
    launch = row_sum(n=257, tile=512, mix=InstructionCounts(loads={4: 4}))
    first, store = launch.code.accesses
    launch = replace(launch, code=replace(launch.code, accesses=(replace(first, loops=()), store)))
    for far, names in ((1.2, {"Limited by memory"}), (3.0, {"Empty lanes", "Narrow loads"})):
        found = hinting.diagnose(hinting.LauncherCall("s", (launch,), far * launch.roofline_us))
        assert {f.hint.name for f in found} >= names
        assert not any("no rule explains" in f.hint.suggestion for f in found)


@pytest.mark.parametrize(
    ("tiles", "said"),
    [
        (None, "tile size: smaller tiles, so"),
        (("BLOCK",), "(here by BLOCK)"),
        ((), "none: the launcher sets the tile: "),
    ],
)
def test_a_tile_is_advised_by_the_names_that_set_it(tiles, said):
    launch = row_sum(programs=32)
    call = hinting.LauncherCall("s", (launch,), applies=lambda *_: False, tiles=tiles)
    assert said in hinting.diagnose(call)[0].hint.suggestion


def test_of_several_launches_the_one_that_is_meant_is_named():
    small, big = row_sum(programs=64, tile=4096), replace(row_sum(tile=4096, stack_bytes=400), function="second")
    (hint,) = hinting.make_hints([hinting.LauncherCall("s", (small, big))])
    assert hint.why.startswith("Launch 2 of 2, second: A thread holds 400 bytes")
    assert "Launch" not in hinting.make_hints([hinting.LauncherCall("s", (big,))])[0].why


def test_a_launch_without_loads_has_no_chain_of_them():
    """A fill reads nothing: its time by dependent loads is one round of one latency, no error."""
    launch = SimpleNamespace(main_loads=(), programs=1, occupancy=1, target=SimpleNamespace(num_sms=132))
    assert DeviceLaunch.chain_us.func(launch) == pytest.approx(device_launch.DRAM_LATENCY_NS / 1e3)


@pytest.mark.parametrize(("second", "n", "said"), [("k2", 4096, True), ("k", 4096, False), ("k2", 16, False)])
def test_a_tensor_that_two_kernels_load_is_no_byte_that_moves_once(second, n, said):
    """Mean, then variance, in two kernels: each is alone without a fault. What L2 keeps in between costs little."""
    one = row_sum(n=n, tile=4096)
    (first, *_) = hinting.diagnose(hinting.LauncherCall("s", (one, replace(one, function=second))))
    assert (first.hint.name == "Read by several kernels") == said
    assert not said or (
        first.lost == pytest.approx(0.5, abs=0.01) and "k and k2 each load x, 1.07 GB" in first.hint.why
    )


@pytest.mark.parametrize("loops, first", [((), "rows_2d"), (("start",), "num_warps")])
def test_an_sm_that_holds_few_programs_needs_larger_ones(loops, first):
    """A row that is one tile takes others beside it, one that is walked in tiles takes wider tiles."""
    machine = SimpleNamespace(shared=0, registers=24, num_warps=1, num_stages=1)
    target = target_by_name("h100")
    launch = SimpleNamespace(machine=machine, target=target, main_accesses=[SimpleNamespace(loops=loops)])
    advice = _advise_on_occupancy(launch)
    assert advice[0].startswith(f"{first}: ") and advice[-1].startswith("num_warps: ")


@pytest.mark.parametrize("n, word", [(128, "rows_2d"), (4096, "tile size")])
def test_programs_that_move_little_take_several_rows(n, word):
    """One row a program, without a loop, far from the roofline and with enough bytes under way."""
    load, store = Access("load", "x", 4, (n,), (1,), (), 1), Access("store", "y", 4, (n,), (1,), (), 2)
    args = {name: TensorFact("fp32", (65536, n), (n, 1)) for name in ("x", "y")}
    binary = BinaryResources(4, 16, 0, 0, InstructionCounts(loads={4: 1}))
    launch = DeviceLaunch("k", binary, Code((load, store), (), ()), (65536, 1, 1), args, H100)
    call = hinting.LauncherCall("s", (launch,), time_us=2 * launch.roofline_us)
    assert hinting.find_binding_resource(call, launch).hint.suggestion.startswith(word)


def tried(number, score, config, edit=None, parents=("k",), kernel="k"):
    outcome = accept() if score else Outcome(Verdict(Word.COMPILE, "compile", "no"))
    return Trial(number, Proposal(ProposalKind.REWRITE, parents), kernel, config, outcome, score, edit)


@pytest.mark.parametrize(
    ("suggestion", "trials", "vain"),
    [
        ("num_warps: 8, so that more", [tried(1, 0.9, {"num_warps": 8})], True),
        ("num_warps: 16, so that more", [tried(1, 0.9, {"num_warps": 8})], False),
        ("tile size: smaller", [tried(1, None, {"num_warps": 4, "BLOCK": 64})], True),
        ("tile size: smaller", [tried(1, 0.9, {"num_warps": 8, "BLOCK": 128})], False),
        ("exp2: base two", [tried(1, 0.8, {"num_warps": 4}, "exp2", kernel="c")], True),
        ("exp2: base two", [tried(1, 0.6, {"num_warps": 4}, "exp2", kernel="c")], False),
        ("exp2: base two", [tried(1, 0.8, {"num_warps": 4}, "exp2", ("other",), "c")], False),
        ("none: by hand", [tried(1, 0.9, {"num_warps": 8, "BLOCK": 64})], False),
    ],
)
def test_what_the_run_tried_in_vain_is_promised_no_more(suggestion, trials, vain):
    best = tried(0, 0.8, {"num_warps": 4, "BLOCK": 128})
    (hint,) = withdraw_tried([Hint("issue", {}, suggestion, "Rule", "Why.", 0.5)], "k", [best, *trials])
    assert (hint.lost == 0.0) is vain and ("in vain" in hint.why) is vain
