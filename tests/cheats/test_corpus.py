"""The corpus is what the issue asks for, the gate answers as the files say, and the running system judges a few of them."""

import corpus
import pytest
import run
from turns import take_turn

from kernelsearch.core.types import Word
from kernelsearch.verify.gate import check

ENTRIES = corpus.entries()
NAMED = """softmax_host_import softmax_decoy softmax_try_except softmax_timer_patch softmax_cached_by_pointer
softmax_tail_unwritten softmax_last_row_unwritten softmax_no_max softmax_constant layernorm_no_weight_no_bias layernorm_no_eps
matmul_tf32 matmul_half_accumulator matmul_last_k_skipped column_sum_zeros column_sum_store_race softmax_missing_mask
softmax_endless column_sum_wild_write layernorm_one_pass layernorm_unbiased softmax_half_denominator softmax_sniffs_input
matmul_precision_by_shape matmul_swapped_last_tile softmax_guard_write softmax_assumes_zeroed
softmax_max_padded_with_zero""".split()
"""The cheats that the referee's issue names."""

QUICK = ("softmax_neighbour_race", "softmax_guard_write", "softmax_assumes_zeroed", "softmax_stride_is_width")


def test_size_and_names():
    names = {e.path.stem for e in ENTRIES}
    assert len(ENTRIES) >= 60 and sum(e.honest for e in ENTRIES) >= 20
    assert set(NAMED) <= names
    assert {e.task for e in ENTRIES} == {*corpus.TASKS} > {e.task for e in ENTRIES if e.honest} == {*corpus.STUDIED}
    assert all(e.honest == ("_honest_" in e.path.stem) for e in ENTRIES)


def test_gluon_is_a_kernel_with_changes_that_only_a_gpu_judges():
    written = [e for e in ENTRIES if e.compiles_only]
    assert sum(e.honest for e in written) >= 4 and len(written) >= 14
    assert len({e.text for e in written}) == len(written) and all(e.path.suffix == ".change" for e in written)
    assert {e.wanted("interpreter") for e in written} == {(Word.STATIC,)}
    assert all(e.wanted("gpu") == (e.verdict, *e.also) for e in written)
    text = "# task: matmul\n# of: gluon/matmul_kernel.py\n-     s = 0\n+     s = 1\n"
    with pytest.raises(ValueError, match=r"x.change: not in one place of its kernel: '    s = 0'"):
        corpus.make_changes(text, "x.change")


def test_what_the_interpreter_cannot_see_is_said():
    assert all(e.blind for e in ENTRIES if e.interpreter is not e.verdict)
    assert not any(e.honest for e in ENTRIES if e.interpreter is not e.verdict)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.path.stem)
def test_gate(entry):
    verdict = check(entry.text)
    refused = entry.verdict is Word.STATIC and entry.stage == "gate"
    assert (verdict.word is Word.STATIC) == (refused or not entry.known), verdict.reason
    if not entry.known:
        assert "has no block pointers; use" in verdict.reason


def test_files_say_what_they_need():
    assert all(e.block_pointers == ("block_ptr" in e.text) for e in ENTRIES)
    assert all(e.honest for e in ENTRIES if e.block_pointers)


@pytest.mark.slow
def test_a_few_through_the_running_system():
    """All of them: `python tests/cheats/run.py`."""
    chosen = [e for e in ENTRIES if e.path.stem in (*QUICK, "softmax_honest_seed")]
    rows = run.run_task("softmax", chosen, controls=False, limit_s=60.0)
    assert len(rows) == 1 + len(QUICK)
    assert not [(r["file"], r["verdict"], r["reason"]) for r in rows if not r["ok"]]


@pytest.mark.slow
@pytest.mark.parametrize("task", take_turn([t for t in corpus.TASKS if t not in corpus.STUDIED], 9))
def test_what_fooled_the_referee_once_no_longer_does(task):
    rows = run.run_task(task, [e for e in ENTRIES if e.task == task], controls=False, limit_s=60.0)
    assert rows and not [(r["file"], r["verdict"], r["reason"]) for r in rows if not r["ok"]]


def test_an_unreadable_header_is_named(tmp_path):
    path = tmp_path / "softmax_x.py"
    path.write_text("# trick: none\n")
    with pytest.raises(ValueError, match="softmax_x.py"):
        corpus.read(path)
