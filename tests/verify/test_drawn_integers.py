"""Integers are drawn anew: by other seeds, as flags of both kinds, within the range of a task's own draws."""

import torch

from kernelsearch.verify import drawn_integers
from kernelsearch.verify.drawn_integers import choose_draws, draw_integers

FLAGS, PACKED, NOISE = torch.zeros(64, dtype=torch.int32), torch.ones(64) > 0, torch.ones(64)
WIDE = torch.arange(5, 69)
WIDE[7] = WIDE[8]
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
    """In part most of a row is equal: a token that ends a text is rare."""
    spread = [draw_integers(DRAWS, [False] * 5, "spread", seed)[1] for seed in range(30)]
    assert all(int(s.min()) >= 2 and int(s.max()) <= 68 for s in spread)
    kinds = sorted(len(set(s.tolist())) for s in spread)
    assert kinds[0] <= 3 and 20 < kinds[-1] < 64 and max(int(s.max()) for s in spread) > 58


def test_rare_numbers_are_the_reference_s_own():
    """A token that ends a text is one of 50,000: hardly a row had one, and none far from the next."""
    tokens = [[torch.randint(0, 50_000, (16, 512))] for _ in range(3)]
    tokens[0][0][0, 0] = 0  # else one draw in three has no token as small as that
    drawn = [draw_integers(tokens, [False], "spread", seed, (1.0, 0.5, 60_000.0))[0] for seed in range(4)]
    rows = torch.cat(drawn)
    ends = (rows == 1).sum(-1)
    assert int((ends > 0).sum()) > 8 and bool((ends[ends > 0] < 400).all()) and int(rows.max()) < 50_000


def test_what_a_domain_fixes_stays():
    assert draw("spread", fixed=(0, 1, 2))[:3] == DRAWS[-1][:3]


def test_ends_are_met_in_each_combination():
    """A sum of one tensor's largest and another's least wraps where that of two largest does not."""
    low, high = torch.arange(-18, 18) // 2, torch.arange(200, 236) // 2
    draws = [[low, high]] * 2
    met = [[int(v.unique()) for v in draw_integers(draws, [False] * 2, "ends", seed)] for seed in range(4)]
    assert sorted(met) == [[-9, 100], [-9, 117], [8, 100], [8, 117]]


def test_an_end_of_the_type_that_draws_come_near_is_an_end():
    near, short = torch.tensor([-(2**31) + 99, 5]), torch.tensor([-127, 126])
    drawn = [near.int(), near, short.to(torch.int8)]
    assert [int(v[0]) for v in draw_integers([drawn] * 2, [False] * 3, "ends", 0)] == [-(2**31), -(2**31) + 99, -127]


def test_near_numbers_are_equal_or_one_apart_also_across_tensors():
    start, end = torch.arange(0, 100) // 2, torch.arange(60, 160) // 2
    for seed in range(20):
        start_near, end_near = draw_integers([[start, end]] * 2, [False] * 2, "near", seed)
        assert len(set(start_near.tolist())) <= 3 and end_near.unique().numel() <= 3
        assert int(start_near.min()) >= 0 and int(end_near.min()) >= 30
    assert any(
        bool((a == b).any())
        for a, b in (draw_integers([[start, end]] * 2, [False] * 2, "near", seed) for seed in range(20))
    )


def test_near_numbers_may_differ_above_32_bits_alone():
    ids = torch.arange(0, 2**40, 2**33)
    (near,) = draw_integers([[ids]] * 2, [False], "near", 3)
    assert len({int(n) % 2**32 for n in near}) < len({int(n) for n in near})


def test_numbers_that_must_differ_stay_as_drawn():
    """Rows that a kernel writes by slots: where two had one slot, whichever program came last decided."""
    slots = [torch.randperm(40, generator=torch.Generator().manual_seed(seed))[:12] for seed in range(9)]
    for each in slots:
        each[:3] = -1  # no slot
    wide = [torch.randint(0, 2**40, (12,), generator=torch.Generator().manual_seed(seed)) for seed in range(9)]
    for regime in ("spread", "ends", "near"):
        kept, drawn = draw_integers(list(zip(slots, wide)), [False] * 2, regime, 3)
        assert kept is slots[-1] and not torch.equal(drawn, wide[-1])


