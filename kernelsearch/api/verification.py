"""`verify` for scripts and notebooks: the full verdict, which is printed as the command explains it."""

from __future__ import annotations

import os

from kernelsearch.api.results import JudgedKernel
from kernelsearch.core.slow_steps import Say
from kernelsearch.trial import referee


def verify(
    task: str | os.PathLike[str],
    kernel: str | os.PathLike[str] | None = None,
    target: str = "auto",
    say: Say | None = None,
    require_isolation: bool = False,
) -> JudgedKernel:
    """The full verdict on a kernel file, or on the task's own kernel; printed, it is what `--explain` prints.

    say takes sentences on slow steps. require_isolation raises IsolationError where a layer is missing. Raises
    KernelsearchError for the user's mistakes.
    """
    own = None if kernel is None else os.fspath(kernel)
    return JudgedKernel(**vars(referee.verify(os.fspath(task), own, target, say, require_isolation)))
