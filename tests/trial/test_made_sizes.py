"""What a verdict makes of sizes that the judge made: those that no block divides, and multiples beside them."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import without_gpu
from kernelsearch.trial.without_gpu import NOT_RIGHT, Evaluating, asks_for_sms
from kernelsearch.verify.regime_words import REDRAWN
from kernelsearch.worker.messages.jobs import JudgedCase

ACCEPT = Verdict(Word.ACCEPT, "judge", error_ratio=0.1)
NO_ATOMICS = SimpleNamespace(code="")
FIRST, ODD = JudgedCase("test:0", "randn", 3), JudgedCase("odd:0", "randn", 3)


@pytest.fixture
def judge(monkeypatch):
    """The full verdict of a candidate whose runs, and the seed's, fail at (kind of shape, order) with these words."""

    def judge(own=(), seed=None):
        bench = SimpleNamespace(right_on={}, once=lambda key, judge, *by_chance: judge())
        kernels = {"own": dict(own), "seed": dict(own if seed is None else seed)}

        def run(self, cases, order="forward", depth="full"):
            key = cases[0].kind, order.replace("in turn", "forward")
            known = kernels[self.candidate.name]
            word = known.get(key) or known.get((*key, cases[0].regime))
            detail = {"shape": cases[0].shape, "label": cases[0].kind}
            return Verdict(word, "run", "no good", detail=detail) if word else ACCEPT

        monkeypatch.setattr(Evaluating, "run", run)
        monkeypatch.setattr(without_gpu, "prepare_answers", lambda bench, cases: None)
        monkeypatch.setattr(Evaluating, "_judge_timed", lambda self, seed: None)
        of_seed = SimpleNamespace(bench=bench, is_seed=True, name="seed", kernel=NO_ATOMICS)
        monkeypatch.setattr(without_gpu, "BoundCandidate", SimpleNamespace(of_seed=lambda bench: of_seed))
        candidate = (
            of_seed if seed is None else SimpleNamespace(bench=bench, is_seed=False, name="own", kernel=NO_ATOMICS)
        )
        return Evaluating(candidate, 10.0).judge((FIRST, ODD), "full")

    return judge


def test_a_kernel_that_relies_on_order_where_there_are_many_programs_is_refused(judge):
    """The first case may have one program, and other orders of its grid then show nothing."""
    verdict = judge({("odd", "reversed"): Word.WRONG}, seed={})
    assert verdict.word is Word.RACE and verdict.reason == "with the grid reversed: no good"
    verdict = judge({("odd", "reversed"): Word.WRONG, ("odd", "forward"): Word.WRONG}, seed={})
    assert verdict.word is Word.WRONG and verdict.reason == "no good"


def test_a_kernel_that_needs_multiples_is_judged_at_one(judge):
    tail = {("odd", "reversed"): Word.WRONG, ("odd", "forward"): Word.WRONG}
    assert judge(tail).accepted and judge(tail).detail[NOT_RIGHT] == ["odd:0"]
    assert judge({("even", "reversed"): Word.MEMORY}, seed=tail).word is Word.MEMORY


def test_a_size_is_judged_where_only_integers_of_other_kinds_break_it(monkeypatch, judge):
    """They may have an order that a draw does not keep, as sorted ids have; the size is not what is wrong then."""
    drawn = replace(ODD, shape="drawn:timed:0:rows=7", regime="ends")
    monkeypatch.setattr(sys.modules[__name__], "ODD", drawn)
    verdict = judge({("drawn", order, "ends"): Word.RACE for order in ("forward", "reversed")})
    assert verdict.accepted and verdict.detail[NOT_RIGHT] == [f"{REDRAWN['ends']} at made sizes"]
    broken = {("drawn", order, "randn"): Word.WRONG for order in ("forward", "reversed")}
    ends = {("drawn", order, "ends"): Word.RACE for order in ("forward", "reversed")}
    assert judge(broken, seed=ends).word is Word.WRONG


@pytest.mark.parametrize("also, word", [("even", Word.RACE), ("other", Word.ACCEPT)])
def test_a_task_whose_kernel_races_at_multiples_too_is_refused(judge, also, word):
    """It was left out as a size at which the task's own kernel is wrong, and accepted."""
    races = {(kind, order): Word.RACE for kind in ("odd", also) for order in ("forward", "reversed")}
    assert judge(races).word is word


KERNEL = """import triton
import triton.language as tl
{spec}

@triton.jit
def f(x_ptr, n, FAST: tl.constexpr):
    tl.store(x_ptr, n)
"""


@pytest.mark.parametrize("spec, config, asks", [
    ("", {}, False), ('GRID = "(min(grid(0), num_sms),)"', {}, True), ('ARGS = {"n": "num_sms"}', {}, True),
    ('SCRATCH = {"x_ptr": ("float32", "(num_sms,)")}', {}, True), ("", {"FAST": "num_sms > 64"}, True),
])  # fmt: skip
def test_whoever_reads_the_number_of_multiprocessors_is_asked_twice(spec, config, asks):
    assert asks_for_sms(Kernel.parse(KERNEL.format(spec=spec)), config) is asks
