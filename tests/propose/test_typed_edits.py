"""The model-free proposer: deterministic, weighted, never the same kernel twice, None when nothing is left."""

from __future__ import annotations

import random

import edit_seeds as seeds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulated
from kernelsearch.core.types import Proposal, ProposalKind, Trial
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Request, Rewrite
from kernelsearch.propose.edits import EDITS, NotApplicable, edit_named
from kernelsearch.propose.typed_edits import TypedEdits
from made_outcomes import accept


def request(name: str = "softmax_wide", **fields) -> Request:
    return Request(seeds.seed(name), seeds.task(name), **fields)


def variants_of(name: str) -> dict[str, str]:
    return {v.kernel.digest: e.name for e in EDITS for v in seeds.variants(e.name, name)}


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(seeds.NAMES))
def test_same_rng_same_rewrite(seed, name):
    first = TypedEdits().propose(request(name), random.Random(seed))
    second = TypedEdits().propose(request(name), random.Random(seed))
    assert first is not None and second is not None
    assert (first.edit, first.kernel.render()) == (second.edit, second.kernel.render())


def test_exhausts_every_variant_once_and_then_says_none():
    rng, seen, proposer = random.Random(7), set(), TypedEdits()
    while (new := proposer.propose(request("rmsnorm", seen=seen), rng)) is not None:
        assert new.kernel.digest not in seen
        seen.add(new.kernel.digest)
    assert seen == set(variants_of("rmsnorm"))


def test_honours_the_edit_that_is_asked_for():
    for edit in ("online", "lane_accumulator", "persistent"):
        assert TypedEdits().propose(request(edit=edit), random.Random(1)).edit == edit
    assert TypedEdits().propose(request("matmul", edit="online"), random.Random(1)) is None
    assert TypedEdits().propose(request(edit="no_such_edit"), random.Random(1)) is None


def test_weights_decide():
    only = {e.name: 0.0 for e in EDITS} | {"reciprocal": 1.0}
    assert TypedEdits().propose(request(weights=only), random.Random(3)).edit == "reciprocal"
    nothing = {e.name: 0.0 for e in EDITS}
    assert TypedEdits().propose(request(weights=nothing), random.Random(3)) is None
    heavy = {"persistent": 1000.0}
    drawn = [TypedEdits().propose(request(weights=heavy), random.Random(i)).edit for i in range(10)]
    assert drawn.count("persistent") >= 9


class Never:
    name, summary = "never", "applies to nothing"

    def apply(self, kernel, task):
        return NotApplicable("it never does")


class Same:
    name, summary = "same", "gives the parent back"

    def apply(self, kernel, task):
        return [Rewrite(kernel, self.name, "Nothing changes.")]


@pytest.mark.parametrize("edits", [[Never()], [Same()], [Never(), Same()], []])
def test_none_when_no_edit_gives_anything_new(edits):
    assert TypedEdits(edits).propose(request(), random.Random(0)) is None


def test_a_composition_applies_its_edits_in_order_and_drops_those_that_do_not_apply():
    class Constant:
        summary = ""

        def __init__(self, name, applies=True):
            self.name, self.applies = name, applies

        def apply(self, kernel, task):
            line = f"{self.name} = tl.constexpr(1)"
            if not self.applies or line in kernel.constants:
                return NotApplicable("no")
            return [Rewrite(kernel.with_changes(constants=(*kernel.constants, line)), self.name, f"adds {self.name}")]

    task = simulated.task()
    seed = Kernel.parse(task.seed)
    proposer = TypedEdits([Constant("a"), Constant("b"), Constant("never", False)])

    def composed(edit, seen=()):
        return proposer.propose(Request(seed, task, frozenset(seen), edit), random.Random(0))

    both = composed("a+never+b+unknown")
    assert both.edit == "a+b" and both.rationale == "adds a adds b"
    assert both.kernel.constants == ("a = tl.constexpr(1)", "b = tl.constexpr(1)")
    assert composed("a+b", [both.kernel.digest]) is None and composed("never+unknown") is None


PAIR = """
import triton
import triton.language as tl

@triton.jit
def within(x):
    return x

@triton.jit
def first(x_ptr):
    tl.store(x_ptr, within(1))

@triton.jit
def second(x_ptr):
    tl.store(x_ptr, 2)
"""


class Replaces:
    def __init__(self, name, *texts):
        self.name, self.texts = name, texts

    def apply(self, kernel, task):
        return [
            Rewrite(Kernel.parse(kernel.render().replace(text, f"{text} + 0")), self.name, text) for text in self.texts
        ]


class Shared:
    name = "shared"

    def apply(self, kernel, task):
        return [Rewrite(kernel.with_changes(constants=("c = tl.constexpr(1)",)), self.name, "changes what both share")]


def test_what_takes_most_of_the_time_is_changed_first():
    seed = Kernel.parse(PAIR)
    both, cold = Replaces("both", "within(1)", "2"), Replaces("cold", "return x")

    def changed(parts, edits, edit=None, seen=()):
        outcome = accept(100.0, details=[{"parts_us": parts} if parts else {}])
        trial = Trial(0, Proposal(ProposalKind.SEED), seed.digest, {}, outcome, 1.0)
        asked = Request(seed, simulated.task(), frozenset(seen), edit, trial=trial)
        return TypedEdits(edits).propose(asked, random.Random(1))

    assert changed({}, [both]).rationale == "within(1)"
    assert changed({"first": 70.0, "second": 30.0}, [both]).rationale == "within(1)"
    assert changed({"first": 10.0, "second": 60.0}, [both, cold], "both+cold").rationale == "2 return x"
    hot = changed({"first": 1.0, "second": 60.0}, [cold, both])
    assert hot.rationale == "2"
    assert changed({"first": 1.0, "second": 60.0}, [cold, Shared()]).rationale == "changes what both share"
    # what takes a hundredth is not left out, but comes last, of an edit too
    seen = {hot.kernel.digest}
    assert changed({"first": 1.0, "second": 60.0}, [cold], "cold").rationale == "return x"
    assert changed({"first": 1.0, "second": 60.0}, [cold, both], seen=seen) is not None
    assert changed({"first": 10.0, "second": 60.0}, [both], seen=seen).rationale == "within(1)"


def test_an_unrolled_loop_that_starts_anywhere_ends_no_lower():
    seed = seeds.seed("column_moments")
    text = seed.render().replace("range(0, rows, BLOCK_ROWS)", "range(c, rows, BLOCK_ROWS)")
    rewrites = edit_named("loop_unroll").apply(Kernel.parse(text), seeds.facts(seed.render()))
    assert rewrites[0].kernel.code.count("tl.range(c, tl.maximum(rows, c), BLOCK_ROWS, loop_unroll_factor=UNROLL)") == 2
