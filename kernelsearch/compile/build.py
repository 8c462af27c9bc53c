"""Compiles one specialisation of a kernel with Triton for a target; needs no GPU.

Runs in a compile worker. Executing the source's decorators is the first time that candidate text becomes Python
objects, so the gate must have accepted it before.
"""

from __future__ import annotations

import io
import linecache
import re
import struct
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any

from kernelsearch.compile import amdgcn, blocks, ttgir, ttir
from kernelsearch.compile.code import Code, InstructionCounts
from kernelsearch.compile.complaints import catch_stderr, read_complaint, read_serialised
from kernelsearch.compile.elf import compute_identity, read_resources
from kernelsearch.compile.marks import mark_blocks
from kernelsearch.compile.ptx import count_instructions
from kernelsearch.compile.tensor_maps import TensorMap, is_descriptor_kind, name_parameters
from kernelsearch.core.types import DtypeFact
from kernelsearch.kernel.language import explain_refusal
from kernelsearch.kernel.launch import TRITON_DTYPES, Specialisation
from kernelsearch.kernel.literals import MAX_THREADS

_ELEMENTS = {short: long for long, short in TRITON_DTYPES.items()}


@dataclass(frozen=True)
class Binary:
    """A compiled specialisation: the cubin (for an AMD target, the hsaco) and its facts.

    identity is a hash of the cubin without the kernel's name: equal identities run the same machine code.
    shared is in bytes per program, registers and stack_bytes are per thread. unsupported says why a plain
    launch through the driver cannot run it; it is empty when one can. code is for the hints. maps are those of its
    descriptor arguments in order, none where the target has no copy engine.
    """

    name: str
    cubin: bytes
    identity: str
    arch: int | str
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
    maps: tuple[TensorMap, ...] = ()


INVENTED = "kernelsearch/"
"""What the invented names of the files begin with that hold a kernel's text."""

EXCEEDS_SHARED = "exceeds_shared"
"""The name in a verdict's detail of the bytes of shared memory that a program would need, more than there are."""


class SharedExceeded(RuntimeError):
    """A program needs more shared memory than the target has; both in bytes."""

    def __init__(self, needed: int, limit: int) -> None:
        super().__init__(f"needs {needed} bytes of shared memory, the target has {limit}")
        self.needed = needed


@dataclass(frozen=True)
class BuildFailure:
    """A compile without a binary: the compiler's own message, cut to its useful end; detail goes into the verdict."""

    message: str
    detail: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Texts:
    """The intermediate forms, for the precision contract and the hints."""

    ttir: str = ""
    ttgir: str = ""
    ptx: str = ""
    amdgcn: str = ""


@dataclass(frozen=True)
class Built:
    """The result of a build: a binary and its texts."""

    binary: Binary
    texts: Texts


