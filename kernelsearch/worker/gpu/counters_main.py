"""One launcher call with a candidate's binaries, in a process that Nsight Compute watches: no candidate Python.

`python -m kernelsearch.worker.gpu.counters_main FILE`, where FILE holds a pickled `Counted` that the driver has just written.
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
from typing import Any

from kernelsearch.compile.build import Binary
from kernelsearch.measure.static_model import counters
from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.messages.jobs import Candidate

LIMIT_S = 60.0
_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute")


@dataclass(frozen=True)
class Counted:
    """What to call once: a task's launcher at a shape, with these binaries in the place of its kernels."""

    path: str
    shape: str
    candidate: Candidate
    binaries: Mapping[str, Binary]


def profiler() -> str | None:
    """Nsight Compute's command, None where it is not installed."""
    found = shutil.which("ncu")
    if found is None:
        places = [Path(_PLACES[0]), *sorted(Path(_PLACES[1]).glob("*/ncu"), reverse=True)]
        found = next((str(p) for p in places if p.exists()), None)
    return found


def counted(job: Counted, functions: Sequence[str], cache: str) -> tuple[counters.Counters | None, ...] | str:
    """The counters of the call's launches in order, or a sentence that says why there are none."""
    tool = profiler()
    if tool is None:
        return "Nsight Compute (ncu) is not installed"
    with tempfile.NamedTemporaryFile(dir=cache, suffix=".job") as file:
        file.write(pickle.dumps(job))
        file.flush()
        command = [
            tool,
            "--csv",
            "--print-units",
            "base",
            "--clock-control",
            "none",
            "--metrics",
            ",".join(counters.METRICS),
            "--kernel-name",
            f"regex:^({'|'.join(sorted(set(functions)))})$",
            "--launch-count",
            str(len(functions)),
            sys.executable,
            "-m",
            "kernelsearch.worker.gpu.counters_main",
            file.name,
        ]
        environment = sandbox.scrubbed_environment({}, cache)
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"Nsight Compute did not finish within {LIMIT_S:g} s"
    found = counters.matched(counters.parsed(done.stdout), functions)
    return found if any(found) else counters.refusal(done.stdout + done.stderr)


def call(job: Counted) -> None:
    """Makes the shape's inputs and calls the launcher once."""
    import torch

    from kernelsearch.worker.gpu.launching import Launcher
    from kernelsearch.worker.launcher import intercept, trace

    def execute(function: Any, step: Any, args: dict[str, Any]) -> None:
        function.launch(step.grid, [args[n] for n, _ in function.binary.params])

    torch.zeros(1, device="cuda")  # makes the context that the driver API launches in
    case = trace.open_task(job.path).build(job.shape, 0, "cuda")
    with intercept.intercepted(Launcher(job.candidate, job.binaries, execute)):
        case.launch(*case.inputs)
    torch.cuda.synchronize()


if __name__ == "__main__":
    from kernelsearch.worker.gpu.counters_main import Counted as _  # noqa: F401  (what was pickled is that module's, not __main__'s)

    call(pickle.loads(Path(sys.argv[1]).read_bytes()))
