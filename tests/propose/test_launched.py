"""What a prompt says of a launch: what the numbered lines leave out, and nothing of another site."""

import sys
from dataclasses import replace
from pathlib import Path

import edit_seeds

sys.path.insert(0, str(Path(__file__).resolve().parent / "grammar"))
import traced

from kernelsearch.core.types import ShapeFact
from kernelsearch.propose.edits import EDITS
from kernelsearch.propose.models.prompt import describe_launch


def task(name):
    return replace(traced.task(name), shapes=(ShapeFact("timed:0", "the first", {}),))


def variant(edit, name):
    made = next(e for e in EDITS if e.name == edit)
    return made.apply(edit_seeds.seed(name), task(name))[0].kernel


def test_a_seed_shows_its_arguments_and_grid():
    lines = describe_launch(edit_seeds.seed("softmax"), task("softmax"))
    (launch,) = traced.task("softmax").traces["timed:0"].launches
    x = launch.args["x_ptr"]
    assert lines[0].startswith("grid of softmax_kernel: the launcher's own")
    assert any(f"x_ptr, y_ptr: {x.dtype} {list(x.shape)}" in line for line in lines)
    assert any(f"n_cols={launch.args['n_cols']}" in line for line in lines) and not any(
        "BLOCK=" in line for line in lines
    )


def test_what_the_launch_computes_comes_first():
    lines = describe_launch(variant("tensor_descriptor", "matmul"), task("matmul"))
    assert lines[0].startswith("A_TMA is computed as aligned(a_ptr)")


def test_scratch_and_the_order_of_steps_are_said():
    lines = describe_launch(variant("split_reduction", "column_sum"), task("column_sum"))
    assert any("points to scratch of float32" in line for line in lines)
    assert any(line.startswith("launched in this order: ") for line in lines)
    assert sum(line.startswith("grid of ") for line in lines) == 2


def test_without_a_launch_there_is_nothing_to_say():
    assert describe_launch(edit_seeds.seed("softmax"), replace(traced.task("softmax"), traces={})) == ()
