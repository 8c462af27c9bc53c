"""A loop that can never end is recognised after a few turns, and no loop that ends is taken for one."""

import re

import pytest
import torch
from evaluated import evaluate

from kernelsearch.evaluate.faults import EndlessLoop

HELPERS = """
@triton.jit
def has_come(p):
    return tl.load(p, volatile=True) == 1

@triton.jit
def take(p):
    while tl.atomic_xchg(p, 1) == 1:
        pass
"""
ENDLESS = {
    "lock_that_is_held": (
        """
    tl.atomic_xchg(p, 1)
    take(p)
""",
        "a turn of it changes nothing",
    ),
    "flag_of_another": (
        """
    while tl.atomic_cas(p + 1, 1, 1) != 1:
        pass
    tl.store(p, 7)
""",
        "cannot be judged without a GPU",
    ),
    "volatile_load_in_a_helper": (
        """
    while not has_come(p):
        pass
    tl.store(p, 7)
""",
        "never ends in program (0, 0, 0)",
    ),
    "work_between_the_looks": (
        """
    for _ in range(2):
        seen = 0
        while (seen != 1) and (tl.program_id(0) >= 0):
            tl.store(p + 2 + tl.arange(0, 4), tl.arange(0, 4) * 0.5)
            seen = tl.atomic_add(p, 0)
    tl.store(p, 7)
""",
        "a turn of it changes nothing",
    ),
    "no_other_program": (
        """
    spin = tl.program_id(0) + 5
    while spin > 0:
        spin = tl.maximum(spin, 1)
    tl.store(p, spin)
""",
        "never ends",
    ),
}
ENDING = {
    "counts_in_memory": """
    while tl.atomic_add(p, 1) < 40:
        pass
""",
    "counts_in_a_name": """
    left = 300
    while left > 0:
        left -= 3
    tl.store(p, 41 + left)
""",
    "toggles_in_memory": """
    while tl.load(p + 1) < 41:
        was = tl.load(p)
        tl.store(p, 1 - was)
        tl.store(p + 1, tl.load(p + 1) + was)
    tl.store(p, tl.load(p + 1))
""",
    "same_names_but_a_longer_walk": """
    at = 0
    while at < 15:
        at = tl.load(p + at).to(tl.int32)
    tl.store(p, 41)
""",
    "stores_the_same_until_the_last": """
    turn = 0
    while tl.load(p) == 0:
        tl.store(p + tl.arange(0, 16), tl.arange(0, 16) * 0, mask=turn < 39)
        tl.store(p, (turn >= 39) * 41)
        turn += 1
""",
}


def run(name, body):
    p = torch.arange(1, 17, dtype=torch.int32) if "walk" in name else torch.zeros(16, dtype=torch.int32)
    evaluate(f"{HELPERS}\n@triton.jit\ndef kernel(p):\n{body}", dict(p=p), {}, (1,))
    return int(p[0])


@pytest.mark.parametrize("name", ENDLESS)
def test_it_never_ends(name):
    body, said = ENDLESS[name]
    with pytest.raises(EndlessLoop, match=re.escape(said)):
        run(name, body)


@pytest.mark.parametrize("name", ENDING)
def test_it_ends(name):
    assert run(name, ENDING[name]) == 41