def check_binary(binary: Binary) -> Binary:
    """The binary with its identity computed anew from its cubin. Raises ValueError if that is not a cubin."""
    try:
        return replace(binary, identity=compute_identity(binary.cubin, binary.name))
    except (struct.error, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not a cubin: {error}") from None


def load_functions(code: str, name: str) -> dict[str, Any]:
    """Executes the code of a kernel file and returns its namespace.

    linecache gets the text under an invented file name, because Triton reads a jit function's source with `inspect`.
    """
    filename = f"{INVENTED}{name}.py"
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": f"kernelsearch_{name}"}
    exec(compile(code, filename, "exec"), namespace)
    return namespace


def find_line(error: BaseException) -> str:
    """The innermost line of such code that an exception came through, empty without one."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(INVENTED)]
    return frames[-1].line or "" if frames else ""


def _make_source(namespace: dict[str, Any], spec: Specialisation) -> tuple[Any, dict[str, str]]:
    """What Triton compiles for a specialisation, and the types of its parameters in order."""
    from triton.compiler import ASTSource

    function = namespace[spec.function]
    order = {param.name: i for i, param in enumerate(function.params)}
    signature = dict(sorted(spec.signature, key=lambda item: order[item[0]]))
    form: type[ASTSource] = ASTSource
    if function.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        form, signature = GluonASTSource, {n: add_layout(kind) for n, kind in signature.items()}
    source = form(
        fn=function,
        signature=signature,
        constexprs={(order[name],): as_live_constant(value) for name, value in spec.constexprs},
        attrs={(order[name],): [["tt.divisibility", 16]] for name in spec.divisible},
    )
    return source, signature


def make_ttir(code: Any, name: str, spec: Specialisation, arch: int | str, marked: bool = True) -> str | BuildFailure:
    """The TTIR of one function of a kernel file after Triton's passes, with the file's lines and marks of blocks.

    Without marks where they may not stand. In place of code it takes Triton's own function. Descriptors stay whole.
    """
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend
    from triton.errors import TritonError

    printed = bytearray()
    try:
        namespace = load_functions(code, name) if isinstance(code, str) else {spec.function: code}
        source, _ = _make_source(namespace, spec)
        described = any(is_descriptor_kind(kind) for _, kind in spec.signature)
        target = make_gpu_target(90 if described else arch)
        backend = make_backend(target)
        options = backend.parse_options({k: v for k, v in spec.options if v is not None})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        with catch_stderr() as printed, mark_blocks(namespace) if marked else nullcontext():
            made = source.make_ir(
                target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
            )
            stages: dict[str, Any] = {}
            backend.add_stages(stages, options, source.language)
            return str(stages["ttir"](made, {}))
    except (TritonError, RuntimeError, ValueError, TypeError, AssertionError, LookupError, AttributeError) as error:
        message = _extract_message(error, printed.decode(errors="replace"))
    return make_ttir(code, name, spec, arch, False) if marked and "'tt.print'" in message else BuildFailure(message)


def make_gpu_target(arch: int | str) -> Any:
    """Triton's target of a compute capability (90) or an AMD architecture (`gfx942`)."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget("hip", arch, 64) if isinstance(arch, str) else GPUTarget("cuda", arch, 32)


def build(code: str, name: str, spec: Specialisation, arch: int | str, shared_limit: int) -> Built | BuildFailure:
    """Compiles one function of a kernel file.

    arch is a Target's, shared_limit its bytes per program. An error of Triton or ptxas is a BuildFailure, and so is a
    kernel that needs more shared memory than the target has, or more threads than any.
    """
    import triton
    from triton.errors import TritonError

    namespace = load_functions(code, name)
    source, signature = _make_source(namespace, spec)
    options = {k: v for k, v in spec.options if v is not None}
    printed = bytearray()
    try:
        with watch_stages(shared_limit), catch_stderr() as printed:
            compiled = triton.compile(source, target=make_gpu_target(arch), options=options)
        if compiled.metadata.shared > shared_limit:
            raise SharedExceeded(compiled.metadata.shared, shared_limit)
        if (threads := compiled.metadata.num_warps * compiled.metadata.target.warp_size) > MAX_THREADS:
            return BuildFailure(f"needs {threads} threads a program, of which no card has more than {MAX_THREADS}")
    except SharedExceeded as error:
        return BuildFailure(str(error), {EXCEEDS_SHARED: error.needed})
    except (TritonError, RuntimeError, ValueError, TypeError, AssertionError, LookupError, AttributeError) as error:
        return BuildFailure(_extract_message(error, printed.decode(errors="replace")))
    params = tuple((n, kind) for n, kind in signature.items() if kind != "constexpr")
    texts = Texts(*(str(compiled.asm.get(stage, "")) for stage in ("ttir", "ttgir", "ptx", "amdgcn")))
    return Built(_describe(compiled, texts, params, arch), texts)


def add_layout(kind: str) -> str:
    """A type for Gluon: a descriptor's names the layout of its tiles in shared memory, here the one by default.

    Raises AssertionError for a tile whose rows no layout takes.
    """
    if not is_descriptor_kind(kind):
        return kind
    from triton.experimental.gluon import language as gl

    dtype, _, sizes = kind.removeprefix("tensordesc<").removesuffix("]>").partition("[")
    element = getattr(gl, _ELEMENTS.get(dtype, dtype))
    layout = gl.NVMMASharedLayout.get_default_for([int(n) for n in sizes.split(",")], element)
    return f"{kind.removesuffix('>')},{layout!r}>"


@contextmanager
def watch_stages(shared_limit: int) -> Iterator[None]:
    """Ends a compile early, with SharedExceeded, when a program needs more shared memory than the limit.

    This saves LLVM's back end and ptxas: half to three quarters of the time. What ptxas says of products that wait for
    each other goes into the metadata, which Triton keeps with the binary. The hook belongs to the whole process, so
    only one thread may compile, as in a compile worker.
    """
    from triton import knobs

    def hook(backend: Any = None, stages: Any = None, *_: Any) -> tuple[str, str] | None:
        if stages is None:
            return "kernelsearch, serialised", "kernelsearch"  # Triton wants this hook's part of its cache key
        text = "ptx" if "ptx" in stages else "amdgcn"
        translate, cubin = stages[text], stages.get("cubin")

        def check_then_translate(source: Any, metadata: dict[str, Any]) -> Any:
            if metadata.get("shared", 0) > shared_limit:
                raise SharedExceeded(metadata["shared"], shared_limit)
            return translate(source, metadata)

        def cubin_and_log(source: Any, metadata: dict[str, Any]) -> Any:
            with redirect_stdout(io.StringIO()) as log, knobs.nvidia.scope():
                knobs.nvidia.dump_ptxas_log = True
                made = cubin(source, metadata)
            metadata["serialised"] = read_serialised(log.getvalue())
            return made

        stages[text] = check_then_translate
        if cubin is not None:
            stages["cubin"] = cubin_and_log
        return None

    before = knobs.runtime.add_stages_inspection_hook
    knobs.runtime.add_stages_inspection_hook = hook
    try:
        yield
    finally:
        knobs.runtime.add_stages_inspection_hook = before


def _describe(compiled: Any, texts: Texts, params: tuple[tuple[str, str], ...], arch: int | str) -> Binary:
    metadata, gcn = compiled.metadata, texts.amdgcn
    cubin = compiled.asm["hsaco" if gcn else "cubin"]
    used = amdgcn.read_resources(gcn) if gcn else read_resources(cubin, metadata.name)
    mix = amdgcn.count_instructions(gcn) if gcn else count_instructions(texts.ptx)
    maps = tuple(map(TensorMap.read, getattr(metadata, "tensordesc_meta", None) or ()))
    names = name_parameters(params, bool(maps))
    return Binary(
        name=metadata.name,
        cubin=cubin,
        identity=compute_identity(cubin, metadata.name),
        arch=arch,
        num_warps=metadata.num_warps,
        num_ctas=getattr(metadata, "num_ctas", 1),
        shared=metadata.shared,
        registers=used.registers,
        stack_bytes=used.stack_bytes,
        mix=mix,
        params=params,
        scratch_bytes=getattr(metadata, "global_scratch_size", 0) or 0,
        unsupported="" if gcn else _explain_unsupported(metadata, params, mix.parameters - len(names)),
        code=replace(
            code_of(texts.ttir, texts.ttgir, names, gcn or texts.ptx),
            serialised=tuple(getattr(metadata, "serialised", ())),
        ),
        maps=maps,
    )


def code_of(ttir_text: str, ttgir_text: str, names: tuple[str, ...] = (), assembly: str = "") -> Code:
    """The facts of a kernel with these parameters that the hints and the static model use.

    Text in an unknown form gives fewer facts; it is no reason to refuse a binary.
    """
    try:
        code = ttgir.read(ttir.read(ttir_text, names), ttgir_text, names)
        reader = amdgcn if ".amdgcn_target" in assembly else blocks
        regions = reader.split_regions(assembly)
        return replace(code, blocks=blocks.read(regions, ttgir_text, names)) if assembly else code
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError):
        return Code()


