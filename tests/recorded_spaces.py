"""Small recorded spaces made up for tests: a bowl over parameters of every kind, with failures and noise."""

import itertools
import math
import random

from recorded.space import RecordedSpace, SpaceRow

PARAMETERS = {
    "tile height": (8, 16, 32, 64, 128),
    "λ": (0.5, 1.0, 1.5),
    "layout": ("row", "column", "swizzled"),
    "pipelined": (False, True),
    "extra": (None, 2),
}


def time_of(config):
    """A bowl with its only optimum, 100 us, at one config of the product."""
    steps = abs(math.log2(config["tile height"] / 64)) ** 1.5 + 2 * abs(config["λ"] - 1.0)
    kinds = {"row": 0.4, "column": 0.9, "swizzled": 0.0}[config["layout"]] + 0.3 * (not config["pipelined"])
    return 100.0 * math.exp(0.25 * (steps + kinds + 0.5 * (config["extra"] is None)))


def made(failing=0.1, share=1.0, seed=0):
    """A space over PARAMETERS; a part of the configs failed, and only a share of the product has rows."""
    chance, rows = random.Random(seed), []
    for values in itertools.product(*PARAMETERS.values()):
        config = dict(zip(PARAMETERS, values, strict=True))
        time_us = time_of(config)
        if chance.random() > share and time_us > 100.0:
            continue
        if chance.random() < failing and time_us > 110.0:
            rows.append(SpaceRow(config, failure=chance.choice(["compile", "runtime", "correctness", "timeout"])))
        else:
            samples = tuple(time_us * (1 + 0.01 * chance.random()) for _ in range(5))
            rows.append(SpaceRow(config, time_us, samples_us=samples))
    return RecordedSpace("bowl", "made up", {}, PARAMETERS, tuple(rows))
