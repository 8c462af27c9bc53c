"""Kernels of the study of training are right: cancellation, ties, and reads before a row begins."""

from pathlib import Path

import pytest

from turns import take_turn

TASKS = Path(__file__).resolve().parents[2] / "studies" / "train" / "tasks"


@pytest.mark.slow
@pytest.mark.parametrize("name", take_turn(["map_mish", "reduce_largest", "conv_causal"], 3))
def test_it_is_accepted(run, name):
    assert run("verify", TASKS / f"{name}.py").json["verdict"] == "accept"


def test_there_are_twenty_of_several_families():
    names = [path.stem for path in TASKS.glob("*.py")]
    assert len(names) >= 20 and len({name.split("_")[0] for name in names}) >= 6
