"""The edit that writes a product in Gluon: where it is offered, what it makes of epilogues, that it compiles."""

from dataclasses import replace

import edit_seeds as seeds
import pytest

from kernelsearch.compile.build import Built, build
from kernelsearch.core.types import LaunchFact, ShapeFact, TensorFact, Trace
from kernelsearch.kernel.launch import make_plan, specialise
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space, TaskPredicate
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.verify import gate

EDIT = edit_named("gluon_product")
BIG = TensorFact("bf16", (4096, 4096), (4096, 1))
ODD = TensorFact("bf16", (45, 37), (37, 1))
SIZES = {"M": 4096, "N": 4096, "K": 4096, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
STRIDES = {
    "matmul": ("am ak bk bn cm cn", "a_ptr b_ptr c_ptr"),
    "linear_gelu": ("xm xk wn wk ym yn", "x_ptr weight_ptr y_ptr"),
}


def fact_of(name, tensor=BIG, size=4096):
    strides, tensors = STRIDES[name]
    args = {**SIZES, "M": size, "N": size, "K": size, "bias_ptr": TensorFact("bf16", (size,), (1,))}
    args |= {f"stride_{s}": step for s, step in zip(strides.split(), (tensor.stride[0], 1) * 3)}
    args |= dict.fromkeys(tensors.split(), tensor)
    return LaunchFact(f"{name}_kernel", args, {"num_warps": 4}, (64, 64))


def task_of(name, fact=None, capability=90, facts=None):
    shape = ShapeFact("timed:0", "m=4096", {}, None, None)
    trace = Trace("timed:0", (fact or fact_of(name),))
    return replace(facts or seeds.task(name), shapes=(shape,), traces={"timed:0": trace}, capability=capability)


def apply(name, text=None, **facts):
    return EDIT.apply(Kernel.parse(text or seeds.task(name).seed), task_of(name, **facts))


@pytest.mark.parametrize("capability", [0, 80, 100])
def test_it_is_offered_only_where_a_hopper_gpu_judges(capability):
    assert "judged on a Hopper GPU" in apply("matmul", capability=capability).reason


def test_it_is_offered_only_where_the_copy_engine_takes_every_timed_shape():
    assert "copy engine cannot take" in apply("matmul", fact=fact_of("matmul", ODD, 37)).reason
    wide = replace(BIG, dtype="fp32")
    assert "16-bit float" in apply("matmul", fact=fact_of("matmul", wide)).reason


@pytest.mark.parametrize("name", STRIDES)
def test_it_is_a_kernel_that_the_gate_takes_with_a_space_of_its_own(name):
    for rewrite in apply(name):
        kernel, text = rewrite.kernel, rewrite.kernel.render()
        assert rewrite.edit == "gluon_product" and kernel.language == "gluon"
        assert gate.check(text).accepted and Kernel.parse(text).digest == kernel.digest
        possible = TaskPredicate(task_of(name))
        assert possible(kernel, kernel.config) and kernel.config in Space(kernel.space)
        few = [c for c in Space(kernel.space).iterate_configs() if possible(kernel, c)]
        assert {c["CONSUMERS"] for c in few} == {1, 2} and {c["PARTS"] for c in few} == {1, 2, 4}
        assert "judged" not in str(EDIT.apply(kernel, task_of(name)))  # what it makes is left alone


@pytest.mark.parametrize("config", [{}, {"CONSUMERS": 1, "BLOCK_N": 128, "PARTS": 4, "maxnreg": 128}])
def test_it_compiles_into_warps_that_load_and_warps_that_multiply(config):
    kernel = apply("linear_gelu")[1].kernel
    for fact in (fact_of("linear_gelu"), fact_of("linear_gelu", ODD, 37)):
        plan = make_plan(kernel, (fact.site,), {**kernel.config, **config}, fact, lambda _: (1,), 132)
        built = build(kernel.code, "k", specialise(plan.steps[0], fact, plan.scratch), 90, 232448)
        assert isinstance(built, Built), built
        binary, fits = built.binary, fact.args["M"] == 4096
        assert binary.num_warps == (4 + 4 * kernel.config["CONSUMERS"] if not config else 8) if fits else 4
        assert (
            binary.stack_bytes == 0
            and binary.unsupported == ""
            and binary.shared < target_by_name("h200").shared_per_program
        )
        assert (bool(binary.mix["wgmma"]), len(binary.maps)) == ((True, 3) if fits else (False, 0))


LINES = "    z = acc + bias[None, :]\n    y = 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))\n"


@pytest.mark.parametrize(
    ("lines", "has"),
    [
        ("    y = acc * tl.sigmoid(acc)\n", "acc * sigmoid(acc)"),
        ("    y = tl.math.tanh(acc * 0.5)\n", "y = tanh(acc * 0.5)"),
        ("    acc += bias[None, :]\n    acc *= M\n    y = tl.where(acc > 0, acc, 0.0)\n", "acc *= M"),
        ("    if BLOCK_K > 32:\n        y = acc\n    else:\n        y = acc + 1.0\n", "y = acc + 1.0"),
    ],
)
def test_an_epilogue_comes_along_as_it_is(lines, has):
    made = apply("linear_gelu", seeds.task("linear_gelu").seed.replace(LINES, lines))[0].kernel
    finish = made.function("finish").text
    assert has in finish and "tl." not in finish and "program_id" not in finish
    assert gate.check(made.render()).accepted


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (LINES, "    y = acc - tl.max(acc, 1)[:, None]\n", "calls gl.max"),
        (LINES, "    y = acc * pid_m\n", "calls gl.program_id"),
        (LINES, "    y = acc + tl.load(bias_ptr + cols)[None, :]\n", "without a mask"),
        (LINES, "    y = acc + start\n", "more of it than one tile"),
        ("range(0, K, BLOCK_K)", "range(BLOCK_K, K, BLOCK_K)", "whole depth"),
        ("acc = tl.dot(x, w, acc", "acc = 2.0 * tl.dot(x, w", "more to its tile than to add"),
        ("dtype=tl.float32)\n    for", "dtype=tl.float16)\n    for", "zeros in float32"),
        ("tl.store(y_ptr + rows", "tl.store(y_ptr + M + rows", "begin where its arguments point"),
        ("cols[None, :] < N)\n    tl.store", "cols[None, :] < K)\n    tl.store", "not the one that it accumulates"),
    ],
)
def test_what_is_not_a_plain_product_stays(old, new, said):
    text = seeds.task("linear_gelu").seed
    assert old in text
    result = apply("linear_gelu", text.replace(old, new))
    assert isinstance(result, NotApplicable) and said in result.reason, result
