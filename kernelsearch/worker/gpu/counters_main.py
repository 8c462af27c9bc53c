"""One launcher call with a candidate's binaries, in a process that Nsight Compute watches: no candidate Python.

Run as `python -m kernelsearch.worker.gpu.counters_main FILE`, with a pickled `Counted` from the driver in FILE.
"""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelsearch.compile.build import Binary
from kernelsearch.measure.static_model import counters
from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.messages.jobs import CandidateJob

LIMIT_S = 60.0
_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute")


@dataclass(frozen=True)
class Counted:
    """The one call: a task's launcher at a shape, with these binaries in place of its kernels."""

    path: str
    shape: str
    candidate: CandidateJob
    binaries: Mapping[str, Binary]


def find_profiler() -> str | None:
    """Nsight Compute's command, None if it is not installed."""
    places = [Path(_PLACES[0]), *sorted(Path(_PLACES[1]).glob("*/ncu"), reverse=True)]
    return shutil.which("ncu") or next((str(p) for p in places if p.exists()), None)


def count_launches(job: Counted, functions: Sequence[str], cache: str) -> tuple[counters.Counters | None, ...] | str:
    """The counters of the call's launches in order, or a sentence that says why there are none."""
    tool = find_profiler()
    if tool is None:
        return "Nsight Compute (ncu) is not installed"
    with tempfile.NamedTemporaryFile(dir=cache, suffix=".job") as file:
        file.write(pickle.dumps(job))
        file.flush()
        command = [tool, *"--csv --print-units base --clock-control none --metrics".split(), ",".join(counters.METRICS)]
        command += ["--kernel-name", f"regex:^({'|'.join(sorted(set(functions)))})$"]
        command += ["--launch-count", str(len(functions))]
        command += [*sandbox.run_module("kernelsearch.worker.gpu.counters_main"), file.name]
        environment = sandbox.scrub_environment(cache)
        try:
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"Nsight Compute did not finish within {LIMIT_S:g} s"
    values = counters.match_launches(counters.parse_counters(run.stdout), functions)
    return values if any(values) else counters.explain_refusal(run.stdout + run.stderr)


def call_launcher(job: Counted) -> None:
    """Makes the shape's inputs and calls the launcher once."""
    import torch

    from kernelsearch.worker.gpu.launching import Launcher, task_of

    case = task_of(job.path).build(job.shape, 0, "cuda")
    with Launcher(job.candidate, job.binaries).intercept():
        case.launch(*case.inputs)
    torch.cuda.synchronize()


if __name__ == "__main__":
    from kernelsearch.worker.gpu.counters_main import Counted as _  # noqa: F401  (the pickle names that module's class)

    call_launcher(pickle.loads(Path(sys.argv[1]).read_bytes()))
