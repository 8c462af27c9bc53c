"""The driver of the confirmed protocol, with a simulated GPU behind the worker: what it keeps, drops and says."""

import contextlib
import random
import re
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import simulated
from kernelsearch.core.errors import WorkerError
from kernelsearch.core.types import ShapeFact, Trace, Verdict, Word
from kernelsearch.kernel import targets
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing import confirm_rules as protocol
from kernelsearch.record.rows import Structure
from kernelsearch.record.store import Store
from kernelsearch.report import findings, kernel_file, leaderboard
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan, Contestant
from kernelsearch.trial.shape_session import COMPILE_LIMIT_S, PEER_LIMIT_S
from kernelsearch.worker.messages import confirm_jobs, jobs
from kernelsearch.worker.processes.pool import Workplace
from kernelsearch.worker.processes.workers import WorkerDied, WorkerHung

SHAPE = ShapeFact("timed:0", "n=4096", {"n": 4096}, bytes_moved=200_000_000, flops=1000)
ACCEPT = Verdict(Word.ACCEPT, "judge", depth="full")
COOL, HOT = (1980, 2619, 50, 400.0, 0), (1980, 2619, 90, 400.0, 0x40)


class FakeGpu:
    """Answers jobs with times around `times`; fails, dies and lies as it is told to."""

    def __init__(
        self, times, failing=(), dying=(), hot=0.0, wall=None, kernels=None, changed=(), judged=ACCEPT, peers=()
    ):
        self.times, self.failing, self.dying, self.hot = times, dict(failing), set(dying), hot
        self.wall, self.kernels = wall or {}, kernels or {}
        self.changed, self.judged, self.peers = tuple(changed), judged, peers
        self.rng, self.started, self.asked = random.Random(4), 0, []
        self.alive = True

    def ask(self, job, limit_s):
        self.asked.append(job)
        self.limit_s = limit_s
        return getattr(self, type(job).__name__.lower())(job)

    def kill(self):
        self.alive = False

    def prepare(self, job: confirm_jobs.Prepare):
        return confirm_jobs.Prepared(0.0)

    def openshape(self, job: confirm_jobs.OpenShape):
        assert self.has_room  # the run worker has let go of the GPU's memory
        named = tuple(n for n in (*self.times, *self.failing, *self.dying) if n not in ("seed", "new"))
        return confirm_jobs.OpenedShape(tuple(dict.fromkeys(named)), peers=self.peers)

    def enter(self, job: confirm_jobs.Enter):
        if job.name in self.dying:
            raise WorkerDied("its process ended") if job.name != "hangs" else WorkerHung("no answer")
        assert job.candidate is not None or job.judged == (job.name in self.peers)
        if job.name in self.failing:
            return confirm_jobs.EnteredContestant(failure=self.failing[job.name])
        return confirm_jobs.EnteredContestant(self.times[job.name], 20.0, int(self.times[job.name]) * 10**6)

    def blocks(self, job: confirm_jobs.Blocks):
        times = tuple(tuple(self._time(job.same.get(n, n)) for n in order) for order in job.orders)
        edges = tuple(HOT if self.rng.random() < self.hot else COOL for _ in range(len(times) + 1))
        return confirm_jobs.Sampled(times, edges, changed=self.changed)

    def _time(self, name):
        return self.times[name] * self.rng.lognormvariate(0, 0.004)

    def outputs(self, job: confirm_jobs.Outputs):
        self.handed = job.name
        return confirm_jobs.Handed(((5, jobs.Ran()),), 12)

    def clocks(self, job: confirm_jobs.Clocks):
        usual = self.times[job.name]
        return confirm_jobs.Clocked(self.wall.get(job.name, usual), self.kernels.get(job.name, usual))

    def measureceilings(self, job: confirm_jobs.MeasureCeilings):
        return confirm_jobs.Ceilings({"copy_gbps": 3000.0, "empty_kernel_us": 2.0})


