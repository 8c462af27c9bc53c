"""The confirming worker's parts that need no GPU: contents rotate in place, outputs are kept, inputs watched."""

from types import SimpleNamespace

import pytest
import torch

from kernelsearch.worker.gpu import confirming as confirm_stage
from kernelsearch.worker.messages.confirm_jobs import (
    CRASHED,
    Blocks,
    Clocks,
    Enter,
    EnteredContestant,
    OpenShape,
    Outputs,
)
from kernelsearch.worker.messages.jobs import CandidateJob, JobFailure
from kernelsearch.worker.roles import confirm as confirming


def stage(mutates=(), one_set=False):
    contents = [[torch.full((4, 3), float(i)), torch.arange(5) + i, i] for i in range(3)]
    return confirm_stage.Stage(
        task=SimpleNamespace(mutates=mutates), job=OpenShape("t.py", "timed:0", (7, 8, 9), one_set),
        case=SimpleNamespace(names=("x", "index", "k")), live=[torch.zeros(4, 3), torch.zeros(5, dtype=torch.int64), 0],
        contents=contents, flush=None, monitor=None,
    )  # fmt: skip


def contestant():
    return confirm_stage.LiveContestant(call=None, wipe=None, judged=True)


def test_contents_rotate_at_the_same_pointers():
    here = stage()
    pointers, seen = [v.data_ptr() for v in here.live[:2]], []
    for _ in range(6):
        which, args = here.load()
        assert [a.data_ptr() for a in args[:2]] == pointers and args[2] == which
        assert torch.equal(args[0], here.contents[which][0]) and torch.equal(args[1], here.contents[which][1])
        seen.append(which)
    assert seen == [1, 2, 0, 1, 2, 0]


def test_a_changed_input_is_seen_unless_the_task_says_that_it_may_be():
    for mutates, expected in (((), True), (("x",), False)):
        here = stage(mutates)
        which, args = here.load()
        args[0][2, 1] = -1.0
        _, outputs, moved = confirm_stage.look_at_outputs(here, which, args, args[0] * 2)
        assert bool(moved) is expected and len(outputs) == 1 + len(mutates)


def test_kept_outputs_are_copies():
    here = stage()
    which, args = here.load()
    result = args[0] * 2
    _, (kept,), moved = confirm_stage.look_at_outputs(here, which, args, result)
    result.zero_()
    assert kept.abs().sum() > 0 and not bool(moved)


def test_equal_outputs_are_kept_once_and_counted_each_time():
    here, one = stage(), contestant()
    nan = torch.tensor([1.0, float("nan")])
    for which, output in ((0, nan), (0, nan.clone()), (1, nan), (0, torch.tensor([1.0, 2.0]))):
        confirm_stage.remember(here, one, which, [output])
    assert one.sampled == 4 and [w for w, _ in one.kept] == [0, 1, 0]
    for i in range(20):
        confirm_stage.remember(here, one, 0, [torch.tensor([float(i), 9.0])])
    assert len(one.kept) == confirm_stage.MOST_KEPT and one.sampled == 24


def test_without_room_an_output_and_one_that_differs_are_kept_on_the_cpu(monkeypatch):
    monkeypatch.setattr(confirm_stage, "has_room_for", lambda outputs: False)
    here, one = stage(), contestant()
    for value in (1.0, 1.0, 2.0, 3.0):
        confirm_stage.remember(here, one, 0, [torch.full((2,), value)])
    (first,), (other,) = one.kept.values()
    assert first.device.type == "cpu" and [first[0], other[0]] == [1.0, 2.0] and one.sampled == 4


def test_with_weights_that_follow_the_seed_only_the_first_contents_are_kept():
    here, one = stage(one_set=True), contestant()
    for which in (0, 1, 2):
        confirm_stage.remember(here, one, which, [torch.ones(2)])
    assert [w for w, _ in one.kept] == [0]


def test_bits_are_compared_not_values():
    zero = torch.tensor([0.0])
    assert bool(confirm_stage.differ(zero, -zero)) and not bool(confirm_stage.differ(zero, zero.clone()))
    assert bool(confirm_stage.differ(zero.bfloat16(), torch.ones(1).bfloat16()))
    assert not bool(confirm_stage.differ(torch.tensor([True]), torch.tensor([True])))


def test_failures_are_said_where_they_belong():
    baseline = confirming.answer_failure(Enter("liger"), "TypeError: no", "")
    assert baseline == EnteredContestant(failure="TypeError: no")
    missing = confirming.answer_failure(
        Enter("liger"), "ModuleNotFoundError: No module named 'liger_kernel.transformers'", ""
    )
    assert missing == EnteredContestant(failure="not installed: liger_kernel")
    candidate = CandidateJob(None, {}, None, {}, (), None)
    assert confirming.answer_failure(Enter("new", candidate), "RuntimeError: boom", "").verdict.word.value == "crash"
    assert isinstance(confirming.handle(object()), JobFailure)


@pytest.mark.parametrize("job", [OpenShape("t.py", "timed:0", (1,)), Blocks(()), Enter("eager")])
def test_too_little_memory_is_nobodys_crash(job):
    message = "OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 GiB. See documentation for details."
    said = confirming.answer_failure(job, message, "")
    if isinstance(job, Enter):
        assert said == EnteredContestant(
            failure="too little GPU memory: CUDA out of memory. Tried to allocate 64.00 GiB"
        )
    else:
        assert said == JobFailure(
            "too little GPU memory: CUDA out of memory. Tried to allocate 64.00 GiB", "WorkerError"
        )


