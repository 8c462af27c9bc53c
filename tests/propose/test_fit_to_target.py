"""A task is fitted to its target: what another vendor's compiler reads is not tuned, and edits know what is there."""

from dataclasses import replace

import edit_seeds as seeds
import pytest

from kernelsearch.core.types import LaunchFact, TensorFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import TaskPredicate
from kernelsearch.kernel.target_space import fit_to_target
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.propose.edits import edit_named

SPACE = {"BLOCK_M": (64, 128), "num_warps": (4, 32), "num_stages": (2, 3), "maxnreg": (128, 168)}
OWN = {"BLOCK_M": 64, "num_warps": 4, "num_stages": 3, "maxnreg": 128}


def fitted(target, task="matmul", dtype="bf16", **options):
    facts = seeds.task(task)
    launch = LaunchFact(facts.sites[0], {"a_ptr": TensorFact(dtype, (64, 64), (64, 1))}, options)
    facts = replace(facts, space=SPACE, config=OWN, traces={"timed:0": Trace("timed:0", (launch,))}, notes=())
    return fit_to_target(facts, target_by_name(target))


def test_the_space_of_an_amd_target():
    facts = fitted("mi300x")
    assert facts.space["waves_per_eu"] == (0, 1, 2, 4) and facts.space["matrix_instr_nonkdim"] == (0, 16, 32)
    assert "maxnreg" not in {**facts.space, **facts.config} and (facts.lanes, facts.copy_engine) == (64, False)
    own = {**OWN, "num_stages": 2, "waves_per_eu": 0, "matrix_instr_nonkdim": 0}
    assert facts.config == {n: v for n, v in own.items() if n != "maxnreg"} and "not tuned: maxnreg" in facts.notes[0]
    possible, kernel = TaskPredicate(facts), Kernel.parse(facts.seed)
    assert possible(kernel, facts.config) and not possible(kernel, {**facts.config, "num_warps": 32})
    assert "matrix_instr_nonkdim" not in fitted("mi300x", "softmax").space  # it has no product
    given = fitted("mi355x", num_stages=3, waves_per_eu=3)
    assert (given.config["num_stages"], given.config["waves_per_eu"]) == (3, 3) and 3 in given.space["waves_per_eu"]


@pytest.mark.parametrize("name", ["h100", "t4"])
def test_the_space_of_other_targets_stays(name):
    facts = fitted(name, waves_per_eu=2)
    assert (facts.space, facts.config, facts.notes) == (SPACE, OWN, ()) and facts.copy_engine is (name == "h100")


def test_small_floats_that_the_target_lacks():
    cases = [
        ("mi300x", "fp8e4nv"),
        ("a10g", "fp8e4nv"),
        ("mi300x", "fp8e4b8"),
        ("mi355x", "fp8e4nv"),
        ("h100", "fp8e5"),
    ]
    converts, refuses, *others = ("".join(fitted(name, dtype=dtype).notes) for name, dtype in cases)
    assert "float8_e4m3fnuz and float8_e5m2fnuz in hardware: Triton converts it" in converts
    assert "no 8-bit floats in hardware: Triton converts float8_e5m2 in software and refuses all others" in refuses
    assert not any("hardware" in notes for notes in others)


@pytest.mark.parametrize("edit", ["tensor_descriptor", "streamed_product"])
def test_edits_refuse_what_the_target_has_not(edit):
    task, apply = seeds.task("matmul"), edit_named(edit).apply
    for name in ("mi300x", "a10g"):
        refused = apply(Kernel.parse(task.seed), fit_to_target(task, target_by_name(name)))
        assert "copy engine" in refused.reason and isinstance(apply(Kernel.parse(task.seed), task), list)
