"""Runs kernel files through gate, interpreter and judge: `TRITON_INTERPRET=1 python run_interpreted.py FILE...`.

Prints one JSON line a file: the word that gate and judge gave on the task's TEST_SHAPES, with the reason. A stand-in
for the workers in tests: the launcher is the task's own, its kernel is replaced by name, GRID and SCRATCH are ignored.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import torch

from kernelsearch.verify import regimes
from kernelsearch.verify.gate import check
from kernelsearch.verify.judge import expectation, judge

STUDIES = Path(__file__).resolve().parents[2] / "studies"


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def header(text):
    return {line[2:].split(":")[0]: line.split(": ", 1)[1] for line in text.splitlines()[:3]}


def expectations(task, kept):
    """(expectation, inputs) for every test shape and regime of a task; made once, used for all its kernels."""
    if task not in kept:
        module = load(STUDIES / task / f"{task}.py", f"task_{task}")
        shapes = module.TEST_SHAPES
        made = []
        for number, (shape, chosen) in enumerate(zip(shapes, regimes.plan("full", len(shapes)))):
            blank = module.get_inputs(**shape)
            rows = module.reference(*blank).shape[0]
            for regime in chosen:
                inputs = regimes.make(blank, regime, seed=number, rows=rows)
                made.append((expectation(module.reference, module.reference, inputs,
                                         shape=str(shape), regime=regime, seed=number), inputs))
        kept[task] = (module, made)
    return kept[task]


def verdict_of(path, kept):
    text = Path(path).read_text()
    verdict = check(text)
    if not verdict.accepted:
        return verdict
    task = header(text)["task"]
    module, made = expectations(task, kept)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "candidate.py"
        copy.write_text(text)
        setattr(module, f"{task}_kernel", getattr(load(copy, "candidate"), f"{task}_kernel"))
        poisoned = torch.empty, torch.empty_like
        torch.empty = lambda *a, **k: poisoned[0](*a, **k).fill_(float("nan"))
        torch.empty_like = lambda *a, **k: poisoned[1](*a, **k).fill_(float("nan"))
        try:
            for expected, inputs in made:
                copies = [x.clone() for x in inputs]
                verdict = judge(expected, [getattr(module, task)(*copies)], inputs, copies, depth="full")
                if not verdict.accepted:
                    return verdict
        finally:
            torch.empty, torch.empty_like = poisoned
    return verdict


if __name__ == "__main__":
    torch.set_num_threads(1)
    cache = {}
    for name in sys.argv[1:]:
        found = verdict_of(name, cache)
        print(json.dumps({"file": Path(name).name, "word": found.word.value, "reason": found.reason,
                          "regime": found.detail.get("regime")}), flush=True)
