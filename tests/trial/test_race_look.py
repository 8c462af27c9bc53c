"""On a simulated GPU, where every run is right, races are refused that only the evaluator sees."""

import contextlib
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernelsearch.api.optimization import Optimization
from kernelsearch.api.optimize_options import OptimizeOptions
from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Proposer
from kernelsearch.record.store import Store
from kernelsearch.trial import Evaluation, race_look, referee, with_gpu
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.rejection import Rejection
from kernelsearch.trial.shared_state import Once
from kernelsearch.trial.with_gpu import GpuStages
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.workers import WorkerHung
from simulated_gpu import Runners, simulate_gpu

TASK = """
import os, torch, triton, triton.language as tl
assert os.environ["CUDA_VISIBLE_DEVICES"] == ""  # a judge and interpreters beside a GPU leave it alone

def reference(x): return x.sum(0)
def get_inputs(rows=4, cols=160): return [torch.randn(rows, cols)]
SHAPES = [dict(rows=4, cols=160)]
TEST_SHAPES = [dict(rows=3, cols=40)]

{kernel}

def launch(x):
    y = torch.zeros(x.shape[1], device=x.device)
    sum_kernel[(triton.cdiv(x.shape[1], 16),)](x, y, x.shape[0], x.shape[1], BLOCK=16)
    return y
"""
KERNEL = """
@triton.jit
def sum_kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(0, rows):
        total += tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
    tl.store(y_ptr + at, total, mask=at < cols)
"""
IMPORTS = "import triton\nimport triton.language as tl\n"
LOADED = IMPORTS + KERNEL.replace(
    "tl.zeros([BLOCK], tl.float32)",
    "tl.load(y_ptr + at + BLOCK, mask=(at + BLOCK < cols) & (at + BLOCK > 64), other=0.0)",
)
BEHIND_ATOMIC = (
    LOADED.replace("rows, cols, BLOCK", "rows, cols, count_ptr, BLOCK")
    .replace("    total = ", "    first = tl.minimum(tl.atomic_add(count_ptr, 1), 0)\n    total = ")
    .replace("range(0, rows)", "range(first, rows)")
    + '\nSCRATCH = {"count_ptr": ("int32", "(1,)", 0)}\n'
)
ORDERED = IMPORTS + KERNEL.replace("tl.store(y_ptr + at, total, ", "tl.atomic_add(y_ptr + at, total, ")
PREVIOUS = BEHIND_ATOMIC.replace("at + BLOCK < cols) & (at + BLOCK > 64", "at >= BLOCK) & (at > 64").replace(
    "y_ptr + at + BLOCK", "y_ptr + at - BLOCK"
)


@contextlib.contextmanager
def open_bench(folder, kernel=KERNEL):
    """A bench of the task with this kernel, on a simulated GPU that accepts everything."""
    (folder / "task.py").write_text(TASK.format(kernel=kernel))
    with Bench.open(folder / "task.py", "h100", compile_workers=1) as bench:
        simulate_gpu(bench)
        yield bench


@pytest.fixture(scope="module")
def bench(borrowing, tmp_path_factory):
    with open_bench(tmp_path_factory.mktemp("races")) as bench:
        yield bench


def verify(bench, text):
    return referee.verify_text(bench, text)


@pytest.mark.slow
def test_races_that_no_run_shows_are_refused_on_a_gpu(bench):
    cheats = (
        (LOADED, "programs run in no order"),
        (BEHIND_ATOMIC, "with the grid reversed"),
        (PREVIOUS, "right only with the grid reversed"),
    )
    for text, why in cheats:
        verdict = verify(bench, text)
        assert (verdict.word, verdict.referee.mode) == (Word.RACE, "gpu"), verdict
        assert verdict.reason.startswith(race_look.SEEN) and why in verdict.reason, verdict.reason
    alone = verify(bench.once("evaluators", bench.open_evaluators), PREVIOUS)
    assert (alone.word, alone.referee.mode) == (Word.RACE, "interpreter") and why in alone.reason


