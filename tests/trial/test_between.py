"""What a table costs at sizes between its shapes: timed there with all that it has, judged first where a GPU runs."""

import zlib
from unittest.mock import Mock

import pytest

import kernelsearch
from kernelsearch.api import optimization
from kernelsearch.core.decision_tree import format_tree
from kernelsearch.core.errors import TaskError
from kernelsearch.core.tree_walk import choose
from kernelsearch.core.types import (
    Evidence,
    Measurement,
    Outcome,
    Proposal,
    ProposalKind,
    ShapeTime,
    Trial,
    Verdict,
    Word,
)  # fmt: skip
from kernelsearch.record.export_queries import drawn_times
from kernelsearch.record.rows import RunFacts, Structure
from kernelsearch.record.store import Store
from kernelsearch.report import summary
from kernelsearch.search import between
from kernelsearch.search.between import fit_trees, time_between
from kernelsearch.search.facts import Result
from kernelsearch.trial.bench import Bench
from kernelsearch.worker.messages import jobs
from simulated_gpu import Runners, simulate_gpu

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def sums_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + tl.program_id(0) * n_cols + at, mask=at < n_cols, other=0.0), 0)
    tl.store(y_ptr + tl.program_id(0), total)

def sums(x):
    y = torch.empty(x.shape[0], device=x.device)
    sums_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=256)
    return y