class FakePool:
    def __init__(self, gpu):
        self.gpu, self.source, self.starts = gpu, SimpleNamespace(role="judge"), 0
        self.end_workers = gpu.kill

    @contextlib.contextmanager
    def lease(self):
        self.starts += 1
        yield self.gpu

    def ask(self, job, timeout):
        assert isinstance(job, jobs.JudgeSeeded) and job.case.seed == 5
        return self.gpu.judged[self.gpu.handed] if isinstance(self.gpu.judged, dict) else self.gpu.judged


def opened(gpu, form="native"):
    """As much of a Bench as the driver touches."""
    pool = FakePool(gpu)
    task = simulated.task()
    facts = replace(task, form=form, shapes=(SHAPE,), traces={SHAPE.key: Trace(SHAPE.key, ())})
    return SimpleNamespace(
        workplace=SimpleNamespace(pool=lambda role, size, fork: pool), gpu=threading.Lock(), judge=pool, path="t.py",
        facts=facts, target=targets.target_by_name("h100"), device=SimpleNamespace(name="FAKE"),
        runners=SimpleNamespace(end_workers=lambda: setattr(gpu, "has_room", True)),
        candidate=lambda kernel, config, code: (kernel, config),
        bind_launches=lambda kernel, config, shapes: [(None, ONE_LAUNCH)],
        build_binaries=lambda kernel, specs: ({}, None),
    )  # fmt: skip


ONE_LAUNCH = SimpleNamespace(
    plan=SimpleNamespace(steps=[SimpleNamespace(grid=(1, 1, 1))]), of_seed=False, specialise_steps=lambda fact: []
)
SEED = Contestant("seed", Kernel.parse(simulated.SEED_KERNEL), {"BLOCK": 1024})
NEW = Contestant("new", Kernel.parse(simulated.SEED_KERNEL.replace("BLOCK +", "BLOCK + 0 +")), {"BLOCK": 512})
TIMES = {"seed": 130.0, "new": 100.0, "eager": 300.0, "compile": 120.0, "max-autotune": 110.0}


def confirm(gpu, seconds=5.0, **bench):
    with Confirmation(opened(gpu, **bench), ConfirmationPlan(seconds, seed=3)) as confirmation:
        ceilings = confirmation.find_ceilings(None)
        runs = confirm_all(confirmation, (SHAPE,))
    return runs[0], findings.build_finding(NEW, runs, "FAKE", ceilings)


def confirm_all(confirmation, shapes):
    return tuple(confirmation.confirm_shapes(shapes, lambda shape: [SEED, NEW]).values())


def test_the_headline_is_against_the_fastest_baseline_with_the_true_ratio_inside():
    gpu = FakeGpu(TIMES)
    run, found = confirm(gpu)
    assert found["status"] == "confirmed" and found["faster"] and run.fastest == "max-autotune"
    assert found["vs_fastest"]["low"] < 1.1 < found["vs_fastest"]["high"]
    assert found["vs_seed"]["low"] < 1.3 < found["vs_seed"]["high"]
    assert found["shapes"][0]["control"]["low"] < 1.0 < found["shapes"][0]["control"]["high"]
    assert found["roofline"] == pytest.approx(200_000_000 / 3000e3 / 100.0, rel=0.01)
    assert found["shapes"][0]["outputs_judged"] == 12 and not gpu.alive
    text = findings.as_text(found)
    assert "the fastest baseline (max-autotune)" in text and "A/A" in text and "roofline" in text
    memory = {name: re.search(rf"^  {name} .* us +(\S+ MB) peak", text, re.MULTILINE)[1] for name in ("new", "eager")}
    assert memory == {"new": "100 MB", "eager": "300 MB"} and found["shapes"][0]["peak_bytes"] == 10**8


def test_sampling_stops_when_narrow_and_slow_baselines_are_timed_less_often():
    run, _ = confirm(FakeGpu(TIMES))
    assert protocol.MIN_BLOCKS <= len(run.kept.blocks) < 200
    assert run.time("eager").samples * 3 < run.time("compile").samples
    noisy = FakeGpu(TIMES)
    noisy._time = lambda name: TIMES[name] * noisy.rng.lognormvariate(0, 0.1)
    run, _ = confirm(noisy, seconds=0.0)
    assert len(run.kept.blocks) < 2 * protocol.MIN_BLOCKS


