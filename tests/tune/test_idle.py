"""Parameters that leave the machine code as it is take no trials, and one that turns out to matter is tuned again."""

import random

from kernelsearch.kernel.space import Space
from kernelsearch.tune import Tuner
from kernelsearch.tune.idle import IdleNames

SPACE = {"BLOCK": (64, 128, 256), "num_stages": (1, 2, 3, 4)}
A, B = {"BLOCK": 64, "num_stages": 1}, {"BLOCK": 64, "num_stages": 2}


def told(*pairs, inherited=()):
    idle = IdleNames(inherited)
    for config, work in pairs:
        idle.tell(config, work)
    return set(idle)


def test_a_name_is_idle_where_it_alone_differs_and_the_machine_code_does_not():
    assert told((A, "x"), (B, "x")) == {"num_stages"}
    assert told((A, "x"), ({"BLOCK": 128, "num_stages": 2}, "x")) == set()  # which of the two?
    assert told((A, "x"), (B, "y")) == set()
    assert told((A, ""), (B, "")) == set()  # without a GPU nothing is known


def test_one_pair_that_differs_overrules_the_others_and_the_parent():
    wide = {"BLOCK": 128, "num_stages": 1}, {"BLOCK": 128, "num_stages": 3}
    assert told((A, "x"), (B, "x"), (wide[0], "y"), (wide[1], "z")) == set()
    assert told(inherited=["num_stages"]) == {"num_stages"}
    assert told((A, "x"), (B, "y"), inherited=["num_stages"]) == set()


def drawn(works, sampler="surrogate"):
    """The configs that a tuner asks for until its space is used up; works gives the machine code of a config."""
    tuner, configs = Tuner(Space(SPACE), A, lambda c: True), []
    while (config := tuner.ask(random.Random(len(configs)), sampler)) is not None:
        configs.append(config)
        tuner.tell(config, float(config["BLOCK"]), works(config))
    return configs


def test_a_tuner_stops_asking_for_what_an_idle_name_gives():
    everything = drawn(lambda c: f"{c['BLOCK']} {c['num_stages']}")
    assert len(everything) == 12
    less = drawn(lambda c: str(c["BLOCK"]))
    assert {c["BLOCK"] for c in less} == {64, 128, 256}
    assert len(less) <= 6  # at most one pair for each block shows it
