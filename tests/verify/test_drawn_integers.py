"""Integers are drawn anew: by other seeds, as flags of both kinds, within the range of a task's own draws."""

import torch

from kernelsearch.verify.drawn_integers import draw_integers

FLAGS, WIDE, PACKED, NOISE = torch.zeros(64, dtype=torch.int32), torch.arange(5, 69), torch.ones(64) > 0, torch.ones(64)
DRAWS = [[FLAGS, WIDE - 3, PACKED, NOISE, 3], [FLAGS, WIDE, PACKED, NOISE, 3]]


def draw(regime, fixed=()):
    return draw_integers(DRAWS, [n in fixed for n in range(5)], regime, 7)


def test_other_seeds_are_the_task_s_own_draw():
    assert all(a is b for a, b in zip(draw("reseeded"), DRAWS[-1]))


def test_flags_have_both_values_and_all_else_is_as_drawn():
    flags, wide, packed, noise, number = draw("flagged")
    assert set(flags.tolist()) == {0, 1} and set(packed.tolist()) == {False, True}
    assert (flags.dtype, packed.dtype) == (torch.int32, torch.bool) and wide is WIDE and noise is NOISE and number == 3


def test_others_stay_within_the_range_of_all_draws():
    spread = draw("spread")[1]
    assert 2 <= int(spread.min()) < 12 and 58 < int(spread.max()) <= 68 and len(set(spread.tolist())) < 64


def test_what_a_domain_fixes_stays():
    assert draw("spread", fixed=(0, 1, 2))[:3] == DRAWS[-1][:3]