def test_flags_are_rare_by_a_secret_share():
    """A loop that carries the last flag was right as long as each block had one."""
    flags = torch.zeros(4096, dtype=torch.bool)
    shares = [float(draw_integers([[flags]] * 2, [False], "flagged", seed)[0].float().mean()) for seed in range(40)]
    assert min(shares) < 0.01 and max(shares) > 0.99 and any(0.1 < share < 0.9 for share in shares)
    assert all(0 < share < 1 for share in shares)


def test_a_number_in_a_tensor_of_no_axes_is_drawn():
    draws = [[torch.tensor(n), torch.tensor(n % 2 == 0)] for n in range(3, 9)]
    for regime in ("reseeded", "flagged", "spread", "ends", "near"):
        number, flag = draw_integers(draws, [False] * 2, regime, 5)
        assert number.shape == flag.shape == () and 3 <= int(number) <= 8 and flag.dtype == torch.bool


def test_offsets_stay_a_partition():
    """`cu_seqlens` of random numbers are no sequences; a task never draws an empty or a single long one."""
    x, offsets = torch.zeros(640, 8), torch.tensor([0, 90, 300, 310, 640], dtype=torch.int32)
    seen = set()
    for regime in ("spread", "ends", "near"):
        for seed in range(8):
            drawn = draw_integers([[x, offsets]] * 3, [False] * 2, regime, seed)[1]
            assert int(drawn[0]) == 0 and int(drawn[-1]) == 640 and bool((drawn.diff() >= 0).all())
            assert drawn.dtype == torch.int32
            seen.add((regime, tuple(drawn.diff().tolist())))
    assert {("ends", (640, 0, 0, 0)), ("ends", (0, 0, 0, 640))} <= seen and len(seen) > 12
    places = torch.arange(641)  # which rise to the end of an axis as well
    assert draw_integers([[x, places]] * 3, [False] * 2, "spread", 1)[1] is places


def test_ids_of_a_row_stay_different():
    """Experts of a token: never one twice, but all tokens may choose the same ones."""
    draws = [[torch.rand(32, 16, generator=torch.Generator().manual_seed(n)).argsort(-1)[:, :4]] for n in range(3)]
    for regime in ("spread", "ends", "near"):
        for seed in range(6):
            (drawn,) = draw_integers(draws, [False], regime, seed)
            assert (
                not bool((drawn.sort(-1).values.diff() == 0).any()) and 0 <= int(drawn.min()) <= int(drawn.max()) < 16
            )
            assert regime == "spread" or drawn.unique().numel() == 4


def test_draws_are_chosen_for_the_ends_of_blocks_long_spans_and_extremes():
    """A kernel that loses the last block of a context of 256 is right at each of thousands of other lengths."""
    lengths = [torch.tensor(v) for v in ([5, 90, 7], [9, 256, 11], [300, 301, 302], [3, 8, 6], [40, 41, 200])]
    alike = torch.tensor([128, 64])
    draws = [[alike, torch.empty(9, device="meta"), length] for length in lengths]
    assert choose_draws(draws, 4) == [1, 2, 3] and choose_draws(draws, 1) == [1]
    assert choose_draws([draws[0]] * 3, 4) == [] and choose_draws([], 4) == []


def test_numbers_reach_as_far_as_at_other_shapes():
    """Positions in a table of which a test shape draws 0 to 2, and a timed one 8191."""
    near, far = torch.arange(3), torch.arange(8192)
    drawn = [draw_integers([[near]] * 2, [False], "reaching", seed, elsewhere=[[far]])[0] for seed in range(9)]
    assert all(int(v.min()) >= 0 and int(v.max()) <= 8191 for v in drawn) and max(int(v.max()) for v in drawn) > 2048
    assert all(int(draw_integers([[near]] * 2, [False], "spread", seed)[0].max()) <= 2 for seed in range(9))


def test_numbers_that_may_be_lengths_lie_where_blocks_end():
    drawn = torch.arange(4000)
    moved = drawn_integers._move_near(drawn, torch.Generator().manual_seed(3))
    assert torch.equal(moved[:16], drawn[:16]) and 0.4 < float((moved == drawn).double().mean()) < 0.6
    for block, share in ((16, 0.15), (128, 0.06)):  # of others 1/16 and 1/128
        assert float((moved % block == 1).double().mean()) > share
