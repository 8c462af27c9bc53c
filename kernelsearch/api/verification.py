"""`verify` for scripts and notebooks: the full verdict, which is printed as the command explains it."""

from __future__ import annotations

from kernelsearch.api.results import JudgedKernel
from kernelsearch.core.arguments import checked
from kernelsearch.core.slow_steps import Say
from kernelsearch.trial import referee


@checked
def verify(
    task: str,
    kernel: str | None = None,
    target: str = "auto",
    say: Say | None = None,
    require_isolation: bool = False,
) -> JudgedKernel:
    """The full verdict on a kernel file, or on the task's own kernel; printed, it is what `--explain` prints.

    say takes sentences on slow steps. require_isolation raises IsolationError where a layer is missing. Raises
    KernelsearchError for the user's mistakes.
    """
    return JudgedKernel(**vars(referee.verify(task, kernel, target, say, require_isolation)))
