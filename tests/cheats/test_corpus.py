"""Every file of the corpus through the gate; those that the interpreter can judge, through the judge as well."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelsearch.types import Word
from kernelsearch.verify.gate import check

HERE = Path(__file__).parent
FILES = sorted(p for p in HERE.glob("*.py") if p.name not in ("test_corpus.py", "run_interpreted.py"))
NOT_HERE = ("softmax_missing_mask.py", "column_sum_wild_write.py")
"""Kernels that write where the interpreter has no buffer: they need the worker's guard bands."""


def word_of(path):
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# task: ") and lines[1].startswith("# trick: ")
    return Word(lines[2].removeprefix("# verdict: "))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_gate(path):
    verdict = check(path.read_text())
    assert (verdict.word is Word.STATIC) == (word_of(path) is Word.STATIC), verdict.reason


def test_interpreter_and_judge():
    """The seeds and every second cheat, to be quick; all of them: run_interpreted.py."""
    judged = [p for p in FILES if word_of(p) in (Word.ACCEPT, Word.WRONG, Word.MEMORY) and p.name not in NOT_HERE]
    cheats = [p for p in judged if "_honest_" not in p.name]
    chosen = [p for p in judged if p.name.endswith("_honest_seed.py")] + cheats[::2]
    options = {"TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(HERE.parents[1])}
    environment = {**os.environ, **options}
    done = subprocess.run(
        [sys.executable, str(HERE / "run_interpreted.py"), *map(str, chosen)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = {a["file"]: a for a in map(json.loads, done.stdout.splitlines())}
    wrong = {p.name: answers[p.name] for p in chosen if answers[p.name]["word"] != word_of(p).value}
    assert not wrong
