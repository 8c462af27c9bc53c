"""Compiles one specialisation of a kernel with Triton for a target, with no GPU needed.

Runs in a compile worker: executing the source's decorators is the first time that candidate text
becomes Python objects, so the gate has passed it before.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kernelsearch.compile import blocks, ttgir, ttir
from kernelsearch.compile.code import Code, InstructionCounts
from kernelsearch.compile.elf import identity, resources
from kernelsearch.compile.ptx import instruction_mix
from kernelsearch.core.types import DtypeFact
from kernelsearch.kernel.language import refusal
from kernelsearch.kernel.launch import TRITON_DTYPES, Specialisation


@dataclass(frozen=True)
class Binary:
    """A compiled specialisation: the cubin and what is known of it.

    identity is a hash of the cubin but for the kernel's name: equal identities run the same machine code.
    shared is in bytes per program, registers and stack_bytes are per thread; unsupported says why a plain
    launch through the driver cannot run it, empty when it can. code is what hints know of it.
    """

    name: str
    cubin: bytes
    identity: str
    arch: int
    num_warps: int
    num_ctas: int
    shared: int
    registers: int
    stack_bytes: int
    mix: InstructionCounts
    params: tuple[tuple[str, str], ...]
    scratch_bytes: int = 0
    unsupported: str = ""
    code: Code = field(default_factory=Code)


@dataclass(frozen=True)
class BuildFailure:
    """A compile that did not give a binary: the compiler's own message, cut to its useful end."""

    message: str


@dataclass(frozen=True)
class Texts:
    """The intermediate forms, for the precision contract and for hints."""

    ttir: str = ""
    ttgir: str = ""
    ptx: str = ""


@dataclass(frozen=True)
class Built:
    """What a build gives: a binary and its texts."""

    binary: Binary
    texts: Texts = field(default_factory=Texts)


def load_functions(code: str, name: str) -> dict[str, Any]:
    """Executes the code of a kernel file and returns its namespace.

    The text is put into linecache under a made-up file name, because Triton reads a jit function's
    source through `inspect`.
    """
    filename = f"kernelsearch/{name}.py"
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": f"kernelsearch_{name}"}
    exec(compile(code, filename, "exec"), namespace)
    return namespace


def build(code: str, name: str, spec: Specialisation, arch: int, shared_limit: int) -> Built | BuildFailure:
    """Compiles one function of a kernel file.

    arch is the compute capability (90), shared_limit the target's bytes per program. Triton's and
    ptxas's complaints, and a kernel that needs more shared memory than there is, are BuildFailures.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.errors import TritonError

    function = load_functions(code, name)[spec.function]
    order = {param.name: i for i, param in enumerate(function.params)}
    signature = dict(sorted(spec.signature, key=lambda item: order[item[0]]))
    source = ASTSource(
        fn=function,
        signature=signature,
        constexprs={(order[name],): live_constant(value) for name, value in spec.constexprs},
        attrs={(order[name],): [["tt.divisibility", 16]] for name in spec.divisible},
    )
    options = {k: v for k, v in spec.options if v is not None}
    try:
        with stopped_early(shared_limit):
            compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    except (
        TritonError,
        RuntimeError,
        ValueError,
        TypeError,
        AssertionError,
        KeyError,
        AttributeError,
        IndexError,
        NotImplementedError,
        RecursionError,
    ) as error:
        return BuildFailure(_message(error))
    if compiled.metadata.shared > shared_limit:
        return BuildFailure(_too_much(compiled.metadata.shared, shared_limit))
    params = tuple((n, kind) for n, kind in signature.items() if kind != "constexpr")
    asm = compiled.asm
    return Built(_binary(compiled, params, arch), Texts(str(asm["ttir"]), str(asm["ttgir"]), str(asm["ptx"])))


@contextmanager
def stopped_early(shared_limit: int) -> Iterator[None]:
    """Inside, a compile ends with a RuntimeError as soon as it is known that a program needs more shared memory than that.

    LLVM's back end and ptxas come after: half to three quarters of the time. For one thread of a process, as a compile worker is.
    """
    from triton import knobs

    def hook(backend: Any = None, stages: Any = None, *_: Any) -> tuple[str, str] | None:
        if stages is None:
            return "kernelsearch", "kernelsearch"  # Triton asks what its cache key should say of this hook
        ptx = stages["ptx"]

        def checked(source: Any, metadata: dict[str, Any]) -> Any:
            if metadata.get("shared", 0) > shared_limit:
                raise RuntimeError(_too_much(metadata["shared"], shared_limit))
            return ptx(source, metadata)

        stages["ptx"] = checked
        return None

    before = knobs.runtime.add_stages_inspection_hook
    knobs.runtime.add_stages_inspection_hook = hook
    try:
        yield
    finally:
        knobs.runtime.add_stages_inspection_hook = before


def _too_much(shared: int, limit: int) -> str:
    return f"needs {shared} bytes of shared memory, the target has {limit}"


def _binary(compiled: Any, params: tuple[tuple[str, str], ...], arch: int) -> Binary:
    metadata = compiled.metadata
    cubin = compiled.asm["cubin"]
    used = resources(cubin, metadata.name)
    mix = instruction_mix(str(compiled.asm["ptx"]))
    return Binary(
        name=metadata.name,
        cubin=cubin,
        identity=identity(cubin, metadata.name),
        arch=arch,
        num_warps=metadata.num_warps,
        num_ctas=getattr(metadata, "num_ctas", 1),
        shared=metadata.shared,
        registers=used.registers,
        stack_bytes=used.stack_bytes,
        mix=mix,
        params=params,
        scratch_bytes=getattr(metadata, "global_scratch_size", 0) or 0,
        unsupported=_unsupported(metadata),
        code=code_of(
            str(compiled.asm["ttir"]), str(compiled.asm["ttgir"]), tuple(n for n, _ in params), str(compiled.asm["ptx"])
        ),
    )


def code_of(ttir_text: str, ttgir_text: str, names: tuple[str, ...] = (), ptx: str = "") -> Code:
    """What hints and the static model know of a kernel with these parameters.

    Text in a form that is not known tells less; it is no reason to refuse a binary.
    """
    try:
        code = ttgir.read(ttir.read(ttir_text, names), ttgir_text, names)
        return replace(code, blocks=blocks.read(ptx, ttgir_text, names)) if ptx else code
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError):
        return Code()


def _unsupported(metadata: Any) -> str:
    if getattr(metadata, "profile_scratch_size", 0):
        return "profiling scratch memory is not supplied"
    if getattr(metadata, "launch_cooperative_grid", False):
        return "cooperative launches are not made yet"
    return ""


def live_constant(value: Any) -> Any:
    if isinstance(value, DtypeFact):
        import triton.language as tl

        names = {short: long for long, short in TRITON_DTYPES.items()}
        return getattr(tl, {"bool": "int1"}.get(names[value.name], names[value.name]))
    return value


def _message(error: BaseException) -> str:
    """The last lines of a compiler message that say something, at most 600 characters."""
    text = str(error).strip() or type(error).__name__
    cause = error.__cause__
    if cause is not None and str(cause).strip() and str(cause) not in text:
        text = f"{text}\n{cause}"
    if "Block pointers have been removed" in text:  # triton/language/core.py of 3.9
        return f"tl.make_block_ptr: {refusal('make_block_ptr')}"
    return text[-600:]
