"""`verify` inside the running system: what it sees that single parts cannot, and what it tells the author."""

import json
from pathlib import Path

import corpus
import pytest
import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation, has_atomics, referee
from kernelsearch.trial.bench import JUDGE_LIMIT_S, Bench
from kernelsearch.verify.regime_words import PADDED
from kernelsearch.worker.launcher import fit, tensors
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import ask_trusted

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def softmax():
    with Bench.open(ROOT / "studies" / "softmax" / "softmax.py") as bench:
        yield bench  # opened once for all tests of this file


def verdict_of(bench, name):
    return referee.verify_text(bench, corpus.find(name).text)


def test_full_depth_moves_elements_pads_rows_and_takes_timed_sizes(softmax):
    cases = softmax.cases("full")
    assert sum(c.probe is not None for c in cases) >= 2
    assert [c.padded for c in cases if c.padded] == [PADDED]
    long = [c.sampled for c in cases if c.shape.startswith("long:") and (c.regime == "randn" or c.sampled)]
    assert sorted(long) == ([False] * 2 + [True] * 3 if softmax.device is None else [False] * 2)  # widths, heights
    few = [c.regime for c in cases if c.kind in ("long", "odd", "joint") and c.sampled]
    assert "randn" in few and {*few} != {"randn"} if softmax.device is None else not few
    others = {c.regime for c in cases if c.kind in ("long", "odd") and not c.sampled} - {"randn"}
    assert others == {"sorted", "stepped", "shifted", "copied", "outlier", "sparse"}  # its DOMAIN has no masked logits
    assert {c.regime for c in cases if c.shape == "test:0"} >= {
        "mixed",
        "randn",
        "integers",
        "scaled",
        "whole",
        "shifted",
    }


def test_the_rows_of_one_verdict_leave_out_no_octave(softmax):
    """Scales went on from one case to the next only where both had the same number of rows."""
    cases = tuple(c for c in softmax.cases("full") if c.regime == "scaled" and c.shape != "test:2")
    rows = [tensors.unpack(x).double().std(1) for (x,) in softmax.inputs(cases)]
    scales = torch.cat(rows).log2().sort().values
    inner = scales[(scales > -13) & (scales < 13)]
    assert float(inner.diff().max()) < 1.15 and float(inner[0]) < -12 and float(inner[-1]) > 12


@pytest.mark.slow
def test_an_honest_kernel_is_accepted_with_the_mode_and_layers(softmax):
    verdict = verdict_of(softmax, "softmax_honest_overlap")
    assert verdict.accepted and verdict.depth == "full" and 0 < verdict.error_ratio < 1
    assert verdict.referee.mode == Evaluation(softmax).mode and verdict.referee.layers


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, word, said",
    [
        ("softmax_stride_is_width", Word.WRONG, "padded rows"),
        ("softmax_denominator_by_shape", Word.WRONG, "element"),
        ("softmax_neighbour_race", Word.RACE, "programs run in no order"),
        ("softmax_guard_write", Word.MEMORY, "outside every buffer, nearest 'y_ptr', at `tl.store(y_ptr + row * y_st"),
    ],
)
def test_what_only_full_depth_sees(softmax, name, word, said):
    if softmax.device is not None:
        pytest.skip("the words are the interpreter's")
    verdict = verdict_of(softmax, name)
    assert verdict.word is word and said in verdict.reason


def test_explain_is_complete(softmax):
    text = referee.explain(verdict_of(softmax, "softmax_constant"))
    lines = ("sizes: rows=7 cols=1000", "values: ", "first wrong element: [", "expected: ", "got: ")
    for said in (*lines, "wrong elements: ", "times what is allowed", "depth full"):
        assert said in text


def test_json_has_the_contract(softmax):
    told = json.loads(json.dumps(referee.as_json(verdict_of(softmax, "softmax_zeros"))))
    assert told["verdict"] == "reject-wrong" and told["stage"] == "judge" and told["error_ratio"] > 1
    assert set(told["referee"]) == {"mode", "layers"}
    assert "cannot see" not in told["detail"]  # only an accepting verdict without a GPU needs to say it
    assert told["detail"]["label"].startswith("rows=")


def test_an_accepting_verdict_without_a_gpu_says_what_it_cannot_see(softmax):
    verdict = verdict_of(softmax, "softmax_honest_seed")
    assert any("race" in one for one in referee.as_json(verdict)["detail"]["cannot see"])
    assert "not seen without a GPU" in referee.explain(verdict)


def test_json_stays_json_where_numbers_are_not_finite(softmax):
    told = referee.as_json(verdict_of(softmax, "softmax_tail_unwritten"))
    text = json.dumps(told, allow_nan=False)
    assert json.loads(text)["error_ratio"] is None and told["detail"]["got"] == "nan"


