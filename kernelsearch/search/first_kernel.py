"""The first kernel of a task that has none: TorchInductor's kernels for its reference, in a task file of their own.

NAME_seeded.py is the text of NAME.py and the kernels with their launcher. A search goes on with it as with any other,
and begins with NAME_seeded_start.py too, where Inductor has a second form of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from kernelsearch.core.errors import TaskError
from kernelsearch.core.files import write_user_file
from kernelsearch.core.slow_steps import Say
from kernelsearch.propose.inductor.task_file import LIMITED, MARK, SLOW_PRODUCTS
from kernelsearch.tasks.named_function import LEFT_OUT, refuse_method
from kernelsearch.trial import bench as benches
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Pool, Workplace, ask_trusted

SEED_LIMIT_S = 300.0
"""Seconds that TorchInductor may take for a reference."""
CURES = {
    "makes random numbers": "use .eval() or training=False, or take them as an input",
    "has complex numbers": "write it in real arithmetic",
    "depends on data": "use torch.where or a fixed size",
}
"""What helps where a reference does something that no kernel can replace."""
OWN_FAULT = r"\bline \d+|makes no kernel of its reference: it "
"""A refusal that is the reference's own fault, which a kernel beside it would not mend."""


def write_first_kernel(path: str, target: str, say: Say) -> str:
    """The task file with TorchInductor's kernels; an earlier run's file is taken as it is.

    Raises TaskError where Inductor writes no kernel that can be read.
    """
    original, file = Path(path), Path(path).with_name(f"{Path(path).stem}_seeded.py")
    if not file.exists():
        say(f"{original.name} has no kernel: TorchInductor writes a first one")
        write_seed(path, str(file), target)
        text = file.read_text(encoding="utf-8")
        note = f"; {SLOW_PRODUCTS}" if SLOW_PRODUCTS in text else ""
        say(f"seeded by TorchInductor, see {file.name}{note}{_name_limits(text)}")
    elif not file.read_text(encoding="utf-8").startswith(original.read_text(encoding="utf-8").rstrip()):
        if MARK not in file.read_text(encoding="utf-8"):
            raise TaskError(f"{file} is in the way: it does not begin with the text of {original.name}; move it away")
        anew = f"kernelsearch seed {shlex.quote(path)} -o {shlex.quote(str(file))} --force"
        raise TaskError(
            f"{original.name} has changed since {file.name} was made from it: write that anew (`{anew}`), or move it "
            "away"
        )
    else:
        say(f"{original.name} has no kernel; {file.name} has it with a first one, from an earlier run")
    return str(file)


def write_seed(path: str, out: str, target: str, writer: Pool | None = None) -> str:
    """Writes a task file with TorchInductor's kernels as its seed, and the other start beside it; says what it wrote.

    Raises TaskError. writer: see `make_seeded_text`.
    """
    text, start = make_seeded_text(path, target, writer)
    beside = _name_start(out)
    for file, content in ((out, text), (beside, start)):
        if content:
            write_user_file(file, content)
    return (f"{out} and {beside}, a second start" if start else out) + _name_limits(text)


def _name_limits(text: str) -> str:
    """What a seeded file says of the sizes that its kernels are made for, as the rest of a sentence."""
    limits = re.findall(rf"^# ({LIMITED} .* only)$", text, re.MULTILINE)
    return f"; {limits[-1]}" if limits else ""


def list_starts(path: str) -> list[str]:
    """Kernel files beside a seeded task file with which a search may begin too; other tasks have none."""
    start, seeded = Path(_name_start(path)), MARK in Path(path).read_text(encoding="utf-8")
    return [str(start)] if seeded and start.exists() else []


def _name_start(path: str) -> str:
    return f"{path.removesuffix('.py')}_start.py"


def record_inputs(path: str, script: str, say: Say) -> str:
    """The text of `get_inputs` for `FILE.py:NAME` after a first call of it by a script, a path and its arguments.

    say is told which calls are left out. Raises TaskError.
    """
    file, _, name = path.rpartition(":")
    script, *arguments = [script] if Path(script).is_file() else shlex.split(script) or [script]
    for needed in (file, script):
        if not Path(needed).is_file():
            raise TaskError(f"--call records what FILE.py:NAME is called with: there is no file {needed or path!r}")
    refuse_method(Path(file), name)
    with open_writer(Path(script).parent, "judge") as worker:
        job = jobs.RecordCall(str(Path(script).resolve()), tuple(arguments), str(Path(file).resolve()), name)
        text = str(ask_trusted(worker, job, SEED_LIMIT_S))
    if text.startswith(LEFT_OUT):
        say(f"note: --call leaves out {text.splitlines()[0].removeprefix(LEFT_OUT)}")
    return text


@contextmanager
def open_writer(folder: Path, role: str = "seed") -> Iterator[Pool]:
    """A worker that writes the first kernels of files in a folder, for as long as the block lasts."""
    with Workplace((str(folder.resolve()),)) as place:
        yield place.pool(role, 1, fork=True)


def make_seeded_text(path: str, target: str, writer: Pool | None = None) -> tuple[str, str]:
    """(A task file's text with TorchInductor's kernels as its seed, a kernel file with another start or "").

    Raises TaskError. writer is an open one: a worker's start costs more than most files.
    """
    file, (machine, _) = Path(path).resolve(), benches.choose_target(target)
    with nullcontext(writer) if writer else open_writer(file.parent) as worker:
        try:
            text, start = ask_trusted(worker, jobs.SeedTask(str(file), machine), SEED_LIMIT_S)
        except TaskError as error:
            raise TaskError(f"{error}{advise(str(error), file.name)}") from None
        return str(text), str(start)


def advise(refusal: str, name: str) -> str:
    """What to do about a refusal, as the rest of its sentence."""
    cures = [f"; {cure}" for sign, cure in CURES.items() if sign in refusal]
    if cures or "TorchInductor" not in refusal or re.search(OWN_FAULT, refusal):
        return cures[0] if cures else ""
    return f". {name} has no kernel: add one, and the function that launches it (`kernelsearch help task`)"