def _explain_unsupported(metadata: Any, params: tuple[tuple[str, str], ...], spare: int) -> str:
    if getattr(metadata, "profile_scratch_size", 0):
        return "profiling scratch memory is not supplied"
    if getattr(metadata, "launch_cooperative_grid", False):
        return "cooperative launches are not made yet"
    if any(is_descriptor_kind(kind) for _, kind in params) and not 0 <= spare <= 2:
        return f"this version of Triton passes tensor descriptors in another way ({spare} unknown parameters)"
    return ""


def as_live_constant(value: Any) -> Any:
    """A constexpr's value for Triton: a DtypeFact becomes the `tl` dtype, anything else stays."""
    if isinstance(value, DtypeFact):
        import triton.language as tl

        long = _ELEMENTS.get(value.name, value.name)
        if long in vars(tl) or long == "bool":
            return getattr(tl, {"bool": "int1"}.get(long, long))
        return next(known for known in vars(tl).values() if isinstance(known, tl.dtype) and known.name == value.name)
    return value


_EXCERPT = re.compile(r"at \d+:\d+:\n(?:.*\n)?\s*([^\n]+)\n *\^(?:\n|$)", re.DOTALL)
"""Triton's place of an error: the lines above it, the line, and a mark below it."""


def _name_failed_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}{f' at `{frames[-1].line}`' if frames else ''}"


def _extract_message(error: BaseException | None, printed: str = "") -> str:
    """The part of a compiler's message or output that says what is wrong; at most 600 characters."""
    text = ""
    while error is not None:
        said = _EXCERPT.sub(r"at `\1`: ", str(error).strip()) or _name_failed_line(error)
        text += "" if said in text else f"\n{said}" if text else said
        text = text.removesuffix(": ")
        error = error.__cause__
    if "Block pointers have been removed" in text:  # triton/language/core.py of 3.9
        return f"tl.make_block_ptr: {explain_refusal('make_block_ptr')}"
    if "'int' object has no attribute" in text:
        text += (
            ": Triton passes an integer 1 as a constant; write tl.cast(...), or @triton.jit(do_not_specialize=[...])"
        )
    said = read_complaint(printed)
    return f"{text[-300:]}: {said[:300]}" if said and said not in text else text[-600:]
