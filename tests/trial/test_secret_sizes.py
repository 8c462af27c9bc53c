"""Sizes are drawn in secret: what is said of a refused proposal does not tell the next one where it will be judged."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from kernelsearch.cli import main
from kernelsearch.core.formats import BETWEEN, CLAIMS, FAILED
from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.models.repair import report_verdict
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.without_gpu import NOT_RIGHT
from kernelsearch.worker.messages.jobs import JudgedCase

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def twice_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0) * 2, mask=at < n)

def twice(x):
    y = torch.empty_like(x)
    twice_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y

def reference(x): return x * 2
def get_inputs(n=512): return [torch.randn(n)]
SHAPES = [dict(n=65536)]
TEST_SHAPES = [dict(n=300)]
"""


@pytest.fixture
def bench(tmp_path, borrowing):
    (tmp_path / "twice.py").write_text(TASK)
    with Bench.open(tmp_path / "twice.py", "h100") as bench:
        yield bench


def test_a_refused_proposal_is_not_told_the_sizes(bench):
    judged = {c.kind == "drawn": set() for c in bench.cases("full")}
    for case in bench.cases("full"):
        judged[case.kind == "drawn"].add(bench.labels[case.shape].removeprefix("n="))
    sizes = judged[True] - judged[False]
    right = " | ".join(f"(n == {n})" for n in sorted(judged[False]))
    text = bench.seed.render().replace("* 2,", f"* tl.where({right} | (n % 64 == 0), 2, 3),")
    assert text != bench.seed.render() and sizes
    kernel, config = Kernel.parse(text), dict(bench.facts.config)
    evaluation = Evaluation(bench)
    told = evaluation.evaluate(kernel, config).verdict
    assert not told.accepted and told.detail["label"] == "sizes drawn in secret"
    everything = repr(dataclasses.asdict(told)) + report_verdict(told)
    assert not any(f"={n}" in everything or f"[{n}]" in everything or f"of {n} " in everything for n in sizes)
    assert "expected" in told.reason and "elements" not in told.reason
    shown = evaluation.verify(kernel, config)  # a person's own question, and drawn anew for each
    assert any(f"n={n}" == shown.detail["label"] for n in sizes)


def test_each_verify_draws_others(bench, tmp_path):
    with Bench.open(tmp_path / "twice.py", "h100") as other:
        one, two = ({c.shape for c in b.cases("full") if c.kind == "drawn"} for b in (bench, other))
    assert len(one) >= 2 and one != two


def test_a_grid_that_covers_what_was_seen_is_not_taken_to_cover_more(tmp_path, borrowing):
    """Both shapes are whole blocks: what the launcher does between them shows at sizes that no block divides."""
    text = TASK.replace("(triton.cdiv(x.numel(), 128),)", "(max(1, x.numel() // 128),)").replace("n=300", "n=256")
    (tmp_path / "twice.py").write_text(text)
    with Bench.open(tmp_path / "twice.py", "h100") as bench:
        assert "cdiv" not in bench.seed.render()
        verdict = Evaluation(bench).verify(bench.seed, bench.facts.config)
    assert verdict.accepted and verdict.detail[CLAIMS] == {} and verdict.detail[FAILED]


@pytest.mark.parametrize("kind", ["over:0", "odd:0", "long:1", "joint:0"])
def test_no_sizes_between_are_claimed_where_the_seed_is_wrong_at_any_made_size(bench, kind):
    """With a task whose drawn sizes are small none of these may show a tail that the seed forgets."""
    evaluation = Evaluation(bench)
    bench.right_on[JudgedCase(kind, "randn", 3)] = Verdict(Word.WRONG, "judge", "no good", "full")
    evaluation._left_out[NOT_RIGHT] = [kind, "rows that lie apart"]
    verdict = evaluation.verify(bench.seed, bench.facts.config)
    assert verdict.accepted and verdict.detail[CLAIMS] == {} and verdict.detail[NOT_RIGHT] == ["rows that lie apart"]
    (failed,) = verdict.detail[FAILED]
    assert (failed["shape"], failed["verdict"], failed["reason"]) == (kind, "reject-wrong", "no good")


@pytest.mark.parametrize("own, code", [(True, 1), (False, 0)])
def test_verify_says_first_at_which_sizes_the_tasks_own_kernel_is_wrong(tmp_path, borrowing, own, code):
    """It said accept, exit code 0, and named the sizes among what was not judged."""
    wrong = TASK.replace("* 2, mask=at < n)", "* 2, mask=at < n // 128 * 128)").replace("n=300", "n=256")
    (tmp_path / "twice.py").write_text(wrong)
    (tmp_path / "kernel.py").write_text(Kernel.parse(TASK[: TASK.index("def twice(")]).render())
    done = CliRunner().invoke(
        main, ["verify", str(tmp_path / "twice.py"), *([] if own else [str(tmp_path / "kernel.py")])]
    )
    told = json.loads(done.stdout)
    assert done.exit_code == code and told["verdict"] == "accept", done.output
    first, judged = [line for line in done.stderr.splitlines() if line.startswith(("accept", "judged"))]
    for said in (told["reason"], first):
        assert "at the sizes of the task's shapes alone: " in said and "is wrong at n=" in said and " elements)" in said
    failed = {one["sizes"] for one in told["detail"][FAILED]}
    assert len(failed) > 2 and not any(sizes in judged for sizes in failed) and "wrong" not in judged


@pytest.mark.slow
@pytest.mark.parametrize(
    "old, new, claims",
    [
        ("", "", {BETWEEN: [True]}),
        ("* 2, mask=at < n)", "* 2, mask=at < n // 128 * 128)", {}),  # it forgets the tail
        ("n=512): return [torch.randn(n)]", "n=512, more=(2,)): return [torch.randn(*more, n)]", {}),
    ],
)
def test_sizes_between_are_claimed_where_those_that_can_be_drawn_are_right(tmp_path, borrowing, old, new, claims):
    """A size in a list is not drawn: nothing is known of those between."""
    text = TASK.replace(old, new) if old else TASK
    text = text.replace("dict(n=300)", "dict(n=256, more=(1, 2))") if "more" in new else text.replace("n=300", "n=256")
    (tmp_path / "twice.py").write_text(text)
    with Bench.open(tmp_path / "twice.py", "h100") as bench:
        verdict = Evaluation(bench).verify(bench.seed, bench.facts.config)
    assert verdict.accepted and verdict.detail[CLAIMS] == claims, verdict
