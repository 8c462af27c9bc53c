"""What a launcher fills and a kernel overwrites is named; what decides anything is not."""

import pytest

from kernelsearch.core.types import Word
from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.trial import Evaluation, race_look
from kernelsearch.trial.bench import Bench
from simulated_gpu import simulate_gpu

TASK = """
import torch, triton, triton.language as tl

def reference(x): return x.sum(1), x * 2
def get_inputs(rows=4, cols=160): return [torch.randn(rows, cols)]
SHAPES = [dict(rows=64, cols=512)]
TEST_SHAPES = [dict(rows=3, cols=40), dict(rows=8, cols=100)]

@triton.jit
def double(x_ptr, s_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
    tl.atomic_add(s_ptr + row, tl.sum(x, 0))
    tl.store(y_ptr + row * cols + at, x * 2, mask={mask})

def launch(x):
    s = torch.zeros(x.shape[0], device=x.device)
    y = {make}
    double[(x.shape[0], triton.cdiv(x.shape[1], 64))](x, s, y, x.shape[1], BLOCK=64)
    return s, y
"""


def open_bench(folder, make, mask="at < cols"):
    (folder / "task.py").write_text(TASK.format(make=make, mask=mask))
    return Bench.open(folder / "task.py", "h100", compile_workers=1)


def list_notes(verdict):
    assert verdict.accepted, verdict
    return [note for note in verdict.detail.get("notes", ()) if "saves its launch" in note]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "mask", "named"),
    [
        ("torch.zeros_like(x)", "at < cols", True),
        ("torch.empty_like(x).fill_(-1.0)", "at < cols", True),
        ("torch.full(x.shape, 7.0, device=x.device)", "at < cols", True),
        ("torch.empty_like(x)", "at < cols", False),
        ("torch.zeros_like(x)", "(at < cols) & (x != 0)", False),  # zeros of an input are not written
    ],
)
def test_a_fill_that_decides_nothing_is_named_by_its_line(borrowing, tmp_path, make, mask, named):
    said = []
    with open_bench(tmp_path, make, mask) as bench:
        bench.say = said.append
        notes = list_notes(Evaluation(bench).verify(bench.seed, bench.facts.config))
        ask = edit_named("spare_fill").apply(bench.seed, bench.facts)
        offered = [] if isinstance(ask, NotApplicable) else [rewrite.kernel.digest for rewrite in ask]
        unfilled = bench.seed.with_changes(init={"y_ptr": None})
        verdict = Evaluation(bench).verify(unfilled, bench.facts.config)
        summed = Evaluation(bench).verify(bench.seed.with_changes(init={"s_ptr": None}), bench.facts.config)
    is_filled = make != "torch.empty_like(x)"
    assert offered == [unfilled.digest] * named  # what programs add to, or store where data says, is not offered
    assert verdict.word == (Word.ACCEPT if named else Word.WRONG if is_filled else Word.STATIC), verdict
    assert is_filled or "the launcher fills nothing that it passes as 'y_ptr'" in verdict.reason
    assert summed.word is Word.WRONG
    assert len(notes) == named and all(f"`y = {make}` (line 18 of task.py)" in note for note in notes), notes
    assert [line for line in said if "saves its launch" in line] == [f"note: {note}" for note in notes]


SKIPPED = """
import torch, triton, triton.language as tl

def reference(x, slots): return torch.where(slots[:, None] >= 0, x * 2, 0.0)
def get_inputs(rows=4, cols=160): return [torch.randn(rows, cols), torch.randint({least}, 8, (rows,))]
SHAPES = [dict(rows=64, cols=512)]
TEST_SHAPES = [dict(rows=3, cols=40)]

@triton.jit
def double(x_ptr, slots_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if tl.load(slots_ptr + row) < 0:
        return
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
    tl.store(y_ptr + row * cols + at, x * 2, mask=at < cols)

def launch(x, slots):
    y = torch.zeros_like(x)
    double[(x.shape[0], triton.cdiv(x.shape[1], 64))](x, slots, y, x.shape[1], BLOCK=64)
    return y
"""


@pytest.mark.slow
@pytest.mark.parametrize(("least", "named"), [(-1, False), (0, True)])
def test_rows_that_integers_leave_out_need_their_zeros(borrowing, tmp_path, least, named):
    """Which the first case of three rows need not show."""
    (tmp_path / "task.py").write_text(SKIPPED.format(least=least))
    with Bench.open(tmp_path / "task.py", "h100", compile_workers=1) as bench:
        assert len(list_notes(Evaluation(bench).verify(bench.seed, bench.facts.config))) == named


@pytest.mark.slow
def test_it_is_named_beside_a_gpu_too(borrowing, tmp_path):
    with open_bench(tmp_path, "torch.zeros_like(x)") as bench:
        simulate_gpu(bench)
        verdict = Evaluation(bench).verify(bench.seed, bench.facts.config)
    assert len(list_notes(verdict)) == 1 and verdict.detail[race_look.RACES]["shapes"]