def test_a_gain_under_one_percent_is_not_called_faster():
    _, found = confirm(FakeGpu({**TIMES, "max-autotune": 100.5}))
    assert found["status"] == "confirmed" and not found["faster"]
    assert "not shown to be faster" in findings.format_headline(found)


def test_a_failing_baseline_is_reported_and_the_rest_is_measured():
    _, found = confirm(FakeGpu(TIMES, failing={"liger": "TypeError: no such argument"}))
    rows = {b["name"]: b for b in found["shapes"][0]["baselines"]}
    assert rows["liger"] == {"name": "liger", "failure": "TypeError: no such argument"}
    assert "failed: TypeError" in findings.as_text(found) and found["faster"]


def test_a_peer_with_wrong_values_is_timed_and_said_and_is_no_rival():
    wrong = Verdict(Word.WRONG, "judge", "returned bfloat16, not float32", "full")
    times, peers = {**TIMES, "quack": 90.0, "liger": 105.0}, ("quack", "liger")
    run, found = confirm(FakeGpu(times, judged={"new": ACCEPT, "quack": wrong, "liger": ACCEPT}, peers=peers))
    assert found["status"] == "confirmed" and found["faster"] and run.fastest == "liger"
    rows = {b["name"]: b for b in found["shapes"][0]["baselines"]}
    assert "time_us" not in rows["quack"] and 0.85 < rows["quack"]["refused_ratio"] < 0.95 < rows["liger"]["ratio"]
    assert re.search(
        r"quack +takes 90(\.\d)? us, but its values are refused: returned bfloat16", findings.as_text(found)
    )


@pytest.mark.parametrize("dying", ["hangs", "crashes"])
def test_a_peer_that_hangs_or_crashes_costs_a_line(dying):
    gpu, limits = FakeGpu(TIMES, dying=(dying,), peers=(dying,)), []
    enter = gpu.enter
    gpu.enter = lambda job: (limits.append(gpu.limit_s) if job.name == dying else None, enter(job))[1]
    run, found = confirm(gpu)
    assert found["faster"] and set(run.failures) == {dying} and limits == [PEER_LIMIT_S] != [COMPILE_LIMIT_S]


def test_a_baseline_that_kills_the_process_is_left_out_of_a_second_attempt():
    run, found = confirm(FakeGpu(TIMES, dying=("compile",)))
    assert "its process ended" in run.failures["compile"] and run.time("compile") is None
    assert found["status"] == "confirmed"


def test_a_candidate_that_kills_the_process_gets_its_verdict():
    run, found = confirm(FakeGpu(TIMES, dying=("new",)))
    assert found["status"] == "crash" and not found["faster"] and found["shapes"] == []
    assert "crash" in findings.format_headline(found) and run.fastest == "max-autotune"


@pytest.mark.parametrize(
    "answer",
    [WorkerDied("illegal address"), WorkerHung("slow"), jobs.JobFailure("illegal address", confirm_jobs.CRASHED)],
)
def test_a_kernel_that_crashes_in_a_timed_block_is_dropped_and_the_rest_is_measured(answer):
    gpu, whole = FakeGpu(TIMES), FakeGpu.blocks

    def blocks(job):
        if not any("new" in order for order in job.orders):
            return whole(gpu, job)
        if isinstance(answer, Exception):
            raise answer
        return answer

    gpu.blocks = blocks
    run, found = confirm(gpu)
    assert found["status"] == ("timeout" if isinstance(answer, WorkerHung) else "crash") and not found["faster"]
    assert run.fastest == "max-autotune" and run.time("new") is None and run.time("seed").samples > 50
    assert set(run.failures) == {"new"} and "new" in findings.format_headline(found)


