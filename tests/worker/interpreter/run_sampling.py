"""The interpreter's side of `test_sampling.py`: `TRITON_INTERPRET=1 python run_sampling.py` prints JSON.

A kernel that a few programs cannot stand for is judged at two sizes, while the clocks go, stand still, and race.
"""

import itertools
import json
import time
from pathlib import Path
from unittest import mock

import torch

from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.interpreter.sampling import GridSample
from kernelsearch.worker.launcher.tensors import pack
from kernelsearch.worker.messages.jobs import CandidateJob, Interpret
from kernelsearch.worker.roles import interpret

ROOT = Path(__file__).resolve().parents[3]
CHEAT = Kernel.parse((ROOT / "tests/cheats/softmax_needless_atomic.py").read_text())
CLOCKS = "process_time perf_counter monotonic time thread_time process_time_ns perf_counter_ns".split()
ROWS = (60, 80_000)


def decide(rows):
    """(whether all programs ran, so that there are outputs to judge; the estimate of the sampled launch in seconds)."""
    samples = []
    candidate = CandidateJob(CHEAT, {"BLOCK": 8}, CHEAT, {"BLOCK": 8}, ("softmax_kernel",), target_by_name("h100"))
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(1))
    path = str(ROOT / "studies/softmax/softmax.py")
    job = Interpret(path, candidate, ("test:0",), ((pack(x),),), twins=(False,), sampled=(5,))
    with mock.patch.object(interpret, "GridSample", lambda seed: samples.append(GridSample(seed)) or samples[-1]):
        (ran,) = interpret.handle(job)
    return ran.verdict is None and bool(ran.outputs), samples[0].whole_s


def decide_by(tick):
    """The decisions while each look at a clock finds it this many seconds later."""
    ticks = itertools.count()
    with mock.patch.multiple(time, **{name: lambda: next(ticks) * tick for name in CLOCKS}):
        return [decide(rows) for rows in ROWS]


if __name__ == "__main__":
    results = {"as it goes": [decide(rows) for rows in ROWS], "still": decide_by(0), "racing": decide_by(10**6)}
    print(json.dumps(results))
