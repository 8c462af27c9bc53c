"""Conversations: accepted kernels go back too, for a few rounds, the same after a kill and from a record."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from scripted import Scripted, shared, trial
from searching import BUDGET, SEED, Judge, searched, story, task
from test_whole_kernels import FILE, HOST, ask_of, begun, fenced, rng, whole

from kernelsearch.core.errors import ModelError
from kernelsearch.core.types import Evidence, Hint, Measurement, Outcome, ShapeTime, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.propose import engines, proposers
from kernelsearch.propose.engines import Failure
from kernelsearch.propose.engines.recorded_answers import INSTEAD, RecordingEngine
from kernelsearch.propose.grammar import WholeKernel
from kernelsearch.propose.grammar.kernel_file import make_grammar
from kernelsearch.propose.history import PATIENCE
from kernelsearch.propose.mix import ProposerMix, RunLimits
from kernelsearch.propose.models import ideas, kernel_page, prompt
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store

HINT = Hint(
    "occupancy", {"programs": 8.0, "num_sms": 132.0}, "none: smaller tiles",
    "Idle SMs", "8 programs for 132 SMs.", 0.9, "work can be spread",
)  # fmt: skip
LAUNCH = dict(kernel="add_parts", programs=32, programs_per_sm=4, num_warps=8, registers=40, stack_bytes=16,
              shared_bytes=512, load_bytes=4.0, limiter="programs")  # fmt: skip


def variant(number, file=FILE):
    """A kernel file that differs from the others in a constant."""
    return file.replace("\n\n@triton.jit\ndef column", f"\nC{number} = tl.constexpr(1)\n\n\n@triton.jit\ndef column", 1)


def told(model, made, number, score, parent=SEED.digest, config=None):
    """One trial of a kernel that the model made, told as the search tells it."""
    one = trial(number, made.kernel.digest, score, made.edit, made.rationale, parent=parent)
    if score is not None:
        measured = one.outcome.measurement
        times = (replace(measured.times[0], detail={"launches": [LAUNCH]}),)
        outcome = replace(one.outcome, measurement=replace(measured, times=times), hints=(HINT,))
        one = replace(one, outcome=outcome, config=config or dict(made.kernel.config))
    model.models.history.tell(one, made.kernel, made.parent or parent)
    model.tell(one)


def asked(model, number, parent=None):
    kernel = parent.kernel if parent else SEED
    known = model.models.history.get(kernel.digest)
    return model.propose(replace(ask_of(number), parent=kernel, trial=known.best), rng(number))


def test_an_accepted_kernel_goes_back_with_its_times_its_means_and_what_it_gained():
    model = begun([fenced(variant(1)), fenced(variant(2))])
    first = asked(model, 1)
    for number in range(1, 8):
        told(model, first, number, 0.5 + number / 100)
    assert asked(model, 8, first) is None and len(model.engine.asks) == 1  # it is tuned first
    told(model, first, 8, 0.5)
    second = asked(model, 9, first)
    page, follow_up = model.engine.asks
    assert follow_up.page == page.page and len(follow_up.turns) == 1
    answer, said = follow_up.turns[0]
    for part in ("2.00x as fast as the kernel that it was made from", "no kernel is faster", "BLOCK=64, SPLIT=16",
                 "of 8 tried", "rows=64: this kernel 5 us", "40 registers and 16 spilled bytes", "4 at once on an SM",
                 "Idle SMs (occupancy), 10.00x at most (estimated)",
                     "8 programs for 132 SMs. Change: smaller tiles", "DO THIS"):  # fmt: skip
        assert part in said, part
    assert (
        "C1 = tl.constexpr(1)" in answer and second.edit == "kernel:scripted" and second.parent == first.kernel.digest
    )
    call = model.models.ledger.calls[1]
    assert call.follows == call.parent == first.kernel.digest and call.ask in (ideas.IMPROVE, ideas.REWRITE)


def test_a_slower_kernel_goes_back_once_it_is_tuned_and_its_parent_stays_the_best_of_the_conversation():
    model = begun([fenced(variant(n)) for n in range(4)])
    first = asked(model, 1)
    for number in range(1, 8):
        told(model, first, number, 1.5)
    assert not model.talks.list_open(SEED.digest, 9, 4)  # seven of its configs were tried
    told(model, first, 8, 1.4)
    second = asked(model, 9)
    _, said = model.engine.asks[-1].turns[-1]
    assert "0.71x as fast as the kernel that it was made from" in said and "the fastest is 1.40x as fast" in said
    assert ideas.SLOWER in said and second.parent == SEED.digest and model.models.ledger.calls[-1].ask == ideas.REWRITE
    told(model, second, 10, 1.2)
    assert not model.talks.list_open(SEED.digest, 10 + PATIENCE - 1, 4)
    assert model.talks.list_open(SEED.digest, 10 + PATIENCE, 4) == [second.kernel.digest]  # nobody tunes it any more


def test_accepted_and_refused_answers_count_as_rounds_alike_and_the_spec_says_how_many():
    said = [fenced(variant(1)), fenced(HOST), fenced(variant(2)), fenced(variant(3))]
    engine = Scripted(lambda ask: said.pop(0))
    engine.rounds = 3
    model = whole(engine)
    model.models.history.tell(trial(0, SEED.digest, 1.0), SEED, None)
    first = asked(model, 1)
    told(model, first, 1, 0.5)
    late = 1 + PATIENCE
    assert asked(model, late, first) is None and model.can_repair(late)
    third = model.repair(ask_of(late), rng(3))
    assert third.parent == first.kernel.digest and [len(a.turns) for a in engine.asks] == [0, 1, 2]
    assert engine.asks[2].turns[0] == engine.asks[1].turns[0]
    told(model, third, late, 0.4, first.kernel.digest)
    asked(model, 2 * late, third)
    assert not engine.asks[3].turns  # three rounds are over: a new page
    assert [c.ask for c in model.models.ledger.calls][2] == "repair"
    assert engines.open_engine("command:cat?rounds=7").rounds == 7
    with pytest.raises(ModelError, match="rounds=0"):
        engines.open_engine("command:cat?rounds=0")


def test_a_server_that_fails_for_a_moment_ends_no_conversation():
    said = [fenced(HOST), Failure("429", "busy"), fenced(variant(1)), Failure("429", "busy"), fenced(variant(2))]
    model = begun(said)
    assert asked(model, 1) is None and model.repair(ask_of(2), rng(2)) is None and model.can_repair(3)
    made = model.repair(ask_of(3), rng(3))
    assert len(model.engine.asks[-1].turns) == 1
    told(model, made, 3, 0.5)
    late = 3 + PATIENCE
    assert asked(model, late, made) is None and asked(model, late + 1, made) is not None
    assert [len(a.turns) for a in model.engine.asks] == [0, 1, 1, 2, 2]


def test_a_conversation_that_does_not_fit_is_begun_anew_and_pages_are_cut_once():
    model = begun([])
    page = model.compose_page(ask_of(1), rng(1))
    limit = 2 * (len(model.system + page) // 3) + 1000

    def answer(ask):
        if ask.turns:
            return Failure(f"400: maximum context length is {limit} tokens", "context", limit)
        return fenced(variant(len(model.engine.asks)))

    model.engine.answer = answer
    first = asked(model, 1)
    told(model, first, 1, 0.5)
    late = 1 + PATIENCE
    assert asked(model, late, first) is None
    pages = model.health.page_tokens
    assert asked(model, late + 1, first) is not None and not model.engine.asks[-1].turns
    assert model.health.page_tokens == pages and len(model.engine.asks) == 3


def test_what_is_asked_for_follows_from_the_finding():
    hint = Hint("occupancy", {"programs": 8.0}, "split_reduction: share each long reduction among several programs")
    every = ideas.list_ideas([hint], ("drop_mask", "exp2"))
    plan = begun([]).models.plan
    drawn = {plan.draw(every, Counter(), 1, random.Random(n)).action for n in range(200)}
    assert drawn == {"Share each long reduction among several programs (the bottleneck is occupancy)."}
    found = ideas.list_kernel_ideas([HINT], True)
    assert [i.kind for i in found] == ["improve", "rewrite", "combine"]
    assert all("occupancy" in i.action for i in found[:2]) and "smaller tiles" in found[0].action
    near, staged = (
        ideas.list_kernel_ideas([replace(HINT, suggestion=text, evidence={"roofline_us": 9.0})], False)
        for text in ("none: it moves no byte twice; only fewer bytes make it faster", "num_stages: 1, so that it fits")
    )
    assert "occupancy" not in near[1].action and "num_stages: 1" in staged[0].action


# ---------------------------------------------------------------- in a search, killed, resumed and replayed


class Gains(Judge):
    """Each round of the conversation is faster than the one before; a kernel with an odd mark has a wrong value."""

    def evaluate(self, kernel, config, incumbent=None):
        marks = [int(c.split(" ")[0][1:]) for c in kernel.constants if c.startswith("C") and c[1].isdecimal()]
        if not marks:
            return super().evaluate(kernel, config, incumbent)
        if marks[0] % 2:
            return Outcome(Verdict(Word.WRONG, "judge", "too far off"), seconds=1.0)
        time_us = 8.0 - marks[0] / 1000 + config["num_warps"] / 100
        times = (ShapeTime("timed:0", time_us, detail={"launches": [LAUNCH]}),)
        return Outcome(Verdict(Word.ACCEPT, "judge"), Measurement(Evidence.ESTIMATED, "h100", "p", times), (HINT,), 1.0)


SMALL = FILE.replace('"BLOCK": [32, 64], "SPLIT": [8, 16, 32], ', "")
"""Two configs: it is soon tuned."""


def in_rounds(ask):
    """Kernels whose marks are functions of the conversation: right, wrong, right."""
    return fenced(variant(10 * (ask.seed % 50) + (0, 1, 2)[len(ask.turns) % 3], SMALL))


def mixed(engine, **fields):
    models = shared()
    return ProposerMix([whole(engine, models, rounds=3)], models, RunLimits(BUDGET), alone=True, **fields)


def test_a_conversation_of_three_rounds_is_the_same_killed_at_each_round_and_replayed(tmp_path):
    path = tmp_path / "answers.jsonl"
    recording = mixed(RecordingEngine(Scripted(in_rounds), str(path)))
    with Store.open_in_memory() as store:
        unbroken, _ = searched(recording, store, BUDGET, judge=Gains)
        calls = store.load_calls(1)
    recording.close()
    rounds = [c.page.count("YOUR ANSWER") for c in calls]
    accepted = {t.kernel for t in unbroken.trials if t.accepted}
    assert max(rounds) == 2 and any(c.follows in accepted for c in calls) and any(c.ask == "repair" for c in calls)
    third = next(c for c in calls if c.page.count("YOUR ANSWER") == 2)
    second = next(c for c in calls if any(a.kernel == third.follows for a in c.answers))
    first = next(c for c in calls if any(a.kernel == second.follows for a in c.answers))
    for stop in (first.number + 1, second.number + 1, third.number):
        with Store.open(tmp_path / f"{stop}.db") as store:
            searched(mixed(Scripted(in_rounds)), store, stop, judge=Gains)
            again = Scripted(in_rounds)
            resumed, _ = searched(mixed(again), store, BUDGET, store.load_runs()[0], judge=Gains)
            stored = store.load_calls(1)
        assert story(resumed) == story(unbroken) and stored == calls, stop
    replay = engines.open_engine(f"replay:{path}")
    replay.label = "scripted"  # a kernel's edit names the engine
    with Store.open_in_memory() as store:
        replayed, _ = searched(mixed(replay), store, BUDGET, judge=Gains)
        again = store.load_calls(1)
    assert story(replayed) == story(unbroken)
    assert [(c.page, c.follows, c.ask, c.answers) for c in again] == [
        (c.page, c.follows, c.ask, c.answers) for c in calls
    ]


def test_recorded_kernels_answer_in_order_where_times_differ_and_the_user_reads_so(tmp_path):
    path, held = tmp_path / "answers.jsonl", make_grammar("file")  # engines are given the grammar of whole kernels
    engine = Scripted(in_rounds)
    engine.rounds = 5
    recording = RecordingEngine(engine, str(path))
    for seed in (1, 2):
        recording.complete(engines.Ask("s", f"page {seed}", held, seed=seed, whole=True))
    recording.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    replay = engines.open_engine(f"replay:{path}")
    assert replay.rounds == 5
    asks = [engines.Ask("s", page, held, whole=True) for page in ("page 2", "other", "third")]
    found = [replay.complete(ask) for ask in asks[:2]]
    assert [f.samples[0].text for f in found] == [rows[1]["samples"][0]["text"], rows[0]["samples"][0]["text"]]
    assert [f.notes for f in found] == [(), (INSTEAD,)]
    assert isinstance(replay.complete(asks[2]), Failure)


def test_kind_of_ask_and_what_was_left_out_are_in_the_record():
    models = shared()
    models.history.tell(trial(0, SEED.digest, 1.0), SEED, None)
    for n in range(9):
        kernel = Kernel.parse(variant(n, FILE.replace("part", f"p{n}art")))
        models.history.tell(trial(n + 1, kernel.digest, 0.5 + n / 10, "kernel:x", f"idea {n}"), kernel, SEED.digest)
    model = whole(lambda ask: fenced(variant(99)), models, page_tokens=3000)
    proposer = ProposerMix([model], models, RunLimits(BUDGET), alone=True)
    with Store.open_in_memory() as store:
        searched(proposer, store, BUDGET, judge=Gains)
        (call, *_) = store.load_calls(1)
    assert call.ask in (ideas.IMPROVE, ideas.REWRITE, ideas.COMBINE)
    assert "under OTHER KERNELS" in call.left_out and call.left_out in call.page


def test_baselines_and_the_copy_bandwidth_are_on_the_page_where_the_record_knows_them():
    facts, target = task(), target_by_name("h200")
    with Store.open_in_memory() as store:
        store.add_run(facts, RunFacts("evolve"))
        assert not proposers.load_machine_facts(store, facts, "H200", target).baselines
        for name, time_us, failure in (("eager", 9.0, None), ("max-autotune", 4.5, None), ("compile", None, "no")):
            store.add_baseline(facts, "timed:0", "H200", name, "confirmed", {}, time_us, 0.0, failure)
        place = proposers.load_machine_facts(store, facts, "H200", target)
    page = prompt.PromptPage(WholeKernel(SEED, facts.sites), facts, place, trial=trial(0, SEED.digest, 1.0))
    text = kernel_page.write_page(page, len, 90_000).text
    assert "rows=64: this kernel 10 us, max-autotune 4.5 us, eager 9 us (estimated; baselines confirmed)" in text
    assert "compile" not in text.partition("ITS TIMES")[2]
