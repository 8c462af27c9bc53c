"""CONSTRAINTS hold for every config that a tuner gives, by whatever sampler; rewrites inherit them."""

import pytest

from kernelsearch.core.errors import SpaceError
from kernelsearch.core.types import LaunchFact, ShapeFact, TaskFacts, Trace, config_key
from kernelsearch.kernel.expressions import Scope, evaluate
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space, TaskPredicate, explain_unknown_name, require_possible_config
from kernelsearch.tune import SAMPLERS, make_seed_tuners

BODY = """import triton
import triton.language as tl


@triton.jit
def k(x_ptr, n, BM: tl.constexpr, BN: tl.constexpr, SPLIT: tl.constexpr):
    pass
"""
TEXT = 'CONSTRAINTS = ["BM * BN <= 4096", "num_warps <= 4 or BM >= 64", "SPLIT * BN < n", "SPLIT & 1 == 0"]\n' + BODY
SPACE = {"BM": (16, 32, 64, 128), "BN": (16, 32, 64, 128), "SPLIT": (1, 2, 4), "num_warps": (2, 4, 8)}


def task(seed=TEXT, **config):
    launch = LaunchFact("k", {"n": 200, "flag": True, "eps": 1e-5, "SPLIT": 2}, {"num_stages": 3}, None)
    shape = ShapeFact("timed:0", "", {})
    traces = {shape.key: Trace(shape.key, (launch,))}
    return TaskFacts("t", "t.py", "0" * 16, "native", seed, ("k",), (shape,), (), SPACE, config, "ieee", traces)


def holds(config):
    scope = Scope({"n": 200, **config})
    return all(evaluate(text, scope) for text in Kernel.parse(TEXT).constraints)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_sampler_leaves_them(sampler):
    facts = task(BM=64, BN=64, SPLIT=2, num_warps=4)
    kernel, possible = Kernel.parse(facts.seed), TaskPredicate(facts)
    tuners = make_seed_tuners(facts, kernel, seed=3, possible=possible)
    wanted = {config_key(c) for c in Space(SPACE).iterate_configs() if holds(c)}
    assert 10 < len(wanted) < Space(SPACE).size / 2
    given = [tuners.take(kernel.digest, {"BM": 128, "BN": 128, "SPLIT": 1, "num_warps": 8})]
    for number in range(24):
        given.append(tuners.ask(kernel.digest, number, sampler))
        tuners._tuners[kernel.digest].tell(given[-1], float(given[-1]["BM"] + given[-1]["BN"]))
    given += tuners.draw(kernel.digest, 10)
    assert given[0] is not None and all(config_key(c) in wanted for c in given), given


def test_a_kernel_without_its_own_has_the_tasks():
    possible = TaskPredicate(task())
    bad, good = {"BM": 128, "BN": 128, "SPLIT": 2}, {"BM": 64, "BN": 64, "SPLIT": 2}
    plain, own = Kernel.parse(BODY), Kernel.parse('CONSTRAINTS = ["BM == BN"]\n' + BODY)
    assert not possible(plain, bad) and possible(plain, good)
    assert possible(own, bad) and not possible(own, {**good, "BM": 32})
    other = Kernel.parse(BODY.replace("BN", "WIDE"))
    assert possible(other, {"BM": 128, "WIDE": 128, "SPLIT": 2}), (
        "what a kernel does not have cannot be held against it"
    )


def test_each_function_is_held_to_its_own_names():
    text = (
        'CONSTRAINTS = ["BM * BN <= 64"]\nLAUNCHES = ["a", "k"]\n'
        + BODY
        + BODY[BODY.index("@") :].replace(" k(", " a(")
    )
    possible = TaskPredicate(task())
    sizes = {"BM": 8, "BN": 8, "SPLIT": 1}
    assert possible(Kernel.parse(text), {**sizes, "a.BM": 4}) and not possible(
        Kernel.parse(text), {**sizes, "a.BM": 16}
    )


def test_one_that_has_no_value_holds_for_nothing_and_ends_nothing():
    broken = Kernel.parse('CONSTRAINTS = ["BM // (n - 200) > 1"]\n' + BODY)
    facts = task(broken.render())
    assert not TaskPredicate(facts)(broken, {"BM": 16, "BN": 16, "SPLIT": 2})
    with pytest.raises(SpaceError, match=r"none of the 144 configs.*CONSTRAINTS has 'BM // \(n - 200\) > 1'"):
        require_possible_config(Space(SPACE), broken, TaskPredicate(facts))


def test_they_are_part_of_the_kernel():
    kernel = Kernel.parse(TEXT)
    again = Kernel.parse(kernel.render())
    assert again == kernel and again.constraints[1] == "num_warps <= 4 or BM >= 64"
    assert kernel.digest != Kernel.parse(BODY).digest == Kernel.parse("CONSTRAINTS = []\n" + BODY).digest


@pytest.mark.parametrize("line, said", [
    ('CONSTRAINTS = ["BM * BLOCK_N <= 9"]', "CONSTRAINTS has 'BLOCK_N'.*it has BM, BN, PARTS, SPLIT, n;"),
    ('CONSTRAINTS = ["BM * Bn <= 9"]', "CONSTRAINTS has 'Bn'.*did you mean 'BN'"),
    ('CONSTRAINTS = ["numel(x_ptr) > BM"]', "CONSTRAINTS has 'x_ptr'"),
    ('CONFIG = {"num_warp": 4}', "CONFIG has 'num_warp', which is no constexpr of k .*did you mean 'num_warps'"),
    ('CONFIG = {"launch_pdl": True}', "CONFIG has 'launch_pdl'.*the options are num_warps, num_stages, num_ctas"),
    ('CONFIG = {"k.SPLTI": 4}', "CONFIG has 'k.SPLTI'.*did you mean 'SPLIT'"),
    ('CONFIG = {"j.SPLIT": 4}', "CONFIG has 'j.SPLIT'"),
    ('SPACE = {"PART": [4]}', "SPACE has 'PART'.*did you mean 'PARTS'"),
    ('SPACE = {"PARTS": [4], "SPLIT": [2]}', ""),
    ('CONSTRAINTS = ["PARTS > 1 and n > 1"]', ""),
])  # fmt: skip
def test_a_name_that_means_nothing_is_said_with_the_nearest(line, said):
    import re

    kernel = Kernel.parse(f'{line}\nGRID = "(PARTS, SPLIT)"\n{BODY}')
    sentence = explain_unknown_name(kernel, Kernel.parse(BODY), {"n"})
    assert re.search(said, sentence) if said else sentence == ""