@pytest.mark.parametrize(
    "job", [Blocks(()), Outputs("new"), Clocks("new", 1.0), Enter("compile"), Enter("new", object())]
)
def test_a_lost_context_ends_the_process(job):
    lost = confirming.answer_failure(job, "AcceleratorError: CUDA error: an illegal memory access was encountered", "")
    assert isinstance(lost, JobFailure) and lost.kind == CRASHED


@pytest.mark.parametrize(("precision", "word"), [("ieee", "highest"), ("tf32", "high"), ("half-accumulate", "highest")])
def test_baselines_keep_to_the_precision_contract(precision, word):
    from kernelsearch.measure.timing import baselines

    assert baselines.tf32_policy_of(precision) == word


def test_the_baselines_of_a_task():
    from kernelsearch.measure.timing import baselines

    class Autotuner:
        fn = None

    tuned = SimpleNamespace(fn=Autotuner())
    known = {
        "name": "mine",
        "baselines": {"theirs": abs, "eager": max},
        "kernels": lambda: {"k": tuned},
        "module": None,
    }
    task = SimpleNamespace(**known, is_seeded=False)
    assert baselines.baseline_names(task) == ("eager", "compile", "max-autotune", "seed autotune", "theirs")
    case = SimpleNamespace(reference=min, launch=sum)
    assert baselines.make_baseline("theirs", task, case) is abs and baselines.make_baseline("eager", task, case) is max
    assert baselines.make_baseline("seed autotune", task, case) is sum
    assert "seed autotune" not in baselines.baseline_names(SimpleNamespace(**known, is_seeded=True))


class FakeEvent:
    def __init__(self, enable_timing=False):
        pass

    def record(self):
        pass

    def query(self):
        return False

    def elapsed_time(self, other):
        return 0.025


@pytest.fixture
def no_gpu(monkeypatch):
    """Events, waits and the L2 reset of a GPU that is not there."""
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(confirm_stage, "_reset_persisting_l2", lambda: None)


@pytest.mark.parametrize("room", [True, False])
def test_blocks_are_timed_in_the_asked_order_and_what_writes_to_an_input_is_named(no_gpu, monkeypatch, room):
    monkeypatch.setattr(confirm_stage, "has_room_for", lambda outputs: room)
    here, calls = stage(), []
    here.flush, here.monitor = (lambda: None), SimpleNamespace(read=lambda before=None: None, reason="no NVML")

    def kernel(name, spoil):
        def call(x, index, k):
            calls.append(name)
            if spoil:
                x[0, 0] = 9.0
            return x * 2

        return confirm_stage.LiveContestant(call, lambda: calls.append(f"wipe {name}"), judged=name != "eager")

    here.contestants = {name: kernel(name, name == "bad") for name in ("good", "bad", "eager")}
    monkeypatch.setattr(confirm_stage, "STAGE", [here])
    sampled = confirming.handle(
        Blocks((("good", "bad", "A/A", "A/A", "bad", "good"), ("eager", "eager")), {"A/A": "eager"})
    )
    assert [c for c in calls if "wipe" not in c] == ["good", "bad", "eager", "eager", "bad", "good", "eager", "eager"]
    assert [len(t) for t in sampled.times_us] == [6, 2] and sampled.times_us[0][0] == pytest.approx(25.0)
    assert sampled.changed == ("bad",) and sampled.why == "no NVML" and len(sampled.edges) == 3
    assert here.contestants["good"].sampled >= 1 and not here.contestants["eager"].kept
    (((which, _), (kept,)), *_) = here.contestants["good"].kept.items()
    assert torch.equal(kept, here.contents[which][0] * 2)


def test_a_sample_that_waited_for_the_host_is_taken_again_and_said_if_it_stays_so(no_gpu, monkeypatch):
    here, waits, late = stage(), [], iter([True, True, False, *[True] * 99])
    here.flush, here.monitor = (lambda: None), SimpleNamespace(read=lambda before=None: None, reason="")
    here.contestants = {"new": confirm_stage.LiveContestant(lambda x, index, k: x * 2, lambda: None, judged=True)}
    monkeypatch.setattr(confirm_stage, "STAGE", [here])
    monkeypatch.setattr(torch.cuda, "_sleep", waits.append)
    monkeypatch.setattr(FakeEvent, "query", lambda event: next(late))
    sampled = confirming.handle(Blocks((("new",),)))
    assert waits == [80_000, 160_000, 320_000] and [len(t) for t in sampled.times_us] == [1] and not sampled.late
    assert confirming.handle(Blocks((("new", "new"),))).late == ("new",) and len(waits) == 3 + 8


def test_the_peak_of_memory_is_that_of_a_call_alone(monkeypatch):
    """On a made-up allocator: 40 bytes are held, 10 of them scratch of the call before; a call needs 50 for a while."""
    held = {"now": 40, "most": 0}

    def allocate(size):
        held["now"] += size
        held["most"] = max(held["most"], held["now"])

    def call(*args):
        allocate(50)
        allocate(-20)

    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: held.update(most=held["now"]))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: held["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: held["most"])
    who = confirm_stage.LiveContestant(call=call, wipe=lambda: allocate(-10), judged=True)
    assert confirm_stage._measure_peak(stage(), who) == 50
