"""A GPU trial from the gate to the hints on a simulated device: each shape is bound once."""

import threading
from collections import Counter

import pytest

from kernelsearch.core.types import Evidence
from kernelsearch.propose.edits import Edit
from kernelsearch.tasks import shipped
from kernelsearch.trial import Evaluation, evaluation, race_look, with_gpu
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator
from kernelsearch.worker.messages import jobs
from simulated_gpu import Runners, simulate_gpu


@pytest.fixture
def bench(borrowing, monkeypatch):
    with Bench.open(shipped.path("softmax"), "h100", compile_workers=1) as bench:
        simulate_gpu(bench)
        monkeypatch.setattr(race_look, "look_for_races", lambda *_: race_look.Look())
        yield bench


@pytest.mark.slow
def test_every_shape_of_a_candidate_is_bound_once_in_a_whole_trial(bench, monkeypatch):
    bound, bind = Counter(), Bench.bind_launches

    def counting(self, kernel, config, shapes):
        bound.update((config["num_warps"], shape) for shape in shapes)
        return bind(self, kernel, config, shapes)

    monkeypatch.setattr(Bench, "bind_launches", counting)
    trials = Evaluation(bench, ("timed:0", "timed:1"))
    reusing = ReusingEvaluator(trials, ReuseTerms.of(trials, bench.facts))
    config = {**bench.facts.config, "num_warps": 2}
    seed = reusing.evaluate(bench.seed, {**bench.facts.config, "num_warps": 4})
    outcome = reusing.evaluate(bench.seed, config, seed.measurement)
    whole = reusing.complete(bench.seed, config, outcome)
    own = {shape: count for (warps, shape), count in bound.items() if warps == 2}
    assert own.keys() >= {"timed:0", "timed:1", "test:0"} and set(own.values()) == {1}
    assert whole.verdict.accepted and whole.work and whole.hints == outcome.hints
    assert outcome.measurement.evidence is Evidence.MEASURED
    assert outcome.measurement.by_shape == {"timed:0": 11.0, "timed:1": 11.0}
    assert outcome.measurement.times[0].detail["launches"] and outcome.measurement.times[0].specialisation
    assert {"RunCases", "RunSeeded", "TimeCandidate", "JudgeSeeded"} <= set(bench.runners.asked)
    assert "KeepBusy" not in bench.runners.asked
    verdict, samples = trials.sample_times(bench.seed, config, {})
    assert verdict.accepted and samples["timed:0"] == (10.0, 11.0, 12.0)
    assert trials.verify(bench.seed, config).error_ratio == 0.5
    assert trials.try_compile(bench.seed, config).accepted


def test_right_answers_are_prepared_once_while_nothing_is_timed(bench, monkeypatch):
    prepared, done, held = [], threading.Event(), []
    full = tuple(c for c in bench.cases("full") if not c.seeded)

    def ask(runners, job, limit_s):
        if isinstance(job, jobs.PrepareAnswers):
            prepared.extend(job.cases)
            held.append(bench.gpu.locked())
            if len(prepared) >= len(full):
                done.set()
        return answer(runners, job, limit_s)

    answer = Runners.ask
    monkeypatch.setattr(Runners, "ask", ask)
    trials = Evaluation(bench, ("timed:1",))
    for warps in (2, 8):
        trials.begin_full(bench.seed, {**bench.facts.config, "num_warps": warps})
    assert done.wait(60.0) and tuple(prepared) == full and all(held) and len(held) > 2


def test_another_process_computes_beside_an_asynchronous_kernel(bench, monkeypatch):
    computes, runs = threading.Event(), []

    def ask(runners, job, limit_s):
        if isinstance(job, jobs.KeepBusy):
            computes.set()
        if isinstance(job, jobs.RunSeeded):
            assert job.asynchronous and computes.wait(20)
        if isinstance(job, (jobs.RunSeeded, jobs.JudgeSeeded)):
            runs.append(type(job).__name__)
        return answer(runners, job, limit_s)

    answer = Runners.ask
    monkeypatch.setattr(Runners, "ask", ask)
    monkeypatch.setattr(with_gpu, "is_asynchronous", lambda binary: True)
    assert Evaluation(bench, ("timed:0",)).verify(bench.seed, bench.facts.config).accepted
    assert runs == ["RunSeeded", "JudgeSeeded"]


@pytest.mark.slow
def test_an_edit_is_asked_once_about_a_kernel_whatever_its_configs(bench, monkeypatch):
    asked, applies = Counter(), Edit.applies

    def counting(edit, kernel, function, task):
        asked[edit.name, function] += 1
        return applies(edit, kernel, function, task)

    def ask(calls):
        return tuple(call.applies(bench.seed.entries[0], edit) for call in calls for edit in ("exp2", "online"))

    monkeypatch.setattr(Edit, "applies", counting)
    monkeypatch.setattr(evaluation, "make_hints", ask)
    trials, configs = Evaluation(bench, ("timed:0",)), [{**bench.facts.config, "num_warps": n} for n in (4, 2, 8)]
    first = trials.evaluate(bench.seed, configs[0])
    answers = [first.hints, *(trials.evaluate(bench.seed, c, first.measurement).hints for c in configs[1:])]
    assert len(asked) == 2 and set(asked.values()) == {1} and answers == [(True, False)] * 3
