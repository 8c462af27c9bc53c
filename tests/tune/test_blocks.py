"""Several kernels of one launcher: names in blocks, each with a model of its own times."""

import math
import random
from copy import deepcopy
from dataclasses import replace
from itertools import product

import pytest

from kernelsearch.core.types import SAMPLER, Proposal, ProposalKind, Trial
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space
from kernelsearch.tune import Tuners
from kernelsearch.tune.block_models import BlockHistory, BlockModels
from kernelsearch.tune.blocks import NameBlock, find_blocks, identify_functions, share_parts
from kernelsearch.tune.tuner import Tuner
from made_outcomes import accept, measure

TEXT = """
import triton
import triton.language as tl

@triton.jit
def shared(x, SHARED: tl.constexpr):
    return x

@triton.jit
def one(x_ptr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    shared(x_ptr, WIDTH)

@triton.jit
def two(x_ptr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    pass

@triton.jit
def three(x_ptr, PARTS: tl.constexpr):
    pass
"""
VALUES = tuple(2**i for i in range(8))


def tuner_of(space, start, blocks, **more):
    return Tuner(space, dict(start), lambda config: True, blocks=BlockModels(space, blocks, start, **more))


def test_names_are_parted_where_no_function_has_two_of_them():
    kernel = Kernel.parse(TEXT)
    names = ["one.BLOCK", "two.BLOCK", "one.WIDTH", "three.num_warps", "one.num_warps", "launcher"]
    assert [(set(b.names), b.functions) for b in find_blocks(kernel, names)] == [
        ({"two.BLOCK"}, ("two",)),
        ({"three.num_warps"}, ("three",)),
        ({"one.BLOCK", "one.WIDTH", "one.num_warps"}, ("one",)),
        ({"launcher"}, ()),
    ]
    joined = find_blocks(kernel, [*names, "PARTS"])
    assert ("three", "two") in [b.functions for b in joined] and len(joined) == 3
    assert len(find_blocks(kernel, [*names, "num_warps"])) == 2


class Sum:
    """Kernels whose times have one best config each, and depend on their own two names alone."""

    def __init__(self, seed, kernels=5):
        rng = random.Random(seed)
        self.right = {f"k{i}": (rng.randrange(8), rng.randrange(8)) for i in range(kernels)}
        self.slope = {name: rng.uniform(0.3, 1.0) for name in self.right}
        self.blocks = tuple(NameBlock((f"{n}.A", f"{n}.B"), (n,)) for n in self.right)
        self.space = Space({name: VALUES for block in self.blocks for name in block.names})
        self.start = {name: VALUES[rng.randrange(8)] for name in self.space.values}

    def measure(self, config):
        parts = {}
        for name, (a, b) in self.right.items():
            away = abs(math.log2(config[f"{name}.A"]) - a) + 0.5 * abs(math.log2(config[f"{name}.B"]) - b)
            parts[name] = 100.0 * (1.0 + self.slope[name] * away)
        return parts

    def tune(self, trials, parts=True, fails=lambda config: False):
        tuner, asked = tuner_of(self.space, self.start, self.blocks), []
        for number in range(trials):
            asked.append(tuner.ask(random.Random(number)))
            took = {} if fails(asked[-1]) else self.measure(asked[-1])
            tuner.tell(asked[-1], sum(took.values()) or None, parts=took if parts else None)
        return tuner, asked


@pytest.mark.parametrize("seed", range(4))
def test_kernels_with_times_of_their_own_are_tuned_at_once(seed):
    task = Sum(seed)
    tuner, asked = task.tune(20)
    assert tuner.best[0] <= 1.1 * 500.0
    assert len({str(config) for config in asked}) == 20
    assert task.tune(20, parts=False)[0].best[0] > 1.2 * tuner.best[0]


def test_a_kernel_of_which_nothing_varies_needs_no_model():
    blocks = (NameBlock(("a.X",), ("a",)), NameBlock(("b.X",), ("b",)))
    tuner = tuner_of(Space({"a.X": VALUES, "b.X": (64,)}), {"a.X": 1, "b.X": 64}, blocks)
    for number in range(6):
        config = tuner.ask(random.Random(number))
        tuner.tell(config, 1.0 / config["a.X"], parts={"a": 1.0 / config["a.X"], "b": 1.0})
    assert tuner.best[1]["b.X"] == 64


def test_a_kernel_that_always_fails_beside_known_ones_does_not_end_the_search():
    blocks = (NameBlock(("a.X", "a.Y"), ("a",)), NameBlock(("b.X",), ("b",)))
    space = Space({"a.X": tuple(range(16)), "a.Y": tuple(range(16)), "b.X": VALUES})
    known = BlockHistory(Space({"b.X": VALUES}))
    known.end({"b.X": 4}, 1.0)
    start = {"a.X": 1, "a.Y": 1, "b.X": 4}
    tuner = tuner_of(space, start, blocks, inherited=True, shared={("b.X",): known})
    for number in range(90):
        tuner.tell(tuner.ask(random.Random(number)), None)


