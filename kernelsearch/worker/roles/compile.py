"""The compile worker: candidate source in, binaries out; no GPU, no inputs, no results, no network."""

from __future__ import annotations

from kernelsearch.core.types import Verdict, Word
from kernelsearch.worker.isolation.sandbox import WorkerLimits
from kernelsearch.worker.messages.jobs import Compile, Compiled

LIMITS = WorkerLimits(cpu_s=120, nice=10)


def preload() -> None:
    """Imports the modules of every job, once, before forking."""
    import triton
    import triton.backends.compiler
    import triton.compiler
    import triton.language
    from triton import knobs

    triton.language.core  # noqa: B018  (a broken install fails here)
    knobs.compilation.disable_line_info = True
    import kernelsearch.compile.build
    import kernelsearch.verify.precision  # noqa: F401


def handle(job: Compile) -> Compiled:
    from kernelsearch.compile.build import BuildFailure, build
    from kernelsearch.verify import precision

    binaries = []
    for spec in job.specs:
        built = build(job.code, job.name, spec, job.target.capability, job.target.shared_per_program)
        if isinstance(built, BuildFailure):
            return Compiled(verdict=Verdict(Word.COMPILE, "compile", built.message))
        verdict = precision.check(built.texts.ttir, built.texts.ptx, job.precision)
        if not verdict.accepted:
            return Compiled(verdict=verdict)
        binaries.append(built.binary)
    return Compiled(tuple(binaries))


def failed(job: Compile, message: str, trace: str) -> Compiled:
    return Compiled(verdict=Verdict(Word.COMPILE, "compile", message, detail={"trace": trace}))