def test_an_honest_kernel_is_looked_at_once(bench, monkeypatch):
    verdict = verify(bench, ORDERED)
    assert verdict.accepted and not verdict.detail[race_look.RACES]["unseen"], verdict
    labels = bench.once("evaluators", bench.open_evaluators).labels
    looked = set(verdict.detail[race_look.RACES]["shapes"])
    assert {"rows=3 cols=40", labels["odd:0"]} <= looked and all("rows=" in shape for shape in looked)
    assert "rows=" in labels["even:0"]  # which is judged where the other is not right
    monkeypatch.setattr(race_look, "look_for_races", None)
    assert verify(bench, ORDERED) == verdict
    judged = referee.describe_coverage(verdict, bench)
    said = referee.format_coverage(replace(verdict, detail={**verdict.detail, "judged": judged}))
    assert "races in the evaluator at" in said and "Not judged: nothing of these" in said


def test_nothing_is_refused_where_the_tasks_own_kernel_is_accused_too(borrowing, tmp_path):
    with open_bench(tmp_path, LOADED.removeprefix(IMPORTS)) as bench:
        verdict = verify(bench, LOADED.replace("total", "summed"))
        unseen = verdict.detail[race_look.RACES]["unseen"]
        assert verdict.accepted and unseen and all("own kernel is refused there too" in one for one in unseen)
        assert "programs run in no order" in unseen[0]
        own = Evaluation(bench).verify(bench.seed, bench.facts.config)
        assert own.accepted and own.detail[race_look.RACES]["unseen"] == unseen


def test_what_the_interpreter_cannot_run_is_not_refused(bench, monkeypatch):
    interpreters = bench.once("evaluators", bench.open_evaluators).evaluators
    ask, kernel = interpreters.ask, LOADED.replace("total", "slow")

    def hang(job, limit_s, *limits):
        if isinstance(job, jobs.Evaluate) and job.shapes != ("test:0",):
            raise WorkerHung("on purpose")
        return ask(job, limit_s, *limits)

    monkeypatch.setattr(interpreters, "ask", hang)
    verdict = verify(bench, kernel)
    looked = verdict.detail[race_look.RACES]
    assert verdict.accepted and looked["shapes"] == ["rows=3 cols=40"] and looked["unseen"][0].endswith(": too slow")
    monkeypatch.undo()
    assert verify(bench, kernel).word is Word.RACE  # what was slow once is looked at again


def test_the_look_at_what_the_gpu_refused_stops_and_another_one_sees_all(bench, monkeypatch):
    """Or the evaluators would work on it while the next candidate's look waits for them."""
    looks, look_at = [], race_look.look_at
    begun, refused = threading.Event(), threading.Event()

    def look_slowly(*args):
        begun.set()
        assert refused.wait(30)
        return look_at(*args)

    def reject(stages, candidate, *rest):
        assert begun.wait(30)
        raise Rejection(Verdict(Word.WRONG, "judge", "on purpose", "full"))

    def begin(candidate):
        looks.append(race_look.begin_look(candidate))
        return looks[-1]

    with monkeypatch.context() as patch:
        patch.setattr(race_look, "look_at", look_slowly)
        patch.setattr(GpuStages, "_judge_on_gpu", reject)
        patch.setattr(with_gpu, "begin_look", begin)
        kernel = ORDERED.replace("total", "stopped")
        assert verify(bench, kernel).reason == "on purpose"
        refused.set()
        first = looks[0].result(30)
    assert 1 <= len(first.shapes) <= bench.once("evaluators", bench.open_evaluators).evaluators.size
    assert {why for _, why in first.unseen} == {race_look.STOPPED}
    seen = verify(bench, kernel).detail[race_look.RACES]
    assert len(seen["shapes"]) == len(first.shapes) + len(first.unseen) and not seen["unseen"]


def test_what_no_time_was_left_for_is_said_and_not_begun_again(bench, monkeypatch):
    """Or a search would spend the same seconds when a candidate's turn comes, and again when it is confirmed."""
    monkeypatch.setattr(race_look, "LIMIT_S", 0.0)
    kernel = ORDERED.replace("total", "unseen")
    verdict = verify(bench, kernel)
    looked = verdict.detail[race_look.RACES]
    assert verdict.accepted and not looked["shapes"] and looked["unseen"][0].endswith(": no time was left")
    monkeypatch.undo()
    assert verify(bench, kernel) == verdict


