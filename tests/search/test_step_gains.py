"""What a step gains is measured with one config for all steps: a step may not have another one's tuning as its gain."""

import dataclasses
import itertools

import pytest

import simulated
from kernelsearch.core.types import Evidence, Outcome, Verdict, Word
from kernelsearch.record import family_tree
from kernelsearch.record.rows import candidate_digest
from kernelsearch.record.steps import add_steps, load_step_gains
from kernelsearch.record.store import Store
from kernelsearch.report import lineage, summary
from kernelsearch.report.html.content import page
from kernelsearch.search.steps import fit_config, place_steps, time_steps
from kernelsearch.trial.evaluator import Evaluator
from simulated_search import EXACT, make_search


@dataclasses.dataclass
class Refusing(Evaluator):
    """EXACT, but for a kernel that it refuses."""

    digest: str = ""

    def evaluate(self, kernel, config, incumbent=None):
        if kernel.digest == self.digest:
            return Outcome(Verdict(Word.COMPILE, "compile", "out of shared memory"))
        return EXACT.evaluate(kernel, config, incumbent)


@pytest.fixture(scope="module")
def ended():
    """(Store, result, steps) of a run whose best kernel has at least two steps."""
    store = Store.open_in_memory()
    result = make_search(store, "evolve", EXACT, 120, seed=2).run()
    steps = place_steps(store, result.run.id, result.trials[0], result.best)
    assert len(steps) >= 4, "the seed with its own config and with the best one's, and two steps at least"
    return store, result, steps


def gains_of(store, result):
    best = candidate_digest(result.run.task, result.best.kernel, result.best.config)
    return load_step_gains(store, best, result.best.outcome.measurement.device)


def mean_ratio(above, below):
    one, other = (EXACT.evaluate(s.kernel, s.config).measurement.by_shape for s in (above, below))
    product = 1.0
    for shape, us in one.items():
        product *= us / other[shape]
    return product ** (1 / len(one))


def test_every_step_has_the_last_kernels_config(ended):
    _, result, steps = ended
    assert [s.place for s in steps] == list(range(len(steps)))
    assert steps[0].kernel == steps[1].kernel and dict(steps[0].config) == dict(result.trials[0].config)
    assert all(dict(s.config).items() >= dict(result.best.config).items() for s in steps[1:])
    assert steps[-1].kernel.digest == result.best.kernel and dict(steps[-1].config) == dict(result.best.config)


def gain_table(text):
    """The words of the rows of the summary's table of gains; its numbers end where its header does."""
    lines = text.partition("estimated time per shape")[0].splitlines()
    header = next(n for n, line in enumerate(lines) if line.split()[0] == "gain")
    names = [name for name in lines[header].split() if name != "step"]
    ends = [lines[header].index(name) + len(name) for name in names]
    assert all(line[end - 1] in "x-" for line in lines[header + 1 : -1] for end in ends)
    return [line.split() for line in lines[header:-1]]


def test_what_means_nothing_to_an_ancestor_is_left_out_and_what_it_lacks_is_its_own(ended):
    seed = ended[2][0].kernel
    own = {seed.digest: {"BLOCK": 64, "num_warps": 1}}
    assert fit_config(seed, own, {"VEC": 8, "num_warps": 4}) == {"BLOCK": 64, "num_warps": 4}


def test_gains_are_those_at_one_config_and_multiply_to_the_whole(ended):
    _, result, steps = ended
    store = ended[0]
    add_steps(store, result.run, time_steps(steps, EXACT, result.trials[0].outcome.measurement))
    gains = gains_of(store, result)
    for above, below in itertools.pairwise(steps):
        assert gains[below.kernel.digest] == pytest.approx(mean_ratio(above, below))
    best = summary.as_dict(store, simulated.task(), result)["best"]
    product = best["tuning"]
    for step in best["steps"]:
        product *= step["gain"]
    assert product == pytest.approx(best["speedup"])
    assert any(abs(step["gain"] - step["own_gain"]) > 0.01 for step in best["steps"]), "or the test shows nothing"
    text = summary.as_text(store, simulated.task(), result)
    mean = "the mean time, the seed's where it is faster,"
    assert f"  gain: {mean} before a step over that after it, all with the best kernel's config (estimated)\n" in text
    rows = gain_table(text)
    last = best["steps"][-1]
    assert rows[-1][:2] == [f"{last['gain']:.2f}x", f"{last['edit']}:"] and rows[0] == ["gain", "step"]


def test_lineage_and_page_say_the_same(ended):
    store, result, steps = ended
    add_steps(store, result.run, time_steps(steps, EXACT, result.trials[0].outcome.measurement))
    gains = gains_of(store, result)
    told = lineage.as_dict(store, result.best.kernel, result.run.id)["ancestors"]
    assert {s["kernel"]: s["gain_at_config"] for s in told} == pytest.approx(gains)
    text = lineage.as_text(store, result.best.kernel, result.run.id)
    assert f"{gains[result.best.kernel]:.2f}x its parent with the last kernel's config, " in text
    kernels = page(store, None, None, None)["sections"][0]["kernels"]
    assert kernels[result.best.kernel]["gain_at_config"] == pytest.approx(gains[result.best.kernel])


def test_where_a_step_is_refused_the_next_ones_gain_is_that_of_both(ended):
    *_, steps = ended
    refused = steps[2].kernel.digest
    with Store.open_in_memory() as store:
        again = make_search(store, "evolve", EXACT, 120, seed=2).run()
        add_steps(store, again.run, time_steps(steps, Refusing(refused), again.trials[0].outcome.measurement))
        gains = gains_of(store, again)
        assert refused not in gains
        assert gains[steps[3].kernel.digest] == pytest.approx(mean_ratio(steps[1], steps[3]))
        (step,) = (
            s for s in summary.as_dict(store, simulated.task(), again)["best"]["steps"] if s["kernel"] == refused
        )
        assert step["gain"] is None


def test_steps_are_no_trials_and_no_confirmation(ended):
    store, result, steps = ended
    trials, best = store.count_trials(result.run.id), family_tree.find_best_kernel(store)
    timed = time_steps(steps, EXACT, result.trials[0].outcome.measurement)
    claimed = [
        dataclasses.replace(s, measurement=dataclasses.replace(s.measurement, evidence=Evidence.CONFIRMED))
        for s in timed
    ]
    add_steps(store, result.run, claimed)
    assert store.count_trials(result.run.id) == trials and family_tree.find_best_kernel(store) == best
    assert not store.query("SELECT 1 FROM measurement WHERE evidence = 'confirmed'") and not store.load_confirmations()


def test_rows_of_an_earlier_version_that_leave_a_step_out_are_passed_over(ended):
    store, result, steps = ended
    add_steps(store, result.run, time_steps(steps, EXACT, result.trials[0].outcome.measurement))
    before = gains_of(store, result)
    with store.database.conn as connection:
        connection.execute(
            "UPDATE measurement SET detail = json_remove(json_set(detail, '$.without', 2), '$.place') "
            "WHERE json_extract(detail, '$.place') = 0"
        )
    assert gains_of(store, result).keys() < before.keys()
