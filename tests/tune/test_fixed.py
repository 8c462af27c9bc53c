"""Names of a space that must keep their value."""

from __future__ import annotations

import random

from kernelsearch.kernel.space import Space
from kernelsearch.tune.fixed import FixedNames
from kernelsearch.tune.tuner import Tuner

START = {"GROUP": 128, "num_warps": 4}


def test_a_name_is_fixed_where_two_other_values_were_wrong_and_nothing_else_can_be_blamed():
    seed = FixedNames()
    seed.tell(START, True)
    seed.tell({"GROUP": 64, "num_warps": 2}, False)  # either of both may be why
    seed.tell({"GROUP": 256, "num_warps": 4}, False)
    child = FixedNames(seed)
    assert seed.find() == child.find() == {}
    seed.tell({"GROUP": 128, "num_warps": 2}, True)
    assert seed.find() == child.find() == {"GROUP": 128}
    assert child.allow({"GROUP": 128, "num_warps": 8}) and not child.allow({"GROUP": 32, "num_warps": 4})
    child.tell({"GROUP": 64, "num_warps": 4}, True)
    assert child.find() == {} and seed.find() == {"GROUP": 128}


def test_a_tuner_tries_no_other_value_of_a_fixed_name():
    space = Space({"GROUP": (16, 32, 64, 128, 256, 512), "num_warps": (1, 2, 4, 8)})
    tuner = Tuner(space, dict(START), lambda config: True)
    told = []
    while (config := tuner.ask(random.Random(len(told)))) is not None:
        wrong = config["GROUP"] != 128
        tuner.tell(config, None if wrong else 1.0 / config["num_warps"], wrong=wrong)
        told.append(wrong)
    assert told.count(False) == 4 and told.count(True) <= 8 < 5 * 4
