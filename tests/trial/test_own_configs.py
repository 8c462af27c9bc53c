"""The seed of every figure is the task's own kernel at the best config of its own list, tuned once."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import triton

import simulated
from kernelsearch.core.types import LaunchFact, Outcome, Trace, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import Run, RunFacts
from kernelsearch.tasks.space import find_numbers
from kernelsearch.trial.bench import Bench, versions
from kernelsearch.trial.evaluation import Evaluation
from kernelsearch.trial.own_configs import as_facts, tune_seed
from kernelsearch.verify.cures import name_cures
from made_outcomes import accept


class Inner:
    """Times are a config's `us`; without one it is rejected, with `slow` given up. Remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def evaluate(self, kernel, config, incumbent=None):
        self.asked.append((config, incumbent))
        if "us" not in config:
            return Outcome(Verdict(Word.COMPILE, "compile", "no"))
        return accept(config["us"], config["us"], abandoned=config.get("slow", False))


@pytest.fixture
def bench():
    task = simulated.task()
    return SimpleNamespace(
        facts=task, where="g", seed=Kernel.parse(task.seed), lanes=2
    )  # fmt: skip


def listed(*lists, config):
    return replace(simulated.task(), own_configs=tuple(tuple(one) for one in lists), config=config)


def test_the_best_of_the_list_is_the_seeds_config(bench):
    inner, said = Inner(), []
    first, best = {"us": 9.0}, {"us": 1.0, "num_warps": 8}
    task = listed([first, {"us": 0.5, "slow": True}, best, {"num_warps": 2}, {"us": 3.0}], config=first)
    tuned = tune_seed(bench, task, inner, say=said.append)
    assert dict(tuned.config) == best == dict(bench.facts.config) and tuned.tuned == bench.facts.tuned == 5
    assert inner.asked[0] == (first, None) and len(inner.asked) == 5
    assert all(incumbent is not None for _, incumbent in inner.asked[1:])
    assert said == ["tuning the task's own kernel over the 5 configs of its own list"]
    assert as_facts(tuned) == {"seed": {"configs": 5, "config": best}} and as_facts(task) == {}


def test_the_lists_of_several_kernels_are_tuned_one_after_the_other(bench):
    inner = Inner()
    task = listed([{"us": 9.0}, {"us": 4.0}], [{"b.BLOCK": 1}, {"b.BLOCK": 2}], config={"us": 9.0, "b.BLOCK": 1})
    assert dict(tune_seed(bench, task, inner).config) == {"us": 4.0, "b.BLOCK": 1}
    assert {"us": 4.0, "b.BLOCK": 2} in [config for config, _ in inner.asked]


def test_a_seed_without_a_list_is_not_tuned(bench):
    task, inner = simulated.task(), Inner()
    assert tune_seed(bench, task, inner) is task and inner.asked == []


def test_it_is_tuned_once_for_a_device_and_its_shapes(bench):
    task = listed([{"us": 9.0}, {"us": 4.0}], config={"us": 9.0})
    shapes = [s.key for s in task.shapes]
    known = {"configs": 2, "config": {"us": 4.0}}

    def run(**settings):
        facts = RunFacts("evolve", target=settings.pop("target", "g"), versions=versions(), settings=settings)
        return Run(1, "", task.digest, facts, "", None)

    inner = Inner()
    assert tune_seed(bench, task, inner, [run(seed=known, shapes=shapes)]).config == {"us": 4.0} and not inner.asked
    for other in (run(shapes=shapes), run(seed=known, shapes=shapes[:1]), run(seed=known, shapes=shapes, target="h")):
        inner = Inner()
        tune_seed(bench, task, inner, [other])
        assert inner.asked


SEED = Kernel.parse("import triton\n@triton.jit\ndef k(x_ptr, n, BLOCK: tl.constexpr):\n    pass\n")


class Jit:
    """The least of a jit function that `triton.autotune` looks at."""

    arg_names = ("x_ptr", "n", "BLOCK")

    @staticmethod
    def fn(x_ptr, n, BLOCK):
        pass


@pytest.mark.parametrize(
    ("configs", "space", "config", "lists"),
    [
        ([(64, 4), (256, 8)], None, None, (({"BLOCK": 64, "num_warps": 4}, {"BLOCK": 256, "num_warps": 8}),)),
        ([(64, 4), (256, 8)], None, {"BLOCK": 64}, ()),
        ([(64, 4)], None, None, ()),
        ([(64, 4), (256, 4), (256, 8)], {"BLOCK": [64, 128]}, None, (({"BLOCK": 64}, {"BLOCK": 256}),)),
    ],
)
def test_the_list_is_the_autotuners_unless_the_file_gives_a_config(configs, space, config, lists):
    choices = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in configs]
    traced = [Trace("timed:0", (LaunchFact("k", {"n": 1}, {}, None),))]
    found = find_numbers(space, config, {"k": triton.autotune(choices, key=[])(Jit())}, SEED, traced)
    assert [[{n: c[n] for n in c if n != "num_stages"} for c in one] for one in found.own_configs] == [
        list(one) for one in lists
    ]
    for one in (c for own in found.own_configs for c in own):
        assert all(value in found.space[name] for name, value in one.items())


TUNED = """
import torch, triton, triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}) for block in (4096, 100, 512, 64)]

@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def wide_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK * x_ptr.dtype.element_ty.primitive_bitwidth <= LEAST, "too large a tile")
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2, mask=i < n)

@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def small_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) + 1, mask=i < n)

def twice(x):
    y, n = torch.empty_like(x), x.numel()
    wide_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]) - 20 * (meta["BLOCK"] == MISSING),)](x, y, n)
    SECOND
    return y

def reference(x): return x * 2
def get_inputs(n=1000, dtype=torch.float16): return [torch.randn(n).to(dtype)]
TEST_SHAPES = [dict(n=77, dtype=torch.DTYPE)]
"""
OTHER = "small_kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](y, y, n)"


@pytest.mark.parametrize(
    ("least", "dtype", "second", "taken"),
    [
        (1 << 20, "float16", "pass", {"BLOCK": 4096}),
        (8192, "float16", "pass", {"BLOCK": 512}),
        (8192, "float32", "pass", {"BLOCK": 64}),
        (8192, "float16", OTHER, {"wide_kernel.BLOCK": 512, "small_kernel.BLOCK": 128}),
        (16, "float16", "pass", {"BLOCK": 4096}),
        (1 << 20, "float16", "MISSING = 4096", {"BLOCK": 512}),
    ],
)
def test_a_seed_starts_at_the_first_config_that_compiles(borrowing, tmp_path, least, dtype, second, taken):
    path, names = tmp_path / "tuned.py", {"LEAST": str(least), "DTYPE": dtype, "SECOND": second}
    text = TUNED if "MISSING" in second else TUNED.replace("MISSING", "None")
    for name, value in names.items():
        text = text.replace(name, value)
    path.write_text(text)
    with Bench.open(path, "h100", compile_workers=1) as bench:
        assert {n: v for n, v in bench.facts.config.items() if n in taken} == taken
        first = {n: 4096 if "small" not in n else 128 for n in taken}
        assert any("does not compile" in note for note in bench.facts.notes) == (taken != first)
        verdict = Evaluation(bench).try_compile(bench.seed, bench.facts.config)
        assert verdict.accepted == (least > 16)
        assert any("CONFIG = {" in cure for cure in name_cures(verdict, own=True)) == (least == 16)
