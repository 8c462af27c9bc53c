"""Kernels in Gluon: read, gated and compiled without a GPU, judged on one only (`tests/gpu/test_gluon_gpu.py`)."""

import inspect
from pathlib import Path

import pytest
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from kernelsearch.core.types import Word
from kernelsearch.kernel import gluon
from kernelsearch.kernel.dialects import find_dialect
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import EDITS, NotApplicable
from kernelsearch.propose.grammar.whole_kernel import find_file
from kernelsearch.tasks import shipped
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.verify import gate

TEXT = Path(__file__).with_name("matmul_kernel.py").read_text()
RENAMED = {"mbarrier.expect": {"bytes", "bytes_per_cta"}}
"""Parameters that Triton 3.6 and 3.7 call differently."""


def find(name):
    place, _, member = name.rpartition(".")
    return getattr({"gl": gl, "": hopper}.get(place) or getattr(hopper, place), member)


@pytest.mark.parametrize("name", gluon.FUNCTIONS)
def test_a_listed_function_has_these_parameters(name):
    function = find(name)
    there = inspect.signature(getattr(function, "fn", function)).parameters
    missing = set(gluon.FUNCTIONS[name]) - set(there) - RENAMED.get(name, set())
    assert not missing and (name not in RENAMED or RENAMED[name] & set(there))


def test_nothing_that_reaches_the_host_is_listed():
    known = {name.rpartition(".")[2] for name in gluon.FUNCTIONS}
    assert not known & {"inline_asm_elementwise", "device_print", "static_print", "to_tensor", "tensor", "amd", "extra"}
    assert find_dialect("gluon").reserved >= {"gl", "gluon", "triton", "mbarrier", "tma", "warpgroup_mma"}


def test_a_kernel_file_is_read_and_written_with_its_language():
    kernel = Kernel.parse(TEXT)
    again = Kernel.parse(kernel.render())
    assert kernel.language == again.language == "gluon" and kernel.digest == again.digest
    assert gate.check(TEXT).accepted and gate.check(kernel.render()).accepted
    assert Kernel.parse(TEXT.replace('LANGUAGE = "gluon"\n', "")).digest != kernel.digest
    assert find_file(f"Like this:\n```python\n{TEXT}```\nthat is all") == TEXT
    constant = Kernel.parse('LANGUAGE = "gluon"\nN = 4\n\n\n@gluon.jit\ndef k(x_ptr):\n    gl.store(x_ptr, N)\n')
    assert "N = gl.constexpr(4)" in constant.code


REFUSED = {
    "another language": ('"gluon"', '"cuda"', "LANGUAGE must be 'triton' or 'gluon'"),
    "no language": ('LANGUAGE = "gluon"', "", "`from triton.experimental import gluon` is refused"),
    "Triton's decorator": ("@gluon.jit\ndef place", "@triton.jit\ndef place", "@gluon.jit"),
    "another module": ("hopper import warpgroup_mma,", "blackwell import tcgen05_mma,", "is refused; allowed are"),
    "a name of its own": ("import warpgroup_mma,", "import warpgroup_mma as gl,", "is refused; allowed are"),
    "a name that is not known": ("import warpgroup_mma,", "import async_copy,", "is refused; allowed are"),
    "a module as a value": ("bar = full.index(s)", "bar = mbarrier", "mbarrier is only used as mbarrier.NAME"),
    "a function as a value": ("bar = full.index(s)", "bar = warpgroup_mma", "warpgroup_mma is only used as"),
    "inline assembly": ("gl.minimum(num_m", "gl.inline_asm_elementwise(num_m", "gl.inline_asm_elementwise is refused"),
    "Triton's functions": ("gl.minimum(num_m", "tl.minimum(num_m", "the method .minimum(...) is refused"),
    "a parameter like a module": ("GROUP: gl.constexpr):\n    first", "tma):\n    first", "'tma' may not be redefined"),
    "the compiler's insides": (".layout)", ".handle)", "the attribute .handle is refused"),
    "another barrier": ("mbarrier.wait(full", "mbarrier.builtin(full", "mbarrier.builtin is refused"),
    "an unknown argument": ("is_async=True", "is_sync=True", "warpgroup_mma has no argument 'is_sync'"),
    "a loop over something else": ("gl.static_range(STAGES)", "gl.warp_specialize(STAGES)", "a loop runs over"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_gate_refuses(case):
    old, new, said = REFUSED[case]
    assert old in TEXT
    verdict = gate.check(TEXT.replace(old, new, 1))
    assert verdict.word is Word.STATIC and said in verdict.reason, verdict.reason


def test_it_is_compiled_for_hopper_and_never_judged_without_a_gpu():
    with Bench.open(shipped.path("matmul"), "h200") as bench:
        evaluation = Evaluation(bench, (bench.facts.shapes[0].key,))
        kernel = Kernel.parse(TEXT)
        config = {**bench.facts.config, **kernel.config}
        shapes = tuple(s.key for s in (*bench.facts.shapes[:1], *bench.facts.test_shapes))
        binaries = evaluation.bind(kernel, config).compile(shapes).values()
        assert {b.num_warps for b in binaries} == {4, 12}  # specialised, and the plain way where no tile fits
        best = max(binaries, key=lambda b: b.num_warps)
        assert best.mix["wgmma"] and best.mix["tma"] and len(best.maps) == 3 and best.stack_bytes == 0
        verdict = evaluation.verify(kernel, config)
        assert not verdict.accepted and "compiles, and is not judged" in verdict.reason
        assert evaluation.evaluate(kernel, config).measurement is None
        assert all(isinstance(edit.apply(kernel, bench.facts), NotApplicable) for edit in EDITS)
        wrong = Kernel.parse(
            TEXT.replace("gl.zeros([BM // 2, BN], gl.float32, whole)", "gl.zeros([BM // 2, 24], gl.float32, whole)")
        )
        assert evaluation.verify(wrong, config).word is Word.COMPILE