def measure_parts(times, parts, abandoned=False):
    return measure(*times, details=[{"parts_us": p} for p in parts], abandoned=abandoned)


def test_shapes_count_alike_and_what_is_not_known_is_not_nothing():
    unit = {"timed:0": 10.0, "timed:1": 1000.0}
    whole = measure_parts([10.0, 1000.0], [{"one": 4.0, "two": 6.0}, {"one": 700.0, "two": 300.0}])
    assert share_parts(whole, unit) == pytest.approx({"one": 0.55, "two": 0.45})
    assert share_parts(whole, dict.fromkeys(unit, 0.5)) == {"one": 704.0, "two": 306.0}
    abandoned = measure_parts([20.0], [{"one": 14.0, "two": 6.0}], abandoned=True)
    assert share_parts(abandoned, unit) == pytest.approx({"one": 1.4, "two": 0.6})
    late = measure_parts([10.0, 1000.0], [{"one": 4.0, "two": 6.0}, {}])
    assert share_parts(late, unit) == share_parts(late, dict.fromkeys(unit, 0.5)) == {}
    assert share_parts(None, unit) == {}


def find_same(before, after):
    one, other = identify_functions(before), identify_functions(after)
    return {name for name in one if one[name] == other.get(name)}


def test_a_function_is_the_same_if_all_that_it_reads_is():
    before = Kernel.parse(TEXT)
    assert find_same(before, Kernel.parse(TEXT)) == {"shared", "one", "two", "three"}
    deep = TEXT.replace("@triton.jit\ndef shared", "@triton.jit\ndef deep(x):\n    return x\n\n@triton.jit\ndef shared")
    deep = deep.replace("SHARED: tl.constexpr):\n    return x", "SHARED: tl.constexpr):\n    return deep(x)")
    one, other = Kernel.parse(deep), Kernel.parse(deep.replace("(x):\n    return x", "(x):\n    return -x"))
    assert find_same(one, other) == {"two", "three"}
    text = TEXT.replace("@triton.jit\ndef shared", "G: tl.constexpr = 8\n\n@triton.jit\ndef shared", 1)
    assert find_same(before, Kernel.parse(text)) == set()
    assert find_same(before, replace(before, grid={"two": "(7,)"})) == {"shared", "one", "three"}


def test_the_same_calls_suggest_the_same_after_models_were_dropped():
    task = Sum(7)
    one, other = task.tune(12)[0], task.tune(12)[0]
    other.forget()
    for history in other.blocks.histories:
        history.forget()
    assert one.ask(random.Random(99)) == other.ask(random.Random(99))


def test_a_failure_is_blamed_on_the_block_that_was_never_right_with_its_values():
    task = Sum(3)
    tuner, asked = task.tune(60, fails=lambda config: config["k0.A"] == 128)
    blamed = {n for n, known in enumerate(tuner.blocks.histories) if None in known.model._scores.values()}
    assert blamed <= {0} and sum(config["k0.A"] == 128 for config in asked) < 10
    assert tuner.best[0] <= 1.05 * 500.0


def test_what_has_no_names_does_not_count_as_a_gain():
    """With 300 us more that nothing decides, the best values of all blocks are tried together as rarely."""
    task, asked = Sum(5, kernels=3), []
    task.slope = dict.fromkeys(task.slope, 0.001)
    tuner = tuner_of(task.space, task.start, task.blocks)
    for number in range(40):
        config = tuner.ask(random.Random(number))
        took = task.measure(config)
        asked.append(config)
        tuner.tell(config, sum(took.values()) + 300.0, parts={**took, "fixed": 300.0})
    assert asked == task.tune(40)[1]


def test_a_block_without_functions_goes_by_the_whole_time():
    blocks = (NameBlock(("k.A",), ("k",)), NameBlock(("other",), ()))
    space = Space({"k.A": VALUES, "other": VALUES})
    tuner = tuner_of(space, {"k.A": 1, "other": 1}, blocks)
    for number in range(30):
        config = tuner.ask(random.Random(number))
        took = {"k": 50.0 + config["k.A"], "free": 1.0}
        tuner.tell(config, sum(took.values()) + 100.0 / config["other"], parts=took)
    assert tuner.best[1] == {"k.A": 1, "other": 128}


def trial_of(kernel, number, config, parts, whole=100.0):
    outcome = accept(whole, details=[{"parts_us": parts}])
    return Trial(number, Proposal(ProposalKind.RETUNE, (kernel.digest,)), kernel.digest, config, outcome, whole)