def test_what_crashes_only_in_company_costs_every_candidate_and_nobody_else():
    gpu, whole, said = FakeGpu(TIMES), FakeGpu.blocks, []
    gpu.blocks = lambda job: (
        jobs.JobFailure("CUDA error: unspecified launch failure", confirm_jobs.CRASHED)
        if any(len({"new", "eager"} & set(order)) == 2 for order in job.orders) else whole(gpu, job)
    )  # fmt: skip
    with Confirmation(opened(gpu), ConfirmationPlan(5.0, seed=3), said.append) as confirmation:
        (run,) = confirm_all(confirmation, (SHAPE,))
    assert set(run.failures) == {"new"} and "none of them fails alone" in run.verdicts["new"].reason
    assert run.time("eager") is not None and any("goes on without new" in text for text in said)


def test_the_process_is_prepared_while_others_still_search():
    gpu = FakeGpu(TIMES)
    with Confirmation(opened(gpu), ConfirmationPlan(seed=3)) as confirmation:
        confirmation.prepare()
        confirm_all(confirmation, (SHAPE,))
    assert [j.shape for j in gpu.asked if isinstance(j, confirm_jobs.Prepare)] == ["timed:0"] and not gpu.alive


def test_baselines_of_many_shapes_are_compiled_before_the_first_one_is_timed():
    gpu, shapes = FakeGpu(TIMES), [replace(SHAPE, key=f"timed:{n}") for n in range(6)]
    bench = opened(gpu)
    bench.facts = replace(bench.facts, shapes=tuple(shapes), traces={s.key: Trace(s.key, ()) for s in shapes})
    with Confirmation(bench, ConfirmationPlan(0.1, seed=3)) as confirmation:
        assert len(confirm_all(confirmation, shapes)) == 6
        ahead, others = gpu.asked[:6], gpu.asked[6:]
        assert sorted(j.shape for j in ahead if isinstance(j, confirm_jobs.Prepare) and j.whole) == [
            s.key for s in shapes
        ]
        assert not any(isinstance(j, confirm_jobs.Prepare) for j in others)
        confirm_all(confirmation, shapes[:5])
        assert not any(isinstance(j, confirm_jobs.Prepare) for j in gpu.asked[6:])


def test_baselines_that_cannot_be_compiled_ahead_are_compiled_when_they_are_timed():
    gpu, shapes = FakeGpu(TIMES), [replace(SHAPE, key=f"timed:{n}") for n in range(6)]
    bench = opened(gpu)
    bench.facts = replace(bench.facts, shapes=tuple(shapes), traces={s.key: Trace(s.key, ()) for s in shapes})

    def die(job):
        raise WorkerDied("out of memory")

    gpu.prepare = die
    with Confirmation(bench, ConfirmationPlan(0.1, seed=3)) as confirmation:
        runs = confirm_all(confirmation, shapes)
    assert all(run.time("compile") is not None and not run.failures for run in runs)


def test_an_unstable_gpu_is_named_with_what_to_do():
    _, found = confirm(FakeGpu(TIMES, hot=0.4))
    said = findings.format_headline(found)
    assert "hardware thermal slowdown" in said and "nothing is claimed" in said and "cool and idle" in said
    assert "dropped (hardware thermal slowdown)" in findings.as_text(found)


def test_a_confirmation_that_never_comes_ends_its_process_at_once():
    """The search was interrupted, or the kernel refused, while the process was still importing."""
    with Workplace() as place:
        bench = SimpleNamespace(
            workplace=place, facts=replace(simulated.task(), shapes=(SHAPE,)), path="none.py", gpu=threading.Lock()
        )
        with Confirmation(bench) as confirmation:
            confirmation.prepare()
            while confirmation._worker is None and confirmation._preparing.is_alive():
                time.sleep(0.01)
        assert not confirmation._preparing.is_alive()


def test_too_little_memory_is_said_with_the_shape():
    gpu = FakeGpu(TIMES)
    gpu.openshape = lambda job: jobs.JobFailure("too little GPU memory: Tried to allocate 96.00 GiB", "WorkerError")
    with pytest.raises(WorkerError, match=r"n=4096: too little GPU memory: Tried to allocate 96"):
        confirm(gpu)