def reference(x): return x.sum(-1)
def get_inputs(rows=64, cols=256): return [torch.randn(rows, cols)]
SHAPES = [dict(rows=512, cols=256), dict(rows=512, cols=1024), dict(rows=64, cols=4096)]
TEST_SHAPES = [dict(rows=3, cols=100)]
SPACE = {"BLOCK": [256, 1024]}
"""
WIDE = {"BLOCK": 1024, "num_warps": 4, "num_stages": 3}


@pytest.fixture
def bench(tmp_path, borrowing):
    (tmp_path / "sums.py").write_text(TASK)
    with Bench.open(tmp_path / "sums.py", "h100", compile_workers=1) as bench:
        yield bench


def searched(bench, store, evidence, seed=(5.0, 10.0, 10.0), other=(9.0, 5.0, 5.0)):
    """A run whose table has the seed at the first shape, and the same kernel with another block at the others."""
    run = store.add_run(bench.facts, RunFacts("evolve", "edits", 0, 1, 2, bench.where))
    trials = []
    for number, (config, times) in enumerate(((bench.facts.config, seed), (WIDE, other))):
        timed = tuple(ShapeTime(s.key, us) for s, us in zip(bench.facts.shapes, times, strict=True))
        measured = Measurement(evidence, bench.where, "search-1", timed)
        kind = Proposal(ProposalKind.RETUNE, (bench.seed.digest,)) if number else Proposal(ProposalKind.SEED)
        outcome = Outcome(Verdict(Word.ACCEPT, "judge", depth="full"), measured)
        trials.append(Trial(number, kind, bench.seed.digest, dict(config), outcome, 0.6 if number else 1.0))
        store.add_trial(run, trials[-1], None if number else Structure(bench.seed, 0))
    return Result(run, tuple(trials), trials[1], {s.key: trials[1] for s in bench.facts.shapes}, 1.0)


def test_sizes_are_drawn_in_the_range_of_the_timed_shapes_and_are_as_large(bench, tmp_path):
    cases = bench.cases("between")
    drawn = [dict(one.split("=") for one in bench.labels[c.shape].split()) for c in cases]
    sizes = [(int(d["rows"]), int(d["cols"])) for d in drawn]
    assert len(set(sizes)) == len(sizes) == 16
    aligned = [(rows % 16 == 0, cols % 16 == 0) for rows, cols in sizes]
    assert set(aligned[:8]) == set(aligned[8:]) == {(True, True), (True, False), (False, True), (False, False)}
    assert all(64 <= rows <= 512 and 256 <= cols <= 4096 and rows * cols <= 512 * 1024 for rows, cols in sizes)
    assert len({cols for _, cols in sizes}) >= 5 and max(rows * cols for rows, cols in sizes) > 2**15
    with Bench.open(tmp_path / "sums.py", "h100", compile_workers=1) as other:
        assert {c.shape for c in other.cases("between")} != {c.shape for c in cases}


def test_without_a_gpu_it_is_estimated(bench):
    said = []
    with Store.open_in_memory() as store:
        result = searched(bench, store, Evidence.ESTIMATED)
        timed = time_between(bench, bench.facts, store, result, said.append)
        regret = timed.regret
        assert regret["evidence"] == "estimated" and len(regret["sizes"]) == 8 and not said
        assert (
            0.0 <= regret["median"] <= regret["worst"] == max(regret["sizes"].values()) == regret["sizes"][regret["at"]]
        )
        text = summary.as_text(store, bench.facts, timed)
        assert f"(estimated at 8 drawn sizes; worst: {regret['at']})" in text and "measured" not in text
        assert summary.as_dict(store, bench.facts, timed)["best"]["table"]["regret"] == regret


class Crossing(Runners):
    """A GPU on which the wide block is faster from 700 columns on, and the tree of these shapes asks for 512; slow, if
    it is set, is how much slower it is where they are no multiple of 16, and elsewhere it is faster everywhere; random
    says that either is faster by chance, twice that whoever is judged second at a size is wrong."""

    wrong, slow, detail, random, twice = "", 0.0, None, False, False

    def ask(self, job, limit_s):
        if isinstance(job, jobs.TimeCandidate):
            wide = job.candidate.config["BLOCK"] == 1024
            taken = {key: int(key.rpartition("cols=")[2]) for key in job.shapes}
            times = {key: (8.0 if wide == (cols >= 700) else 10.0,) * 3 for key, cols in taken.items()}
            if self.slow:
                own = {key: 10.0 * self.slow if cols % 16 else 8.0 for key, cols in taken.items()}
                times = {key: (us if wide else 10.0,) * 3 for key, us in own.items()}
            if self.random:
                times = {key: (8.0 if wide == bool(zlib.crc32(key.encode()) % 3) else 10.0,) * 3 for key in taken}
            return jobs.Timed(times, {key: {} for key in times})
        if isinstance(job, jobs.JudgeSeeded):
            self.judged = [*getattr(self, "judged", []), job.case.shape]
            if self.twice and self.judged.count(job.case.shape) == 2:
                return Verdict(Word.WRONG, "judge", "far off")
            if self.wrong and self.wrong in job.case.shape:
                return Verdict(Word.WRONG, "judge", "far off", detail={"shape": job.case.shape} if self.detail else {})
        return super().ask(job, limit_s)


@pytest.fixture
def gpu(bench):
    bench.secret = 11  # the same sizes in each run
    draws = {seed: [bench.cases("between", draw, seed and seed + draw) for draw in range(3)] for seed in (None, 5)}
    simulate_gpu(bench)
    cases = bench.cases

    def cases_of(depth, draw=0, sizes=None):
        return draws[None if sizes is None else 5][draw] if depth == "between" else cases(depth)

    bench.cases = cases_of
    bench.runners = bench.judge = Crossing(bench)
    bench.runners.judge = bench.workplace.pools[0]
    return bench


def test_on_a_gpu_it_is_measured_where_what_is_served_was_judged(gpu):
    with Store.open_in_memory() as store:
        result = searched(gpu, store, Evidence.MEASURED)
        result = time_between(gpu, gpu.facts, store, result, lambda text: None)
        regret, (tree,) = result.regret, fit_trees(gpu.facts, result)[0].values()
        assert regret["evidence"] == "measured" and len(regret["sizes"]) == 8
        for label, slower in regret["sizes"].items():
            sizes = {name: float(value) for name, value in (one.split("=") for one in label.split())}
            right = (choose(tree, sizes) == "trial 1") == (sizes["cols"] >= 700)
            assert slower == pytest.approx(0.0 if right else 0.25), label
        for shape in result.drawn.shapes:
            assert (choose(tree, shape.params) == "trial 1") == (shape.params["cols"] >= 700)
            assert shape.label not in regret["sizes"]
        kept = drawn_times(store, gpu.facts.digest, gpu.where)
        assert {key: sorted(times.values()) for key, times in kept.items()} == {
            s.key: [8.0, 10.0] for s in result.drawn.shapes
        }
        learned = [s.key for s in result.drawn.shapes]
        known = [c.shape for draw in range(3) for c in gpu.cases("between", draw, 0)]
        assert learned == [*dict.fromkeys(known)][: len(learned)], "they follow from the seed"
        asked = [c.shape for c in gpu.cases("between") if c.shape not in learned][:8]
        assert {gpu.labels[key] for key in asked} == {*regret["sizes"]}, "these are secret"
        timed, labels = [*learned, *asked], {gpu.labels[key]: key for key in asked}
        shapes = {**{s.key: s.params for s in result.drawn.shapes}}
        for label in regret["sizes"]:
            shapes[labels[label]] = {name: float(value) for name, value in (one.split("=") for one in label.split())}
        other = {key for key, sizes in shapes.items() if choose(tree, sizes) == "trial 1"}
        judged = gpu.runners.judged  # the seed everywhere, the other where it is served
        assert len(timed) in (16, 24, 32, 40) and {*judged} == {*timed} and other
        assert {key for key in judged if judged.count(key) == 2} >= other and len(judged) < 2 * len(timed)
        assert "KeepBusy" not in gpu.runners.asked
        text = summary.as_text(store, gpu.facts, result)
        middle, worst = f"{regret['median']:.1%} in the median", f"{regret['worst']:.1%} at worst"
        assert f"  between the shapes slower than the fastest of these by {middle}, {worst}\n" in text
        assert f"(measured at 8 drawn sizes; worst: {regret['at']})" in text


def test_a_seed_has_one_tree_whatever_the_secret_sizes_are(gpu):
    trees, sizes = list(), list()
    for first in (0, 1, 2):
        cases = gpu.cases
        gpu.cases = lambda depth, draw=0, sizes=None, cases=cases, first=first: cases(
            depth, draw if sizes is not None else (draw + first) % 3, sizes
        )
        with Store.open_in_memory() as store:
            result = time_between(gpu, gpu.facts, store, searched(gpu, store, Evidence.MEASURED), print)
        trees.append((fit_trees(gpu.facts, result)[0], [s.key for s in result.drawn.shapes]))
        sizes.append({*result.regret["sizes"]})
        gpu.cases = cases
    assert trees[0] == trees[1] == trees[2] and sizes[0] != sizes[1] != sizes[2]


def test_where_the_tree_is_far_off_more_sizes_are_learned_and_others_asked(gpu):
    gpu.runners.random = True
    with Store.open_in_memory() as store:
        result = time_between(gpu, gpu.facts, store, searched(gpu, store, Evidence.MEASURED), print)
        assert len(result.drawn.shapes) == 32 and len(result.regret["sizes"]) == 8 and result.regret["worst"] > 0.15
        assert not {s.label for s in result.drawn.shapes} & {*result.regret["sizes"]}
        kept = drawn_times(store, gpu.facts.digest, gpu.where)
        assert {*kept} == {s.key for s in result.drawn.shapes} and all(len(own) == 2 for own in kept.values())


def test_a_kernel_that_is_slow_at_odd_sizes_does_not_run_there(gpu):
    gpu.runners.slow = 200.0
    with Store.open_in_memory() as store:
        own = searched(gpu, store, Evidence.MEASURED, seed=(10.0,) * 3, other=(8.0,) * 3)
        result = time_between(gpu, gpu.facts, store, own, print)
        (tree,) = fit_trees(gpu.facts, result)[0].values()
        assert format_tree(tree) == ["cols a multiple of 16: trial 1", "the seed"] and result.regret["worst"] == 0.0


def test_what_is_wrong_between_the_shapes_is_said_and_nothing_is_claimed(gpu):
    said, gpu.runners.wrong = [], gpu.cases("between", 0, 0)[3].shape
    with Store.open_in_memory() as store:
        result = searched(gpu, store, Evidence.MEASURED)
        assert time_between(gpu, gpu.facts, store, result, said.append) is result
    assert said == ["note: between the shapes the seed was refused: reject-wrong, far off"]


def test_what_is_served_between_the_shapes_must_be_right_there(gpu):
    said, gpu.runners.twice = [], True
    with Store.open_in_memory() as store:
        result = searched(gpu, store, Evidence.MEASURED)
        assert time_between(gpu, gpu.facts, store, result, said.append) is result
        assert not drawn_times(store, gpu.facts.digest, gpu.where)
    assert said == ["note: between the shapes trial 1 was refused: reject-wrong, far off"]


@pytest.mark.parametrize("share, learned", [(1, 7), (16, 0)], ids=["one size", "all of them"])
def test_sizes_at_which_the_tasks_own_kernel_is_wrong_are_left_out(gpu, monkeypatch, share, learned):
    monkeypatch.setattr(between, "MORE", 0)
    said, drawn = [], [case.shape for case in gpu.cases("between", 0, 0)]
    gpu.runners.detail, gpu.runners.wrong = True, drawn[3] if share == 1 else "cols="
    with Store.open_in_memory() as store:
        result = time_between(gpu, gpu.facts, store, searched(gpu, store, Evidence.MEASURED), said.append)
    assert len(result.drawn.shapes if result.drawn else ()) == learned
    assert drawn[3] not in {s.key for s in result.drawn.shapes} if learned else "wrong at most sizes" in said[0]


def test_a_table_of_the_seed_alone_is_timed_nowhere(gpu):
    with Store.open_in_memory() as store:
        result = searched(gpu, store, Evidence.MEASURED, other=(9.0, 10.0, 10.0))
        assert time_between(gpu, gpu.facts, store, result, print) is result and not gpu.runners.asked


@pytest.mark.slow
@pytest.mark.parametrize("fails", [None, TaskError("the judge is lost"), KeyboardInterrupt()])
def test_a_search_ends_with_it_and_whatever_fails_there_leaves_the_rest(
    tmp_path, borrowing, monkeypatch, capsys, fails
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.py").write_text(TASK.replace("BLOCK=256)", "BLOCK=64)").replace("[256,", "[64, 256,"))
    if fails is not None:
        monkeypatch.setattr(optimization, "time_between", Mock(side_effect=fails))
    found = kernelsearch.optimize("sums.py", trials=6, target="h100", db="found.db")
    table = found.facts["best"]["table"]
    assert table["entries"] and (table["regret"] is None) == (fails is not None)
    if fails is None:
        assert table["regret"]["evidence"] == "estimated" and "(estimated at 8 drawn sizes; worst: " in str(found)
    else:
        said = capsys.readouterr().err
        assert f"note: the table was not timed between its shapes: {str(fails) or 'interrupted'}\n" in said
    with Store.open("found.db", write=False) as store:
        depths = {t.number: t.outcome.verdict.depth for t in store.load_trials(1)}
    assert {depths[entry["trial"]] for entry in table["entries"]} == {"full"}
