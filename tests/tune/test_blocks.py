"""Several kernels of one launcher: names in blocks, each with a model of its own times."""

import math
import random
from itertools import product

import pytest

from kernelsearch.core.types import Evidence, Measurement, ShapeTime
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space
from kernelsearch.tune import Tuners
from kernelsearch.tune.blocks import NameBlock, find_blocks, find_same_functions, share_parts
from kernelsearch.tune.tuner import Tuner

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
        tuner, asked = Tuner(self.space, dict(self.start), lambda config: True, blocks=self.blocks), []
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
    tuner = Tuner(Space({"a.X": VALUES, "b.X": (64,)}), {"a.X": 1, "b.X": 64}, lambda config: True, blocks=blocks)
    for number in range(6):
        config = tuner.ask(random.Random(number))
        tuner.tell(config, 1.0 / config["a.X"], parts={"a": 1.0 / config["a.X"], "b": 1.0})
    assert tuner.best[1]["b.X"] == 64


def test_a_kernel_that_always_fails_beside_known_ones_does_not_end_the_search():
    blocks = (NameBlock(("a.X", "a.Y"), ("a",)), NameBlock(("b.X",), ("b",)))
    space = Space({"a.X": tuple(range(16)), "a.Y": tuple(range(16)), "b.X": VALUES})
    known = [('{"b.X": 4}', {"b": 1.0}, frozenset({"b"}))]
    start = {"a.X": 1, "a.Y": 1, "b.X": 4}
    tuner = Tuner(space, start, lambda config: True, blocks=blocks, known=known, inherited=True)
    for number in range(90):
        tuner.tell(tuner.ask(random.Random(number)), None)


def measure(times, parts, abandoned=False):
    both = zip(times, parts, strict=True)
    shapes = tuple(ShapeTime(f"timed:{i}", us, detail={"parts_us": p}) for i, (us, p) in enumerate(both))
    return Measurement(Evidence.MEASURED, "g", "p", shapes, abandoned)


def test_shapes_count_alike_and_what_is_not_known_is_not_nothing():
    unit = {"timed:0": 10.0, "timed:1": 1000.0}
    whole = measure([10.0, 1000.0], [{"one": 4.0, "two": 6.0}, {"one": 700.0, "two": 300.0}])
    assert share_parts(whole, unit) == pytest.approx({"one": 0.55, "two": 0.45})
    assert share_parts(whole, dict.fromkeys(unit, 0.5)) == {"one": 704.0, "two": 306.0}
    abandoned = measure([20.0], [{"one": 14.0, "two": 6.0}], abandoned=True)
    assert share_parts(abandoned, unit) == pytest.approx({"one": 1.4, "two": 0.6})
    late = measure([10.0, 1000.0], [{"one": 4.0, "two": 6.0}, {}])
    assert share_parts(late, unit) == share_parts(late, dict.fromkeys(unit, 0.5)) == {}
    assert share_parts(None, unit) == {}


def test_a_function_is_the_same_if_all_that_it_reads_is():
    before = Kernel.parse(TEXT)
    assert find_same_functions(before, before) == {"shared", "one", "two", "three"}
    deep = TEXT.replace("@triton.jit\ndef shared", "@triton.jit\ndef deep(x):\n    return x\n\n@triton.jit\ndef shared")
    deep = deep.replace("SHARED: tl.constexpr):\n    return x", "SHARED: tl.constexpr):\n    return deep(x)")
    one, other = Kernel.parse(deep), Kernel.parse(deep.replace("(x):\n    return x", "(x):\n    return -x"))
    assert find_same_functions(one, other) == {"two", "three"}
    text = TEXT.replace("@triton.jit\ndef shared", "G: tl.constexpr = 8\n\n@triton.jit\ndef shared", 1)
    assert find_same_functions(before, Kernel.parse(text)) == frozenset()


def test_the_same_calls_suggest_the_same_after_models_were_dropped():
    task = Sum(7)
    one, other = task.tune(12)[0], task.tune(12)[0]
    other.forget()
    assert one.ask(random.Random(99)) == other.ask(random.Random(99))


def test_a_failure_is_blamed_on_the_block_that_was_never_right_with_its_values():
    task = Sum(3)
    tuner, asked = task.tune(60, fails=lambda config: config["k0.A"] == 128)
    models = tuner._get_surrogate()
    blamed = {n for n, model in enumerate(models._models) if None in model._scores.values()}
    assert blamed <= {0} and sum(config["k0.A"] == 128 for config in asked) < 10
    assert tuner.best[0] <= 1.05 * 500.0


def test_what_has_no_names_does_not_count_as_a_gain():
    """With 300 us more that nothing decides, the best values of all blocks are tried together as rarely."""
    task, asked = Sum(5, kernels=3), []
    task.slope = dict.fromkeys(task.slope, 0.001)
    tuner = Tuner(task.space, dict(task.start), lambda config: True, blocks=task.blocks)
    for number in range(40):
        config = tuner.ask(random.Random(number))
        took = task.measure(config)
        asked.append(config)
        tuner.tell(config, sum(took.values()) + 300.0, parts={**took, "fixed": 300.0})
    assert asked == task.tune(40)[1]


def test_a_block_without_functions_goes_by_the_whole_time():
    blocks = (NameBlock(("k.A",), ("k",)), NameBlock(("other",), ()))
    space = Space({"k.A": VALUES, "other": VALUES})
    tuner = Tuner(space, {"k.A": 1, "other": 1}, lambda config: True, blocks=blocks)
    for number in range(30):
        config = tuner.ask(random.Random(number))
        took = {"k": 50.0 + config["k.A"], "free": 1.0}
        tuner.tell(config, sum(took.values()) + 100.0 / config["other"], parts=took)
    assert tuner.best[1] == {"k.A": 1, "other": 128}


def test_a_changed_kernel_knows_what_its_unchanged_functions_took():
    seed = Kernel.parse(TEXT)
    own = "def three(x_ptr, PARTS: tl.constexpr):\n    pass"
    child = Kernel.parse(TEXT.replace(own, own.replace("pass", "tl.store(x_ptr, 0)")))
    inner = Kernel.parse(TEXT.replace("    return x\n", "    return x + 1\n"))
    space = {"one.BLOCK": VALUES, "three.PARTS": VALUES}
    start = {"one.BLOCK": 1, "three.PARTS": 1}
    tuners = Tuners()
    tuners.add(seed, space, start)
    for a, b in product((1, 16), (1, 2)):
        config = {"one.BLOCK": a, "three.PARTS": b}
        tuners._tuners[seed.digest].tell(config, 1.0, parts={"one": 10.0 / a, "three": float(b)})
    for kernel, kept in ((child, {"one"}), (inner, {"three"})):
        tuners.add(kernel, space, start, parent=seed.digest)
        known = tuners._tuners[kernel.digest].known
        assert len(known) == 4 and {f for _, parts, same in known for f in parts if f in same} == kept
    assert tuners.ask(child.digest, 0) == start
    assert tuners.ask(child.digest, 1)["one.BLOCK"] != 1
