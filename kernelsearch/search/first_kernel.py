"""The first kernel of a task that has none: TorchInductor's kernels for its reference, in a task file of their own.

NAME_seeded.py is the text of NAME.py and the kernels with their launcher. A search goes on with it as with any other.
"""

from __future__ import annotations

from pathlib import Path

from kernelsearch.core.errors import TaskError
from kernelsearch.core.files import write_user_file
from kernelsearch.trial import bench as benches
from kernelsearch.trial.slow_steps import Say
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Workplace, ask_trusted

SEED_LIMIT_S = 300.0
"""Seconds that TorchInductor may take for a reference."""


def write_first_kernel(path: str, target: str, say: Say) -> str:
    """The task file with TorchInductor's kernels; an earlier run's file is taken as it is.

    Raises TaskError where Inductor writes no kernel that can be read.
    """
    original, file = Path(path), Path(path).with_name(f"{Path(path).stem}_seeded.py")
    if not file.exists():
        write_user_file(str(file), make_seeded_text(path, target))
        say(f"{original.name} has no kernel: seeded by TorchInductor, see {file.name}")
    elif not file.read_text(encoding="utf-8").startswith(original.read_text(encoding="utf-8").rstrip()):
        raise TaskError(f"{file} is in the way: it does not begin with the text of {original.name}; move it away")
    else:
        say(f"{original.name} has no kernel; {file.name} has it with the first one of an earlier run")
    return str(file)


def make_seeded_text(path: str, target: str) -> str:
    """A task file's text with TorchInductor's kernels as its seed. Raises TaskError."""
    machine, _ = benches.choose_target(target)
    with Workplace((str(Path(path).resolve().parent),)) as place:
        judge = place.pool("judge", 1, fork=True)
        return str(ask_trusted(judge, jobs.SeedTask(str(Path(path).resolve()), machine), SEED_LIMIT_S))
