"""What is read from TTIR, TTGIR and SASS: addresses as functions of arguments, bank conflicts, instruction counts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.compile import ttgir, ttir
from kernelsearch.compile.build import code_of
from kernelsearch.compile.code import Code, Loop
from kernelsearch.compile.ir import element_of, shape_of

TTIR = """#loc1 = loc("x_ptr")
module {
  tt.func public @k(%x_ptr: !tt.ptr<bf16> {tt.divisibility = 16 : i32} loc("x_ptr"), %y_ptr: !tt.ptr<f32> \
loc("y_ptr"), %xs: i32 loc("xs"), %n: i32 loc("n")) attributes {noinline = false} {
    %c64_i32 = arith.constant 64 : i32 loc(#loc)
    %c0_i32 = arith.constant 0 : i32 loc(#loc)
    %cst = arith.constant dense<0.000000e+00> : tensor<64xf32> loc(#loc)
    %0 = tt.get_program_id y : i32 loc(#loc)
    %1 = arith.muli %0, %xs : i32 loc(#loc)
    %2 = tt.addptr %x_ptr, %1 : !tt.ptr<bf16>, i32 loc(#loc)
    %3 = tt.splat %2 : !tt.ptr<bf16> -> tensor<64x!tt.ptr<bf16>> loc(#loc)
    %4 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32> loc(#loc)
    %5 = tt.splat %xs : i32 -> tensor<64xi32> loc(#loc)
    %a = scf.for %i = %c0_i32 to %n step %c64_i32 iter_args(%t = %cst) -> (tensor<64xf32>)  : i32 {
      %6 = tt.splat %i : i32 -> tensor<64xi32> loc(#loc)
      %7 = arith.addi %6, %4 : tensor<64xi32> loc(#loc)
      %8 = tt.addptr %3, %7 : tensor<64x!tt.ptr<bf16>>, tensor<64xi32> loc(#loc)
      %9 = tt.load %8 : tensor<64x!tt.ptr<bf16>> loc(#loc)
      %10 = arith.extf %9 : tensor<64xbf16> to tensor<64xf32> loc(#loc)
      %11 = math.exp %10 : tensor<64xf32> loc(#loc)
      %12 = arith.addf %t, %11 : tensor<64xf32> loc(#loc)
      scf.yield %12 : tensor<64xf32> loc(#loc)
    } loc(#loc9)
    %13 = arith.muli %4, %5 : tensor<64xi32> loc(#loc)
    %14 = tt.splat %y_ptr : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>> loc(#loc)
    %15 = tt.addptr %14, %13 : tensor<64x!tt.ptr<f32>>, tensor<64xi32> loc(#loc)
    tt.store %15, %a : tensor<64x!tt.ptr<f32>> loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""
LOOP = Loop(0, ("arg", "n"), 64)


def test_addresses_are_functions_of_the_arguments():
    load, store = ttir.read(TTIR).accesses
    assert (load.kind, load.base, load.width, load.shape, load.strides) == ("load", "x_ptr", 2, (64,), (1,))
    assert load.loops == (LOOP,)
    assert (store.kind, store.base, store.width, store.strides, store.loops) == (
        "store",
        "y_ptr",
        4,
        (("arg", "xs"),),
        (),
    )


def test_parameters_are_known_by_their_place_where_the_text_does_not_name_them():
    text = TTIR
    for number, name in enumerate(("x_ptr", "y_ptr", "xs", "n")):
        text = re.sub(rf"%{name}\b", f"%arg{number}", text)
    assert ttir.read(text, ("x_ptr", "y_ptr", "xs", "n")) == ttir.read(TTIR) != ttir.read(text)


def test_work_is_counted_per_loop():
    assert {(w.kind, w.elements, w.loops) for w in ttir.read(TTIR).work} == {
        ("special", 64, (LOOP,)),
        ("float", 64, (LOOP,)),
    }


def test_equal_addresses_are_seen_through_names_and_loops():
    lines = TTIR.splitlines()
    first, last = (next(i for i, line in enumerate(lines) if word in line) for word in ("scf.for", "loc(#loc9)"))
    again = [line.replace("%a =", "%b =").replace("%i", "%j") for line in lines[first : last + 1]]
    loads = [
        a for a in ttir.read("\n".join([*lines[: last + 1], *again, *lines[last + 1 :]])).accesses if a.kind == "load"
    ]
    assert len(loads) == 2 and loads[0].address == loads[1].address
    moved = [line.replace("%c0_i32 to", "%c64_i32 to") for line in again]
    loads = [
        a for a in ttir.read("\n".join([*lines[: last + 1], *moved, *lines[last + 1 :]])).accesses if a.kind == "load"
    ]
    assert loads[0].address != loads[1].address


@given(st.randoms(use_true_random=False))
def test_no_text_breaks_the_reader(rng):
    """Cut, doubled and shuffled lines give less, and never an error: a compile must not fail for its hints."""
    lines = TTIR.splitlines()
    broken = [
        line[: rng.randrange(len(line) + 1)] if rng.random() < 0.2 else line for line in lines if rng.random() > 0.1
    ]
    rng.shuffle(broken) if rng.random() < 0.3 else None
    assert isinstance(code_of("\n".join(broken), "\n".join(broken)), Code)


SHARED = """#blocked = #ttg.blocked<{{sizePerThread = {size}, threadsPerWarp = {threads}, warpsPerCTA = [4, 1], \
order = {order}}}>
#shared = #ttg.swizzled_shared<{{vec = {vec}, perPhase = 1, maxPhase = {phases}, order = [1, 0]}}>
#smem = #ttg.shared_memory
tt.func public @k() attributes {{noinline = false}} {{
    %47 = ttg.local_load %46 token %45 : !ttg.memdesc<64x{columns}x{kind}, #shared, #smem, mutable> \
-> tensor<64x{columns}x{kind}, #blocked> loc(#loc)
}}
"""


@pytest.mark.parametrize(
    ("size", "threads", "order", "vec", "phases", "columns", "kind", "ways"),
    [
        ("[1, 4]", "[2, 16]", "[1, 0]", 1, 1, 64, "f32", 1),  # along the rows: 16 bytes a lane, eight lanes a turn
        ("[1, 1]", "[1, 32]", "[1, 0]", 1, 1, 64, "f32", 1),
        ("[4, 1]", "[16, 2]", "[0, 1]", 1, 1, 64, "f32", 16),  # down the columns: 16 rows, 64 words apart
        ("[1, 1]", "[32, 1]", "[0, 1]", 1, 1, 64, "f32", 32),
        ("[1, 1]", "[32, 1]", "[0, 1]", 1, 1, 33, "f32", 1),  # an odd row length spreads a column over all banks
        ("[1, 1]", "[32, 1]", "[0, 1]", 1, 32, 64, "f32", 1),  # so does a full swizzle
        ("[1, 1]", "[32, 1]", "[0, 1]", 1, 8, 64, "f32", 4),
        ("[1, 1]", "[1, 32]", "[1, 0]", 1, 1, 64, "bf16", 2),  # two-byte lanes use half of each word
    ],
)  # fmt: skip
def test_turns_at_the_banks(size, threads, order, vec, phases, columns, kind, ways):
    text = SHARED.format(size=size, threads=threads, order=order, vec=vec, phases=phases, columns=columns, kind=kind)
    (exchange,) = ttgir.read(Code(), text).exchanges
    assert exchange.ways == pytest.approx(ways)
    assert exchange.size_bytes == 64 * columns * (4 if kind == "f32" else 2)


@pytest.mark.parametrize("kind", ("!tt.tensordesc<tensor<64x32xbf16, #shared>>", "!tt.tensordesc<64x32xbf16, #shared>"))
def test_a_descriptor_has_the_shape_and_type_of_its_tile(kind):
    """As Triton wrote its type up to 3.8, and as 3.9 does."""
    rest = (
        f" %d[%i, %j] %x, %b, %p : {kind}, !ttg.memdesc<1xi64, #s, #smem, mutable> -> !ttg.memdesc<64x32xbf16, #shared>"
    )
    assert shape_of(rest) == (64, 32) and element_of(rest) == "bf16"


def test_an_address_of_unknown_tiles_has_unknown_strides():
    """A reduction's type stands at the end of its region, so that the shape of its result is not known."""
    text = TTIR.replace(
        "%13 = arith.muli %4, %5 : tensor<64xi32>",
        '%r = "tt.reduce"(%cst) <{axis = 0 : i32}> ({\n    }) : (tensor<64x8xi32>) -> tensor<64xi32> loc(#loc)\n'
        "    %13 = arith.extsi %r : tensor<64xi32>",
    )
    store = ttir.read(text).accesses[1]
    assert store.shape == (64,) and store.strides == (None,)