def test_a_process_that_dies_over_nobody_is_an_error_and_no_endless_loop():
    gpu = FakeGpu(TIMES)

    def dies(job):
        raise WorkerDied("gone")

    gpu.blocks = dies
    with pytest.raises(WorkerError, match="gone"):
        confirm(gpu)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"judged": Verdict(Word.WRONG, "judge", "off by 3", "full")}, "reject-wrong"),
        ({"changed": ("new",)}, "reject-memory"),
        ({"kernels": {"new": 200.0}}, "reject-timing"),
        ({"times": {**TIMES, "new": 30.0}}, "reject-timing"),  # 200 MB cannot move in 30 us
        ({"hot": 0.4}, "unstable"),
    ],
)
def test_what_spoils_a_confirmation(change, status):
    _, found = confirm(FakeGpu(**{"times": TIMES, **change}))
    assert found["status"] == status and not found["faster"]
    assert (status if status.startswith("reject") else "unstable") in findings.format_headline(found)


def test_a_slow_host_is_a_note():
    _, found = confirm(FakeGpu(TIMES, wall={"new": 200.0}))
    assert found["status"] == "confirmed" and any("the host is slower" in n for n in found["shapes"][0]["notes"])


def test_weights_that_follow_the_seed_are_judged_on_one_set_only():
    gpu = FakeGpu(TIMES)
    confirm(gpu, form="kernelbench")
    assert next(j for j in gpu.asked if isinstance(j, confirm_jobs.OpenShape)).one_set


def test_findings_are_stored_and_only_confirmed_ones_lead_the_leaderboard():
    task, store = replace(simulated.task(), shapes=(SHAPE,)), Store.open_in_memory()
    for gpu in (FakeGpu(TIMES), FakeGpu({**TIMES, "new": 50.0, "seed": 50.0}, hot=0.4)):
        _, found = confirm(gpu)
        other = Contestant("new", SEED.kernel if found["status"] == "unstable" else NEW.kernel, NEW.config)
        kept = {**found, "kernel": other.kernel.digest}
        store.add_confirmation(task, Structure(other.kernel, 0), other.config, kept, {"triton": "3.6"})
    rows = leaderboard.build_rows(store)
    assert [(r["evidence"], r["kernel"], r["fastest"]) for r in rows] == [
        ("confirmed", NEW.kernel.digest, "max-autotune")
    ]
    assert rows[0]["vs_fastest_low"] < 1.1 < rows[0]["vs_fastest_high"] and rows[0]["versions"] == {"triton": "3.6"}
    text = leaderboard.as_text(rows)
    assert "simulated on FAKE, confirmed" in text and "x fastest baseline" in text
    assert max(map(len, text.splitlines())) <= 80
    evidence = store.query("SELECT evidence, count(*) AS n FROM measurement GROUP BY evidence ORDER BY evidence")
    assert [(r["evidence"], r["n"]) for r in evidence] == [("confirmed", 1), ("measured", 1)]
    assert {r["name"] for r in store.query("SELECT name FROM baseline")} == {"seed", "eager", "compile", "max-autotune"}
    assert leaderboard.as_csv(rows) and leaderboard.as_json(rows)
    with pytest.raises(Exception, match="belongs to no run|no accepted"):
        kernel_file.render_kernel_file(store)


def test_ceilings_are_measured_once_and_kept():
    store, gpu = Store.open_in_memory(), FakeGpu(TIMES)
    for _ in range(2):
        with Confirmation(opened(gpu), ConfirmationPlan()) as confirmation:
            assert confirmation.find_ceilings(store) == {"copy_gbps": 3000.0, "empty_kernel_us": 2.0}
    assert sum(isinstance(j, confirm_jobs.MeasureCeilings) for j in gpu.asked) == 1


def test_a_process_that_dies_over_the_ceilings_is_a_worker_error():
    class Dying(FakeGpu):
        def measureceilings(self, job):
            raise WorkerDied("its process ended")

    with Confirmation(opened(Dying(TIMES)), ConfirmationPlan(1.0)) as confirmation, pytest.raises(WorkerError) as error:
        confirmation.find_ceilings(None)
    assert "its process ended" in str(error.value)
