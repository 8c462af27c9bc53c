"""The compile worker: candidate source in, binaries out; no GPU, no inputs, no results, no network."""

from __future__ import annotations

import gc
import signal
import subprocess
from functools import partialmethod
from pathlib import Path

from kernelsearch.compile.known import KNOWN, KNOWN_SPEC
from kernelsearch.core.types import Verdict, Word
from kernelsearch.worker.isolation.sandbox import WorkerLimits, end_with_parent
from kernelsearch.worker.messages.jobs import Compile, Compiled

LIMITS = WorkerLimits(cpu_s=120, nice=10, memory_bytes=2 << 30)


def preload() -> None:
    """Imports the modules of every job and compiles a kernel, once, before forking: a first compile takes a second."""
    import triton
    import triton.backends.compiler
    import triton.compiler
    import triton.language
    from triton import knobs
    from triton.runtime import cache

    triton.language.core  # noqa: B018  (a broken install fails here)
    knobs.compilation.disable_line_info = True
    cache.triton_key = lambda: ""  # a second to read all of Triton: nobody else reads a worker's own folder
    import kernelsearch.verify.precision  # noqa: F401
    from kernelsearch.compile.build import build

    before = {n: signal.getsignal(n) for n in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP} if n < 32}
    build(KNOWN, KNOWN_SPEC.function, KNOWN_SPEC, 90, 1 << 16)
    for number, handler in before.items():  # LLVM's own handlers look up symbols for minutes: a crash should just end
        signal.signal(number, handler)
    gc.freeze()  # the collector of a forked worker would else copy all that is shared with its nursery
    gc.set_threshold(100_000)  # the usual one takes a tenth of a small compile
    knobs.cache.manager_class = _plain_cache()
    ending = partialmethod(subprocess.Popen.__init__, preexec_fn=end_with_parent)  # ptxas outlives no compiler
    subprocess.Popen.__init__ = ending  # type: ignore[method-assign, assignment]


def _plain_cache() -> type:
    """Triton's cache of files as a class that writes each file once: nobody else reads a worker's own folder."""
    from triton.runtime.cache import FileCacheManager

    class PlainCache(FileCacheManager):
        """Triton's cache without a folder and a rename for each file."""

        def put(self, data: str | bytes, filename: str, binary: bool = True) -> str:
            path = Path(self._make_path(filename))
            path.write_bytes(data if isinstance(data, bytes) else str(data).encode())
            return str(path)

    return PlainCache


def handle(job: Compile) -> Compiled:
    from kernelsearch.compile.build import BuildFailure, build
    from kernelsearch.verify import precision

    binaries = []
    for spec in job.specs:
        built = build(job.code, job.name, spec, job.target.arch, job.target.shared_per_program)
        if isinstance(built, BuildFailure):
            return Compiled(verdict=Verdict(Word.COMPILE, "compile", built.message, detail=built.detail))
        verdict = precision.check(built.texts.ttir, built.texts.ptx, job.precision)
        if not verdict.accepted:
            return Compiled(verdict=verdict)
        binaries.append(built.binary)
    return Compiled(tuple(binaries))


def answer_failure(job: Compile, message: str, trace: str) -> Compiled:
    return Compiled(verdict=Verdict(Word.COMPILE, "compile", message, detail={"trace": trace}))
