"""The kinds of values: Triton's own promotion and broadcasting, and what is in scope at each statement."""

import ast
from dataclasses import replace

import edit_seeds as seeds
import pytest
import traced
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis.kinds import FLOAT, ValueKind, broadcast_shapes, promote_kinds
from kernelsearch.propose.grammar.source_page import SourcePage, find_places

DTYPES = ("u1", "i8", "i32", "i64", "fp16", "bf16", "fp32", "fp64")


@pytest.fixture(scope="module")
def triton_promotion():
    """Triton's own rule for two tensors, by Triton's names of the dtypes."""
    import triton.language as tl
    from triton.language.semantic import TritonSemantic

    names = {"u1": tl.int1, "i8": tl.int8, "i32": tl.int32, "i64": tl.int64, "fp16": tl.float16, "bf16": tl.bfloat16,
             "fp32": tl.float32, "fp64": tl.float64}  # fmt: skip
    back = {v.name: k for k, v in names.items()} | {"int1": "u1"}
    rule = TritonSemantic.__new__(TritonSemantic).computation_type_impl
    return lambda a, ac, b, bc, div: back[rule(names[a], ac, names[b], bc, div).name]


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_of_tensors_is_tritons(a, b, triton_promotion):
    assert promote_kinds(ValueKind(a), ValueKind(b)).dtype == triton_promotion(a, False, b, False, False)


@pytest.mark.parametrize("tensor", DTYPES)
@pytest.mark.parametrize("literal", ["i32", "fp32"])
def test_promotion_with_a_number_is_tritons(tensor, literal, triton_promotion):
    want = triton_promotion(tensor, False, literal, True, False)
    assert promote_kinds(ValueKind(tensor), ValueKind(literal, const=True)).dtype == want
    assert promote_kinds(ValueKind(literal, const=True), ValueKind(tensor)).dtype == want


def test_each_dtype_of_a_task_is_promoted_on_its_own():
    assert promote_kinds(ValueKind("bf16/fp32", ("B",)), ValueKind(FLOAT)).dtype == FLOAT
    assert promote_kinds(ValueKind("bf16/fp32", ("B",)), ValueKind(FLOAT, const=True)).dtype == "bf16/fp32"


dims = st.sampled_from(["1", "M", "N"])


@given(st.tuples(dims, dims), st.tuples(dims, dims))
def test_broadcast_gives_what_both_fit_into(a, b):
    both = broadcast_shapes(a, b)
    assert both == broadcast_shapes(b, a)
    fits = all("1" in (x, y) or x == y for x, y in zip(a, b, strict=True))
    assert (both is not None) == fits
    assert broadcast_shapes(a, ()) == a and broadcast_shapes(a, None) is None


def scopes(kernel, task):
    """What is known before each statement, in words, by its line."""
    return {p.line: {n: k.text() for n, k in p.scope.items()} for p in SourcePage.of(kernel, task).places}


def test_kinds_of_attention():
    page = SourcePage.of(seeds.seed("attention"), traced.task("attention"))
    known = {n: k.text() for n, k in page.places[-1].scope.items()}
    assert known["q"] == "bf16 [BLOCK_M, HEAD_DIM]" and known["acc"] == "float32 [BLOCK_M, HEAD_DIM]"
    assert known["row_mask"] == "mask [BLOCK_M, 1]" and known["q_ptr"] == "pointer to bf16"
    assert known["row_max"] == "float32 [BLOCK_M]" and known["seq_len"] == "int32" and known["scale"] == "float32"
    assert "keys" not in known and "scores" not in known and "start" not in known


def test_every_assignment_of_the_shipped_seeds_is_understood():
    for name in traced.NAMES:
        page = SourcePage.of(seeds.seed(name), traced.task(name))
        missing = [p.line for p in page.places if (t := getattr(p.node, "targets", None)) and t[0].id not in p.after]
        assert not missing, (name, missing)


def test_scopes_of_loops_and_branches():
    kernel = seeds.drawn(
        """
row = tl.program_id(0)
total = 0.0
for start in range(0, n_cols, BLOCK):
    cols = start + tl.arange(0, BLOCK)
    total += tl.sum(tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32), axis=0)
if row > 0:
    a = 1.0 * row
    b = a
else:
    a = 2.0 * row
tl.store(y_ptr + row, total)
"""
    )
    known = scopes(kernel, seeds.facts(kernel.render()))
    at = {line.strip(): n for n, line in enumerate(kernel.code.splitlines(), 1)}
    assert (
        known[at["total += tl.sum(tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32), axis=0)"]][
            "cols"
        ]
        == "int32 [BLOCK]"
    )
    last = known[at["tl.store(y_ptr + row, total)"]]
    assert last["total"] == "float32" and last["a"] == "float32"
    assert not {"cols", "start", "b"} & last.keys()


def test_a_number_that_a_loop_changes_is_no_number_in_it():
    kernel = seeds.seed("softmax_wide")
    page = SourcePage.of(kernel, traced.task("softmax_wide"))
    before = next(p.scope["row_max"] for p in page.places if "row_max" in p.scope)
    inside = next(p.scope["row_max"] for p in page.places if "cols" in p.scope)
    assert before.const and not inside.const


def test_integers_beyond_32_bits_and_scratch_are_known():
    task = traced.task("softmax")
    launch = task.traces["timed:0"].launches[0]
    wide = replace(launch, args={**launch.args, "x_stride": 2**31})
    task = replace(task, traces={"timed:0": replace(task.traces["timed:0"], launches=(wide,))})
    page = SourcePage.of(seeds.seed("softmax"), task)
    assert page.places[-1].scope["x_stride"] == ValueKind("i64")
    kernel = Kernel.parse(
        seeds.HEAD.replace("\n\n\n", '\nSCRATCH = {"part_ptr": ("float32", "(8,)")}\n\n\n')
        + "@triton.jit\ndef softmax_kernel(x_ptr, part_ptr):\n    tl.store(part_ptr, 0.0)\n"
    )
    (function,) = kernel.functions
    (place,) = find_places(kernel, function, ast.parse(function.text).body[0], traced.task("softmax"))
    assert place.scope["part_ptr"] == ValueKind("fp32", pointer=True)


@pytest.mark.parametrize("said, kind", [
    ("n_cols >= BLOCK", "mask"), ("aligned(x_ptr) and x_stride % 16 == 0", "mask"), ("not n_cols % BLOCK", "mask"),
    ("cdiv(n_cols, BLOCK)", "int32"), ("n_cols and 1", "int32"),
])  # fmt: skip
def test_what_the_launch_computes_is_a_truth_value_or_a_number(said, kind):
    """A mask with one of them in it was taken for numbers, and replaced by numbers, which does not compile."""
    text = seeds.seed("softmax").render().replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, FLAG: tl.constexpr", 1)
    kernel = Kernel.parse(
        text.replace("\n\n\n", f"\nARGS = {{'FLAG': '{said}'}}\n\n\n", 1).replace(
            "mask = cols < n_cols", "mask = (cols < n_cols) | FLAG"
        )
    )
    page = SourcePage.of(kernel, traced.task("softmax"))
    known = page.places[-1].scope
    assert known["FLAG"].text() == kind and known["FLAG"].const
    assert known["mask"].text() == ("mask [BLOCK]" if kind == "mask" else "int32 [BLOCK]")