def test_what_a_function_took_is_known_in_all_kernels_that_have_it():
    seed = Kernel.parse(TEXT)
    own = "def three(x_ptr, PARTS: tl.constexpr):\n    pass"
    child = Kernel.parse(TEXT.replace(own, own.replace("pass", "tl.store(x_ptr, 0)")))
    inner = Kernel.parse(TEXT.replace("    return x\n", "    return x + 1\n"))
    space = {"one.BLOCK": VALUES, "three.PARTS": VALUES}
    start = {"one.BLOCK": 1, "three.PARTS": 1}
    tuners = Tuners()
    tuners.add(seed, space, start)
    for number, (a, b) in enumerate(product((1, 16), (1, 2))):
        config = {"one.BLOCK": a, "three.PARTS": b}
        tuners.tell(trial_of(seed, number, config, {"one": 50.0 / a, "three": 40.0 / b}))
    for kernel, kept in ((child, {"one.BLOCK": 16, "three.PARTS": 1}), (inner, {"one.BLOCK": 1, "three.PARTS": 2})):
        tuners.add(kernel, space, start, parent=seed.digest)
        assert tuners.ask(kernel.digest, 0) == kept
    # the child finds a better value for `one`, which it has from the seed: the seed gets it too
    better = {"one.BLOCK": 64, "three.PARTS": 2}
    tuners.tell(trial_of(child, 9, better, {"one": 1.0, "three": 30.0}))
    for sampler in ("neighbour", SAMPLER):
        again = deepcopy(tuners)
        assert again.ask(seed.digest, 10, sampler) == better
        assert again.ask(inner.digest, 11, sampler)["one.BLOCK"] != 64


def test_a_kernel_that_brings_its_own_numbers_starts_at_them():
    seed, other = Kernel.parse(TEXT), Kernel.parse(TEXT.replace("def two(x_ptr", "def two(y_ptr"))
    space, start = {"one.BLOCK": VALUES, "three.PARTS": VALUES}, {"one.BLOCK": 1, "three.PARTS": 1}
    tuners = Tuners()
    tuners.add(seed, space, start)
    tuners.tell(trial_of(seed, 0, start, {"one": 9.0, "three": 9.0}))
    own = {"one.BLOCK": 64, "three.PARTS": 1}
    tuners.add(other, space, own, parent=seed.digest)
    assert tuners.ask(other.digest, 1) == own


@pytest.mark.parametrize("space", [{"one.BLOCK": (False, True)}, {"one.BLOCK": (0.0, 1.0)}])
def test_equal_numbers_of_other_types_and_other_fixed_values_have_histories_of_their_own(space):
    seed, child = Kernel.parse(TEXT), Kernel.parse(TEXT.replace("def two(x_ptr", "def two(y_ptr"))
    both = {"three.PARTS": VALUES}
    tuners = Tuners()
    tuners.add(seed, {"one.BLOCK": (0, 1), **both}, {"one.BLOCK": 0, "three.PARTS": 1, "one.WIDTH": 4})
    tuners.add(child, {**space, **both}, {"one.BLOCK": space["one.BLOCK"][0], "three.PARTS": 1}, parent=seed.digest)
    wide = Kernel.parse(TEXT.replace("def two(x_ptr", "def two(z_ptr"))
    tuners.add(wide, {"one.BLOCK": (0, 1), **both}, {"one.BLOCK": 0, "three.PARTS": 1, "one.WIDTH": 8}, seed.digest)
    known = [{id(h) for h in tuners._tuners[k.digest].blocks.histories} for k in (seed, child, wide)]
    assert [len(known[0] & other) for other in known[1:]] == [1, 1]  # that of `three`


def test_a_resumed_run_suggests_what_an_unbroken_one_does():
    """Models are made when they are needed, so their histories must not depend on when that was."""
    seed = Kernel.parse(TEXT)
    child = Kernel.parse(TEXT.replace("def two(x_ptr", "def two(y_ptr"))
    space = {"one.BLOCK": VALUES, "one.WIDTH": VALUES, "two.BLOCK": VALUES, "three.PARTS": VALUES}
    start = dict.fromkeys(space, 1)

    def take(tuners, kernel, number, config=None):
        config = config or tuners.ask(kernel.digest, number)
        tuners.reserve(kernel.digest, config)
        a, b, c, d = (math.log2(config[n]) for n in space)
        parts = {"one": 20 + (a - 3) ** 2 + (b - 2) ** 2, "two": 10 + (c - 4) ** 2, "three": 5.0 + d}
        tuners.tell(trial_of(kernel, number, config, parts, sum(parts.values())))
        return config

    def begin():
        tuners = Tuners()
        tuners.add(seed, space, start)
        tuners.add(child, space, start, parent=seed.digest)
        return tuners

    unbroken, resumed = begin(), begin()
    asked = [take(unbroken, (seed, child)[n % 3 == 2], n) for n in range(24)]
    for n in range(13):
        take(resumed, (seed, child)[n % 3 == 2], n, asked[n])
    assert [take(resumed, (seed, child)[n % 3 == 2], n) for n in range(13, 24)] == asked[13:]