def test_waiting_for_interpreters_is_no_work(monkeypatch):
    left, clock = race_look.TimeLeft(10.0), iter([100.0, 103.0, 200.0, 201.0])
    monkeypatch.setattr(race_look, "time", SimpleNamespace(monotonic=clock.__next__))
    for _ in range(2):
        with left.spend():
            pass
    assert left.seconds == 6.0


def test_a_verdict_does_not_wait_for_ever_for_the_look(bench, monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(race_look, "look_for_races", lambda *_: done.wait(20))
    monkeypatch.setattr(race_look, "WAIT_S", 0.01)
    verdict = verify(bench, LOADED.replace("total", "late"))
    done.set()
    assert verdict.detail[race_look.RACES]["unseen"] == ["all shapes: too slow"]


def test_a_task_that_cannot_be_opened_without_the_gpu_is_said(bench, monkeypatch):
    def refuse():
        raise TaskError("too large without a GPU")

    monkeypatch.setattr(bench, "open_evaluators", refuse)
    monkeypatch.setattr(bench, "once", Once())
    assert verify(bench, LOADED).detail[race_look.RACES]["unseen"] == ["all shapes: too large without a GPU"]


def test_a_search_gives_up_a_best_that_races(bench):
    """A new best that races is rejected when it is completed; the seed is not looked at before the search begins."""
    evaluation = Evaluation(bench)
    seed = evaluation.evaluate(bench.seed, bench.facts.config)
    assert seed.verdict.depth == "full" and race_look.RACES not in seed.verdict.detail
    kernel = Kernel.parse(LOADED)
    outcome = evaluation.evaluate(kernel, bench.facts.config, seed.measurement)
    assert outcome.verdict.accepted
    whole = evaluation.complete(kernel, bench.facts.config, outcome)
    assert whole.verdict.word is Word.RACE and whole.measurement is None


@pytest.mark.parametrize("seen", ["in the search", "at its end"])
def test_a_kernel_that_races_is_never_the_best_of_a_search(bench, monkeypatch, seen):
    """It is twice as fast, and right in every run on the simulated GPU."""
    answer = Runners.ask

    def ask(runners, job, limit_s):
        timed = answer(runners, job, limit_s)
        if isinstance(job, jobs.TimeCandidate) and job.candidate.kernel.scratch:
            return replace(timed, samples_us=dict.fromkeys(job.shapes, (5.0,) * 3))
        return timed

    monkeypatch.setattr(Runners, "ask", ask)
    if seen == "at its end":  # as a race that only some runs show
        monkeypatch.setattr(Evaluation, "complete", lambda self, kernel, config, outcome: outcome)
    said, options = [], OptimizeOptions(trials=2, quiet=True, strategy="evolve")
    with Store.open_in_memory() as store:
        search = Optimization(bench, bench.facts, store, options, said.append, starts=[("fast.py", BEHIND_ATOMIC)])
        result = search._search(Proposer())
        race = store.load_trials(result.run.id)[1]
    assert race.outcome.verdict.word is Word.RACE and race.score is None
    assert result.best.number == 0 and result.trials[0].accepted
    assert [line.partition(":")[0] for line in said] == ["trial 1 was accepted, and is refused now"] * (
        seen != "in the search"
    )


def test_it_is_said_where_nothing_beyond_the_test_shapes_was_judged():
    judged = {
        "shapes": ["n=3"],
        "timed": [],
        "regimes": ["randn"],
        "moved elements": 0,
        "rows apart": False,
        "made": [],
    }
    for beyond, said in (
        (["n=2048"], "Not judged: sizes of n=2048 (none beyond its test"),
        ([], "Not judged: what only a GPU shows"),
    ):
        verdict = Verdict(Word.ACCEPT, "judge", "", "full", detail={"judged": {**judged, "beyond": beyond}})
        assert said in referee.format_coverage(verdict)