def test_atomics_are_seen_in_the_code_and_not_in_comments():
    race = corpus.find("column_sum_store_race").text
    assert not has_atomics(
        Kernel.parse(race.replace("    cols = tl", "    # tl.atomic_add excuses nothing here\n    cols = tl"))
    )
    assert has_atomics(Kernel.parse(corpus.find("column_sum_honest_atomics").text))


@pytest.mark.slow
def test_what_was_counted_is_judged_with_its_whole_loops():
    """Counting samples a loop's iterations; a kernel that was counted first must still be judged as it is."""
    with Bench.open(ROOT / "studies" / "matmul" / "matmul.py") as bench:
        if bench.device is not None:
            pytest.skip("nothing is counted on a GPU")
        outcome = Evaluation(bench).evaluate(bench.seed, dict(bench.facts.config))
        assert outcome.verdict.accepted and outcome.verdict.depth == "full"


def judged_as_a_task(path):
    with Bench.open(path) as bench:
        return bench.facts.notes, ask_trusted(bench.judge, jobs.JudgeTask(), JUDGE_LIMIT_S)


KERNELBENCH = """import torch
import torch.nn as nn
import triton
import triton.language as tl

batch_size = 16
dim = 16384


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=cols < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_a_wide_softmax_on_positive_inputs_is_judgeable_and_zeros_do_not_pass(tmp_path):
    """Its own inputs lie in [0, 1): the regimes replace them, so that a constant is seen."""
    path = tmp_path / "wide_softmax.py"
    path.write_text(KERNELBENCH)
    with Bench.open(path) as bench:
        assert ask_trusted(bench.judge, jobs.JudgeTask(), JUDGE_LIMIT_S) == ()
        seed = Kernel.parse(bench.facts.seed)
        evaluation = Evaluation(bench)
        assert evaluation.verify(seed, dict(bench.facts.config)).accepted
        text = bench.facts.seed
        for answer in ("0.0 * e", "e * 0.0 + 1.0 / n"):
            cheat = Kernel.parse(text.replace("e / tl.sum(e, axis=0)", answer))
            assert cheat.digest != seed.digest
            assert evaluation.verify(cheat, dict(bench.facts.config)).word is Word.WRONG


TRIVIAL = """import torch
import triton
import triton.language as tl


def reference(x):
    return REFERENCE


def get_inputs(n=64):
    return [torch.randn(n, 32)]


SHAPES = [dict(n=128)]
TEST_SHAPES = [dict(n=5)]


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def copy(x):
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""


@pytest.mark.parametrize("reference, passing", [("x * 0", "zeros"), ("x + 0", "input x itself")])
def test_a_task_that_a_trivial_answer_passes_is_named(tmp_path, reference, passing):
    path = tmp_path / "trivial.py"
    path.write_text(TRIVIAL.replace("REFERENCE", reference))
    _, found = judged_as_a_task(path)
    assert any(passing in sentence for sentence in found)


def test_a_shape_that_does_not_fit_is_noted_with_a_smaller_one(tmp_path):
    path = tmp_path / "huge.py"
    path.write_text(TRIVIAL.replace("REFERENCE", "x * 2").replace("dict(n=128)", "dict(n=1 << 27)"))
    notes, _ = judged_as_a_task(path)
    assert any("n=134217728 needs about" in n and "would fit" in n for n in notes)


def test_memory_of_a_machine():
    from kernelsearch.kernel import targets

    assert all(name in fit.MEMORY_GB for name in targets._TARGETS)


POOR_TASK = """
import torch
import triton
import triton.language as tl


def reference(x):
    return torch.relu(x - 100.0)


def get_inputs(n=64):
    return [torch.rand(n)]


DOMAIN = {"x": "unit"}
SHAPES = [dict(n=4096)]
TEST_SHAPES = [dict(n=100)]


@triton.jit
def shifted_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n) - 100.0, 0.0), mask=i < n)


def shifted(x):
    y = torch.empty_like(x)
    shifted_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""


def test_a_task_that_zeros_would_pass_is_refused(tmp_path):
    path = tmp_path / "poor.py"
    path.write_text(POOR_TASK)
    with pytest.raises(TaskError, match="poor cannot be judged: zeros would be accepted"):
        referee.verify(str(path))


def test_a_task_that_is_not_there_is_said_before_the_kernel_is_looked_at(tmp_path):
    (tmp_path / "k.py").write_text("no kernel")
    with pytest.raises(TaskError, match="no such file"):
        referee.verify(str(tmp_path / "nothere.py"), str(tmp_path / "k.py"))


def test_where_the_interpreter_breaks_on_what_is_no_kernel_the_compiler_speaks(softmax):
    if softmax.device is not None:
        pytest.skip("on a GPU the compiler comes first")
    text = softmax.seed.render().replace("mask = cols < n_cols", "mask = cols - 4")
    assert "cols - 4" in text
    outcome = Evaluation(softmax).evaluate(Kernel.parse(text), softmax.facts.config)
    assert outcome.verdict.word is Word.COMPILE and "Mask must have boolean scalar type" in outcome.verdict.reason
