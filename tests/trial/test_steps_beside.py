"""On a GPU the steps of a lineage are timed in the finalists' own blocks, and change nothing about these."""

from dataclasses import replace

import pytest
from test_confirmation import ACCEPT, NEW, SEED, SHAPE, TIMES, FakeGpu, opened

import simulated
from kernelsearch.core.types import Evidence, Measurement, ShapeTime, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing import confirm_rules as protocol
from kernelsearch.record.steps import PlacedStep
from kernelsearch.report import findings
from kernelsearch.search.steps import list_beside, read_confirmed
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan
from kernelsearch.worker.messages import confirm_jobs

MIDDLE = Kernel.parse(simulated.SEED_KERNEL.replace("BLOCK +", "BLOCK + 2 +"))
KNOWN = Measurement(Evidence.MEASURED, "FAKE", "search-2", (ShapeTime(SHAPE.key, 1.0),))
STEPS = [
    PlacedStep(0, SEED.kernel, SEED.config, KNOWN),
    PlacedStep(1, SEED.kernel, NEW.config, KNOWN),
    PlacedStep(2, MIDDLE, NEW.config, KNOWN),
    PlacedStep(3, MIDDLE, {"BLOCK": 1 << 20}),  # refused with that config
    PlacedStep(4, NEW.kernel, NEW.config, KNOWN),
]


class SteppedGpu(FakeGpu):
    """Steps are no baselines of the worker's; one of them is faster than every baseline."""

    def __init__(self, **more):
        super().__init__({**TIMES, "step 1": 250.0, "step 2": 105.0}, **more)

    def openshape(self, job):
        return confirm_jobs.OpenedShape(("eager", "compile", "max-autotune"))

    def enter(self, job):
        if job.name in self.failing and job.name.startswith("step"):
            return confirm_jobs.EnteredContestant(verdict=Verdict(Word.COMPILE, "compile", "no"))
        return super().enter(job)


def confirm(gpu, steps=()):
    contestants = [SEED, NEW]
    with Confirmation(opened(gpu), ConfirmationPlan(5.0, seed=3)) as confirmation:
        run = confirmation.confirm_shape(SHAPE, [*contestants, *list_beside(steps, contestants)])
    return run, findings.build_finding(NEW, [run], "FAKE", {})


def test_each_step_that_was_accepted_is_one_more_contestant():
    assert [(c.name, c.beside) for c in list_beside(STEPS, [SEED, NEW])] == [("step 1", True), ("step 2", True)]
    assert [c.name for c in list_beside(STEPS, [SEED])] == ["step 1", "step 2", "step 4"]


def test_steps_share_the_blocks_and_claim_nothing():
    gpu = SteppedGpu()
    run, found = confirm(gpu, STEPS)
    orders = [order for job in gpu.asked if isinstance(job, confirm_jobs.Blocks) for order in job.orders]
    assert all({"new", "step 2"} <= set(order) for order in orders), "interleaved with the finalist"
    assert run.fastest == "max-autotune" and run.candidates == ("new",)
    named = {b["name"] for b in found["shapes"][0]["baselines"]} | set(run.baselines())
    assert named == {"seed", "eager", "compile", "max-autotune"}
    asked = {job.name for job in gpu.asked if isinstance(job, (confirm_jobs.Outputs, confirm_jobs.Clocks))}
    assert asked == {"new"}, "one more timing for each step, and no more"
    alone = confirm(FakeGpu(TIMES))[1]
    assert found["faster"] and found["level"] == alone["level"]
    assert found["vs_fastest"]["ratio"] == pytest.approx(alone["vs_fastest"]["ratio"], rel=0.005)


def test_what_the_steps_took_in_these_blocks_is_kept():
    run, _ = confirm(SteppedGpu(), STEPS)
    timed = read_confirmed(STEPS, [run], [SEED, NEW], "FAKE")
    took = [s.measurement and s.measurement.times[0].time_us for s in timed]
    assert took[3] is None and took[:3] + took[4:] == pytest.approx([130.0, 250.0, 105.0, 100.0], rel=0.01)
    kept = {(s.measurement.protocol, s.as_stored("x").evidence) for s in timed if s.measurement}
    assert kept == {(protocol.PROTOCOL, Evidence.MEASURED)}
    assert read_confirmed(STEPS, [replace(run, verdicts={"new": ACCEPT})], [SEED, NEW], "FAKE") == []


def test_a_step_that_fails_there_costs_the_finalist_nothing():
    run, found = confirm(SteppedGpu(failing={"step 1": "no"}), STEPS)
    assert found["status"] == "confirmed" and found["faster"]
    assert all("failure" not in b for b in found["shapes"][0]["baselines"])
    took = [s.measurement for s in read_confirmed(STEPS, [run], [SEED, NEW], "FAKE")]
    assert took[1] is None and took[2] is not None
