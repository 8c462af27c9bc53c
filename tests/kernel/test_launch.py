"""The plan of a launch, and its specialisation held against the binder of the installed Triton."""

import inspect
import math
import re
from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.core.types import DescriptorFact, DtypeFact, LaunchFact, TensorFact
from kernelsearch.kernel import launch
from kernelsearch.kernel.expressions import cdiv
from kernelsearch.kernel.launch import HostDescriptor, LaunchError, Passed, Scratch, bind_launch, make_plan, specialise
from kernelsearch.kernel.source import Kernel

TEXT = """
@triton.jit
def k(x_ptr, y_ptr, a, b, c, BLOCK: tl.constexpr): pass
"""


@triton.jit
def k(x_ptr, y_ptr, a, b, c, BLOCK: tl.constexpr):
    pass


class Pointer:
    """What Triton's binder looks at in a tensor."""

    def __init__(self, dtype, address):
        self.dtype, self.address = dtype, address

    def data_ptr(self):
        return self.address


BINDER = create_function_from_signature(k.signature, k.params, make_backend(GPUTarget("cuda", 90, 32)))
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64",
          torch.int8: "i8", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "i1"}  # fmt: skip

integers = st.one_of(
    st.sampled_from([0, 1, -1, 16, 17, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-(2**20), 2**20).map(lambda n: 16 * n),
)
scalars = st.one_of(integers, st.booleans(), st.floats(allow_nan=False), st.none())
pointers = st.builds(Pointer, st.sampled_from(list(DTYPES)), st.integers(0, 4096))


def ours(x, y, a, b, c):
    def fact(value):
        if isinstance(value, Pointer):
            return TensorFact(DTYPES[value.dtype], (4,), (1,), value.address % 16 == 0)
        return value

    args = {name: fact(v) for name, v in zip(("x_ptr", "y_ptr", "a", "b", "c"), (x, y, a, b, c), strict=True)}
    told = LaunchFact("k", {**args, "BLOCK": 64}, {}, (1,))
    return specialise(make_plan(Kernel.parse(TEXT), ("k",), {}, told, lambda meta: (1,), 132).steps[0], told, {})


@given(pointers, st.one_of(pointers, st.none()), scalars, scalars, scalars)
def test_specialisation_is_that_of_tritons_binder(x, y, a, b, c):
    _, theirs, _ = BINDER(x, y, a, b, c, BLOCK=64)
    spec = ours(x, y, a, b, c)
    names = [p.name for p in k.params]
    types, constants = dict(spec.signature), dict(spec.constexprs)
    for name, (kind, key) in zip(names[:5], [(t[0], t[1]) for t in theirs[:5]], strict=True):
        assert types[name].replace("*i1", "*u1") == kind, name  # two names of Triton's for a pointer to bool
        assert (name in constants) == (kind == "constexpr"), name
        assert (name in spec.divisible) == (key == "D"), name
    assert types["BLOCK"] == "constexpr" and constants["BLOCK"] == 64
    assert [n for n, _ in spec.signature] == names


i64 = tl.int64  # Triton reads the string below


@triton.jit
def annotated(a: tl.int64, b: "i64", c: tl.float64, d: tl.int32, BLOCK: tl.constexpr):
    pass


@given(integers.filter(lambda n: abs(n) < 2**31), integers.filter(lambda n: abs(n) < 2**63), st.floats(0, 1))
def test_annotated_scalars_keep_their_type(small, large, real):
    binder = create_function_from_signature(
        annotated.signature, annotated.params, make_backend(GPUTarget("cuda", 90, 32))
    )
    _, theirs, _ = binder(small, large, real, small, BLOCK=64)
    kernel = Kernel.parse(inspect.getsource(annotated.fn))
    told = LaunchFact("annotated", {"a": small, "b": large, "c": real, "d": small, "BLOCK": 64}, {}, (1,))
    spec = specialise(make_plan(kernel, ("annotated",), {}, told, lambda meta: (1,), 132).steps[0], told, {})
    assert [kind for _, kind in spec.signature] == [t[0] for t in theirs] == ["i64", "i64", "fp64", "i32", "constexpr"]
    assert list(spec.divisible) == [n for n, t in zip("abcd", theirs, strict=False) if t[1] == "D"]
    assert [n for n, _ in spec.constexprs] == ["BLOCK"]


@triton.jit(do_not_specialize=["b", 2], do_not_specialize_on_alignment=["d", "y_ptr"])
def plain(x_ptr, y_ptr, a, b, d, e, BLOCK: tl.constexpr):
    pass


@given(pointers, pointers, integers, integers, integers, integers)
def test_what_a_decorator_keeps_plain_is_not_specialised(x, y, a, b, d, e):
    binder = create_function_from_signature(plain.signature, plain.params, make_backend(GPUTarget("cuda", 90, 32)))
    _, theirs, _ = binder(x, y, a, b, d, e, BLOCK=64)
    given = {n: TensorFact(DTYPES[v.dtype], (4,), (1,), v.address % 16 == 0) for n, v in (("x_ptr", x), ("y_ptr", y))}
    told = LaunchFact("plain", {**given, "a": a, "b": b, "d": d, "e": e, "BLOCK": 64}, {}, (1,))
    kernel = Kernel.parse(inspect.getsource(plain.fn))
    spec = specialise(make_plan(kernel, ("plain",), {}, told, lambda meta: (1,), 132).steps[0], told, {})
    assert [kind.replace("*i1", "*u1") for _, kind in spec.signature] == [t[0] for t in theirs]
    assert list(spec.divisible) == [p.name for p, t in zip(plain.params, theirs, strict=True) if t[1] == "D"]


blocks = (
    st.lists(st.sampled_from([16, 32, 64, 128]), min_size=1, max_size=5)
    .map(tuple)
    .filter(lambda b: math.prod(b) <= 2**20)
)


@given(st.sampled_from([d for d in DTYPES if d is not torch.bool]), blocks, st.integers(1, 300))
def test_descriptors_have_the_type_of_tritons_binder(dtype, block, rows):
    rank, strides = len(block), (*(16 * 3**i for i in range(len(block) - 1, 0, -1)), 1)
    given = TensorDescriptor(Pointer(dtype, 0), [rows] * rank, list(strides), list(block))
    _, theirs, _ = BINDER(given, given, 2, 2, 2, BLOCK=64)
    passed = DescriptorFact(DTYPES[dtype], (rows,) * rank, strides, True, block)
    spec = f'DESCRIPTORS = {{"y_ptr": ("x_ptr", "{passed.shape}", "{strides}", "{block}")}}\n'
    told = LaunchFact("k", {"x_ptr": passed, "y_ptr": 1, "a": 2, "b": 2, "c": 2, "BLOCK": 64}, {}, (1,))
    step = make_plan(Kernel.parse(spec + TEXT), ("k",), {}, told, lambda meta: (1,), 132).steps[0]
    assert step.args["y_ptr"] == HostDescriptor(Passed("x_ptr"), passed.shape, strides, block)
    ours = specialise(step, told, {})
    assert [kind for _, kind in ours.signature[:2]] == [t[0] for t in theirs[:2]] and not ours.divisible


def test_what_no_binary_may_share():
    """Sizes that differ in divisibility, one-ness or width have different keys; others share one."""
    aligned = Pointer(torch.float32, 256)
    key = lambda n, p=aligned: ours(p, aligned, n, 0.5, True).key("digest", "h100", "")  # noqa: E731
    assert key(1024) == key(2048) == key(-16)
    assert key(50257) == key(257)
    assert len({key(1024), key(50257), key(1), key(2**31), key(2**63), key(1024, Pointer(torch.float32, 8))}) == 6
    spec = ours(aligned, aligned, 16, 16, 16)
    assert spec.key("d", "h100", "") != spec.key("e", "h100", "") != spec.key("e", "a100", "")


# ---------------------------------------------------------------- plans

SOFTMAX = """
GRID = "(cdiv(n_rows, ROWS),)"
ARGS = {"n_rows": "shape(x_ptr, 0)"}
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, n_rows, BLOCK: tl.constexpr, ROWS: tl.constexpr, EPS: tl.constexpr = 1): pass
"""
FACT = LaunchFact(
    "softmax_kernel",
    {**dict.fromkeys(("x_ptr", "y_ptr"), TensorFact("fp32", (7, 50), (50, 1))), "n_cols": 50, "BLOCK": 64},
    {"num_warps": 4},
    (7,),
)


def planned(text, config, fact=FACT, grid=lambda meta: (7,)):
    kernel = Kernel.parse(text)
    return make_plan(kernel, kernel.steps_at(fact.site, (fact.site,)), config, fact, grid, num_sms=132)


def test_a_rewrite_with_its_own_grid_and_arguments():
    step = planned(SOFTMAX, {"ROWS": 2, "num_warps": 8}).steps[0]
    assert step.grid == (4, 1, 1)
    assert step.args == {"x_ptr": Passed("x_ptr"), "y_ptr": Passed("y_ptr"), "n_cols": Passed("n_cols"), "n_rows": 7}
    assert step.constexprs == {"BLOCK": 64, "ROWS": 2, "EPS": 1}
    assert step.options == {"num_warps": 8}


def test_config_overrides_what_the_launcher_passes_and_the_launchers_grid_sees_it():
    text = "@triton.jit\ndef softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr): pass\n"
    seen = []
    step = planned(
        text, {"BLOCK": "next_power_of_2(n_cols) * 2"}, grid=lambda meta: seen.append(meta["BLOCK"]) or (3, 2)
    ).steps[0]
    assert step.constexprs == {"BLOCK": 128} and seen == [128] and step.grid == (3, 2, 1)


def test_several_launches_with_scratch():
    text = """
LAUNCHES = ["one", "two"]
GRID = {"one": "(SPLIT,)", "two": "(1,)"}
SCRATCH = {"p_ptr": ("float32", "(SPLIT, n_cols)", 0)}
INIT = {"y_ptr": 0}
@triton.jit
def one(x_ptr, p_ptr, n_cols, SPLIT: tl.constexpr): pass
@triton.jit
def two(p_ptr, y_ptr, n_cols, SPLIT: tl.constexpr): pass
"""
    found = planned(text, {"SPLIT": 4, "two.num_warps": 1})
    assert [s.function for s in found.steps] == ["one", "two"]
    assert found.scratch["p_ptr"] == launch.Buffer("fp32", (4, 50), True) and found.init == {"y_ptr": 0}
    assert found.steps[0].args["p_ptr"] == Scratch("p_ptr")
    assert [s.options["num_warps"] for s in found.steps] == [4, 1]
    spec = specialise(found.steps[0], FACT, found.scratch)
    assert dict(spec.signature)["p_ptr"] == "*fp32" and "p_ptr" in spec.divisible
    typed = text.replace('"float32"', '"dtype(x_ptr)"')
    half = replace(FACT, args={**FACT.args, "x_ptr": TensorFact("fp16", (7, 50), (50, 1))})
    assert planned(typed, {"SPLIT": 4}, half).scratch["p_ptr"].dtype == "fp16"
    with pytest.raises(LaunchError, match="dtype.n_cols.* is unknown"):
        planned(typed.replace("(x_ptr)", "(n_cols)"), {"SPLIT": 4})


DESCRIBED = """
GRID = "(1,)"
SCRATCH = {"p_ptr": ("bfloat16", "(ROWS, 64)")}
DESCRIPTORS = {
    "x_desc": ("x_ptr", "(shape(x_ptr, 0), n_cols)", "(stride(x_ptr, 0), 1)", "(ROWS, BLOCK)"),
    "p_desc": ("p_ptr", "(ROWS, 64)", "(64, 1)", "(ROWS, 16)"),
}
@triton.jit
def softmax_kernel(x_desc, p_desc, n_cols, BLOCK: tl.constexpr, ROWS: tl.constexpr): pass
"""
WIDE = replace(FACT, args={**FACT.args, "x_ptr": TensorFact("fp32", (7, 64), (64, 1))})


def test_descriptors_are_made_of_tensors_and_of_scratch():
    (step,) = planned(DESCRIBED, {"ROWS": 4}, WIDE).steps
    assert step.args["x_desc"] == HostDescriptor(Passed("x_ptr"), (7, 50), (64, 1), (4, 64))
    assert step.args["p_desc"] == HostDescriptor(Scratch("p_ptr"), (4, 64), (64, 1), (4, 16))
    plan = planned(DESCRIBED, {"ROWS": 4}, WIDE)
    assert set(plan.scratch) == {"p_ptr"} and step.scratch == ("p_ptr",)
    assert plan.describe_arguments(step, WIDE)["p_desc"] == DescriptorFact("bf16", (4, 64), (64, 1), True, (4, 16))
    signature = dict(specialise(step, WIDE, plan.scratch).signature)
    assert signature["x_desc"] == "tensordesc<fp32[4, 64]>" and signature["p_desc"] == "tensordesc<bf16[4, 16]>"


@pytest.mark.parametrize("old, new, said", [
    ("(stride(x_ptr, 0), 1)", "(50, 1)", "no multiples of 16 bytes"),
    ("(stride(x_ptr, 0), 1)", "(1, 64)", "its last stride is 64"),
    ("(stride(x_ptr, 0), 1)", "(1,)", "have 2, 1 and 2 axes"),
    ('"x_ptr", "(shape', '"n_cols", "(shape', "'n_cols', which is neither a tensor nor in SCRATCH"),
    ("(ROWS, BLOCK)", "(ROWS, 2)", "rows of less than 16 bytes"),
    ("(ROWS, BLOCK)", "(3, BLOCK)", "not of powers of 2"),
    ("(ROWS, BLOCK)", "(ROWS / 1, BLOCK)", "not integers"),
    ("(shape(x_ptr, 0), n_cols)", "(0, n_cols)", "its shape is (0, 50)"),
    ("(shape(x_ptr, 0), n_cols)", "(0, n_kols)", "'n_kols' is not an argument"),
])  # fmt: skip
def test_what_cannot_be_a_descriptor_is_said_or_passed_as_none(old, new, said):
    text = DESCRIBED.replace(old, new)
    assert text != DESCRIBED
    with pytest.raises(LaunchError, match=re.escape(said)):
        planned(text, {"ROWS": 4}, WIDE)
    none = re.sub(r'("x_desc": .*)\),\n', r"\1, None),\n", text)
    if "'n_" in said or "integers" in said:  # a mistake wherever it is launched
        with pytest.raises(LaunchError, match=re.escape(said)):
            planned(none, {"ROWS": 4}, WIDE)
    else:
        found = planned(none, {"ROWS": 4}, WIDE)
        assert specialise(found.steps[0], WIDE, found.scratch).signature[0] == ("x_desc", "constexpr")
    unaligned = replace(WIDE, args={**WIDE.args, "x_ptr": TensorFact("fp32", (7, 64), (64, 1), False)})
    with pytest.raises(LaunchError, match="'x_desc' cannot be made here: its address is no multiple of 16 bytes"):
        planned(DESCRIBED, {"ROWS": 4}, unaligned)


@pytest.mark.parametrize("change, said", [
    (("shape(x_ptr, 0)", "shape(x_ptr, 5)"), "'x_ptr' has 2 axes"),
    (("shape(x_ptr, 0)", "n_rowz"), "'n_rowz' is not an argument"),
    (("ARGS", "FACTS"), "argument 'n_rows' of softmax_kernel has no value"),
    (('"(cdiv(n_rows, ROWS),)"', '"(1, 2, 3, 4)"'), "not one to three integers"),
    (('"(cdiv(n_rows, ROWS),)"', '"(n_rows - 7,)"'), "axes go from 1"),
    (('"(cdiv(n_rows, ROWS),)"', '"(1, 65536)"'), "axes go from 1"),
])  # fmt: skip
def test_what_cannot_be_launched_is_said_in_one_sentence(change, said):
    with pytest.raises(LaunchError, match=said.replace("(", r"\(")):
        planned(SOFTMAX.replace(*change), {"ROWS": 1})
    with pytest.raises(LaunchError, match="argument 'ROWS'"):
        planned(SOFTMAX, {})


UNBOUND = """
GRID = "(cdiv(n_cols, PART * 16) & ~1, PARTS, num_warps)"
ARGS = {"n_rows": "shape(x_ptr, 0) << PARTS", "EPS": "1 / n_cols"}
SCRATCH = {"s_ptr": ("float32", "(PARTS, int(n_cols * 0.5))")}
@triton.jit
def softmax_kernel(x_ptr, y_ptr, s_ptr, n_cols, n_rows, EPS, BLOCK: tl.constexpr): pass
"""


@pytest.mark.parametrize("prefix", ["", "softmax_kernel."])
def test_expressions_read_names_of_the_config_that_no_kernel_takes(prefix):
    config = {f"{prefix}PARTS": 3, "PART": "min(2, n_cols)", "num_warps": 8}
    found = planned(UNBOUND, config, replace(FACT, args={**FACT.args, "BLOCK": 64}))
    (step,) = found.steps
    assert step.grid == (cdiv(FACT.args["n_cols"], 32) & ~1, 3, 8)
    assert step.args["n_rows"] == 7 << 3 and step.args["EPS"] == 1 / FACT.args["n_cols"]
    assert found.scratch["s_ptr"].shape == (3, FACT.args["n_cols"] // 2)
    assert set(step.constexprs) == {"BLOCK"}
    with pytest.raises(LaunchError, match="'PART' is not an argument"):
        planned(UNBOUND, {"PARTS": 3, "num_warps": 8})


def test_scratch_has_limits():
    text = SOFTMAX.replace("n_rows, BLOCK", "n_rows, s_ptr, BLOCK") + 'SCRATCH = {"s_ptr": (%r, %r)}\n'
    for dtype, shape, said in (
        ("float31", "(1,)", "unknown"),
        ("float32", "(0,)", "empty"),
        ("float32", "(8589934593,)", "too large"),
        ("float32", "(n_cols / 2,)", "not of integers"),
    ):
        with pytest.raises(LaunchError, match=said):
            planned(text % (dtype, shape), {"ROWS": 1})


SPLIT = """
GRID = {"k_partial": "(SPLIT,)"}
LAUNCHES = {"k": ["k_partial", "k"]}
@triton.jit
def k_partial(x_ptr, n_cols, BLOCK: tl.constexpr, SPLIT: tl.constexpr): pass
@triton.jit
def k(x_ptr, n_cols, BLOCK: tl.constexpr, SPLIT: tl.constexpr): pass
"""


def test_a_config_of_a_site_reaches_every_step_there_and_a_steps_own_goes_before_it():
    """In a task with several sites a name is dotted; both halves of a split reduction must hear it."""
    kernel = Kernel.parse(SPLIT)
    told = LaunchFact(
        "k", {"x_ptr": TensorFact("fp32", (64,), (1,)), "n_cols": 64, "BLOCK": 16}, {"num_warps": 4}, (2,)
    )
    config = {"k.BLOCK": 32, "k.num_warps": 8, "other.BLOCK": 1, "BLOCK": 2, "SPLIT": 4}
    seen = []
    grid = lambda meta: seen.append(meta["BLOCK"]) or (3,)  # noqa: E731

    def steps(**own):
        return make_plan(kernel, kernel.steps_at("k", ("k", "other")), {**config, **own}, told, grid, 1).steps

    assert [(s.constexprs["BLOCK"], s.options["num_warps"]) for s in steps()] == [(32, 8), (32, 8)]
    assert set(seen) == {32}, "the launcher's grid is asked with the site's value"
    own = steps(**{"k_partial.BLOCK": 64, "k_partial.num_warps": 1})
    assert [(s.constexprs["BLOCK"], s.options["num_warps"]) for s in own] == [(64, 1), (32, 8)]


def test_a_sites_value_reaches_a_grid_whose_constexpr_a_step_no_longer_has():
    kernel = Kernel.parse("@triton.jit\ndef k(x_ptr): pass\n")
    told = LaunchFact("k", {"x_ptr": TensorFact("fp32", (64,), (1,)), "BLOCK": 16}, {}, (2,))
    seen = []
    make_plan(
        kernel, ("k",), {"k.BLOCK": 32, "other.BLOCK": 8}, told, lambda meta: seen.append(meta["BLOCK"]) or (3,), 1
    )
    assert seen == [32]


def test_a_kernel_that_no_launch_would_reach_is_refused():
    """Nothing of it would run, and the seed would be judged and timed in its place."""
    seed = Kernel.parse("@triton.jit\ndef a(x_ptr): pass\n@triton.jit\ndef b(x_ptr): pass\n")
    told = LaunchFact("a", {"x_ptr": TensorFact("fp32", (4,), (1,))}, {}, (1,))
    stranger = Kernel.parse("@triton.jit\ndef c(x_ptr): pass\n")
    with pytest.raises(LaunchError, match="launches a or b, but this file has c"):
        bind_launch(stranger, {}, seed, {}, ("a", "b"), told, lambda meta: (1,), 1)


def test_a_buffer_of_two_launches_is_refused():
    """Each launch would have one of its own, and the second would read what nobody wrote."""
    two = "@triton.jit\ndef a(x_ptr, part_ptr): pass\n@triton.jit\ndef b(x_ptr, {}): pass\n"
    own = [Kernel.parse("SCRATCH = {'part_ptr': ('float32', '(8,)')}\n" + two.format(p)) for p in ("part_ptr", "n=4")]
    told = LaunchFact("a", {"x_ptr": TensorFact("fp32", (4,), (1,))}, {}, (1,))
    seed = Kernel.parse(two.replace(", part_ptr", "").format("n=4"))
    with pytest.raises(LaunchError, match="SCRATCH: 'part_ptr' is taken at two launches of the launcher"):
        bind_launch(own[0], {}, seed, {}, ("a", "b"), told, lambda meta: (1,), 1)
    assert list(bind_launch(own[1], {}, seed, {}, ("a", "b"), told, lambda meta: (1,), 1).plan.scratch) == ["part_ptr"]


def test_sites_that_a_kernel_leaves_alone_run_the_seed():
    seed = Kernel.parse("@triton.jit\ndef a(x_ptr): pass\n@triton.jit\ndef b(x_ptr): pass\n")
    mine = Kernel.parse("@triton.jit\ndef b(x_ptr, N: tl.constexpr = 4): pass\n")
    told = lambda site: LaunchFact(site, {"x_ptr": TensorFact("fp32", (4,), (1,))}, {}, (1,))  # noqa: E731
    bound = [bind_launch(mine, {}, seed, {}, ("a", "b"), told(s), lambda meta: (1,), 1) for s in ("a", "b")]
    assert [b.of_seed for b in bound] == [True, False]
    with pytest.raises(LaunchError, match="neither this kernel nor the seed"):
        bind_launch(mine, {}, seed, {}, ("a", "b"), told("c"), lambda meta: (1,), 1)


def test_dtype_constexprs_are_compared_by_name():
    text = "@triton.jit\ndef k(x_ptr, T: tl.constexpr): pass\n"
    told = LaunchFact("k", {"x_ptr": TensorFact("fp32", (4,), (1,)), "T": DtypeFact("bf16")}, {}, (1,))
    spec = specialise(planned(text, {}, told).steps[0], told, {})
    assert dict(spec.constexprs) == {"T": DtypeFact("bf16")}


def test_the_test_kernel_has_the_binders_parameters():
    assert tuple(inspect.signature(k.fn).parameters) == Kernel.parse(TEXT).function("k").params
    assert tl.constexpr is k.fn.__annotations__["BLOCK"]


def test_an_empty_grid_is_the_launchers_or_none():
    empty = SOFTMAX.replace('"(cdiv(n_rows, ROWS),)"', '"(n_rows - 7,)"')
    assert planned(empty, {"ROWS": 1}, grid=lambda meta: (0,)).steps[0].grid == (0, 1, 1)
    plain = SOFTMAX[: SOFTMAX.index("GRID")] + SOFTMAX[SOFTMAX.index("\n", SOFTMAX.index("GRID")) :]
    assert planned(plain, {"ROWS": 1}, grid=lambda meta: (3, 0)).steps[0].grid == (3, 0, 1)
    for grid in ((-1,), (0, -1), (0, 65536)):
        with pytest.raises(LaunchError, match="axes go from 1"):
            planned(plain, {"ROWS": 1}, grid=lambda meta, grid=grid: grid)
