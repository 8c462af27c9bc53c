"""The gate: one test for each thing refused, one for each tl function allowed, and properties over any text."""

import time

import fuzz_gate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelsearch.core.types import Word
from kernelsearch.kernel import language
from kernelsearch.verify.gate import check

HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n"
KERNEL = HEAD + "@triton.jit\ndef k(x_ptr, y_ptr, n, B: tl.constexpr):\n    x = tl.load(x_ptr)\n"


def with_line(line):
    """A good kernel with one more statement in its body."""
    return KERNEL + "".join(f"    {part}\n" for part in line.split("\n"))


ALLOWED_LINES = [
    "y = x if n > 1 else x * 2",
    "y = (x + 1) // 2 % 3 << 1",
    "y = -x & ~x",
    "y = not n",
    "y = x[:, None] + x[None, :]",
    "y = x.to(tl.float32)",
    "y = x.dtype.element_ty",
    "y = x.to(y_ptr.dtype.element_ty)",
    "y = tl.zeros([B, B], tl.float32)",
    "for i in range(0, n, B):\n    x += i",
    "for i in tl.range(0, n, B, num_stages=3):\n    x += i",
    "for i in tl.static_range(4):\n    x += i",
    "while x > 0:\n    x -= 1",
    "y = float('inf')",
    "y = float('NaN')",
    "y = min(n, 3) + max(n, 4)",
    "y = triton.cdiv(n, B)",
    "y = triton.next_power_of_2(B)",
    "y: tl.constexpr = B // 2",
    "y = libdevice.tanh(x)",
    "y = tl.math.exp(x)",
    "y = tl.extra.cuda.libdevice.tanh(x)",
    "a, b = tl.max(x, 0), n",
    "tl.static_assert(B > 1, 'any message here')",
    "return",
    "y = 2 ** 5",
    "if B == 'gelu':\n    x = x * 2",
    "y = tl.load(x_ptr, eviction_policy='evict_first', cache_modifier='.cg')",
    "tl.debug_barrier()",
    "y = x is None",
    "y = n > 1 and n < 3",
    "y = x.T",
    "y = tl.int32",
    "y = x.shape[0]",
    "y = tl.pointer_type(tl.float32)",
    "y = tl.maximum(x, x, propagate_nan=tl.PropagateNan.ALL)",
    "y = B ** -0.5",
    "y = (n, 1) + (B,)",
    "y = (n, 1)\ny += (B,)",
    "y: tl.constexpr = 2.0 ** (127 - 15)",
    "y: tl.constexpr = 2 ** (x.dtype.int_bitwidth - 1)",
    "y = -1 * 2 ** (B - 1)",
]
REFUSED_LINES = [
    "import os",
    "from os import system",
    "__import__('os')",
    "exec('x')",
    "eval('x')",
    "y = open('f')",
    "y = getattr(tl, 'load')",
    "y = tl.inline_asm_elementwise('', '', [x], tl.int32, True, 1)",
    "tl.device_print('x')",
    "tl.static_print(x)",
    "print(x)",
    "y = tl.extra.cuda.globaltimer()",
    "y = tl.extra.cuda.smid()",
    "y = tl.core.exp(x)",
    "y = tl.tensor(x, x)",
    "y = x.handle",
    "y = x.__class__",
    "y = k.fn",
    "k[(1,)](x)",
    "y = k.run(x)",
    "y = tl",
    "y = tl.load",
    "y = lambda: 0",
    "y = [i for i in range(3)]",
    "y = {1: 2}",
    "y = {1}",
    "y = f'{n}'",
    "y = 'evict_last'",
    "y = 'text'",
    "y = 'a' + 'b'",
    "y = [0] * 9",
    "y = b''",
    "y = 1j",
    "y = ...",
    "y = x @ x",
    "y = 10 ** n",
    "y = 2 ** 3 ** 9",
    "y = 2 ** 99",
    "y = 2 ** (B * 2 ** B)",
    "y = 9 ** 99",
    "n **= 9",
    "y = 0 < n < 3",
    "y = n in (1, 2)",
    "y = unknown",
    "y = unknown(x)",
    "x.y = 3",
    "x[0] = 3",
    "y = z = 3",
    "y = (z := 3)",
    "try:\n    pass\nexcept ValueError:\n    pass",
    "with x:\n    pass",
    "raise ValueError",
    "assert n",
    "global n",
    "nonlocal n",
    "del x",
    "class A:\n    pass",
    "def f():\n    pass",
    "yield x",
    "y = await_(x)",
    "match n:\n    case 1:\n        pass",
    "for i in x:\n    pass",
    "for i in (1, 2):\n    pass",
    "for a, b in range(3):\n    pass",
    "for i in range(3):\n    pass\nelse:\n    pass",
    "while n:\n    pass\nelse:\n    pass",
    "y = range(3)",
    "y = tl.load(*x)",
    "y = tl.load(**x)",
    "y = tl.load(x, secret=1)",
    "y = tl.load(x, _semantic=None)",
    "y = tl.exp(x, x, x)",
    "tl = 3",
    "triton = 3",
    "GRID = 3",
    "y = triton.runtime",
    "y = triton.testing.do_bench(x)",
    "y = triton.language.core.exp(x)",
    "y = float('1e3')",
    "y = float(x='inf')",
    "y = x.store_all()",
    "y: int = 3",
    "y: int",
    "y = 99999999999999999999999",
    "y = 'inf'.join(x)",
    "y = 'x'[0]",
    "y = (lambda: 0)()",
    "y = libdevice.clock()",
    "n",
    "x < n",
    "y = x.to(tl.float32, secret=1)",
    "break",
    "__y = 3",
    "y = type(x)",
    "y = tl.math.secret(x)",
    "y = k(x, x, x, B)",
    "y = tl.extra.cuda.convert_custom_float8_sm80(x)",
    "y = triton.jit(x)",
    "y = tl.semantic",
    "y = tl.static_range(3)",
    "y = tl.PropagateNan",
    "y = (0,) * 9",
    "y = [0] + [1]",
    "y = ((0,) + (1,)) * 'a'",
    "y = tl.PropagateNan.__class__",
    "y = x.PropagateNan.ALL",
    "y = 9 ** (50 + 49)",
    "y = 9 ** (8 * 8.5)",
    "y = 2 ** (64 / 0.5)",
    "y = 2.0 ** (2 ** 60)",
]
REFUSED_FILES = {
    "empty": "",
    "no function": HEAD,
    "numpy": "import numpy\n" + KERNEL,
    "star": "from triton.language import *\n" + KERNEL,
    "alias": KERNEL.replace("import triton\n", "import triton as os\n"),
    "two in one import": "import triton, os\n" + KERNEL,
    "host function": KERNEL + "\n\ndef f():\n    pass\n",
    "class": KERNEL + "\n\nclass A:\n    pass\n",
    "call": KERNEL + "\n\nprint(1)\n",
    "if": KERNEL + "\n\nif 1:\n    pass\n",
    "main": KERNEL + "\n\n__name__ = 3\n",
    "other decorator": KERNEL.replace("@triton.jit", "@triton.autotune"),
    "jit repr": KERNEL.replace("jit", "jit(repr=1)"),
    "two decorators": KERNEL.replace("@triton.jit", "@triton.jit\n@triton.jit"),
    "jit call": KERNEL.replace("jit", "jit()"),
    "jit debug": KERNEL.replace("@triton.jit", "@triton.jit(debug=True)"),
    "varargs": KERNEL.replace("n, B", "*n, B"),
    "kwargs": KERNEL.replace("B: tl.constexpr", "**B"),
    "default call": KERNEL.replace("n, B", "n=print(), B"),
    "annotation call": KERNEL.replace("n, B", "n: print(), B"),
    "returns": KERNEL.replace("):", ") -> print():"),
    "default word": KERNEL.replace("tl.constexpr)", "tl.constexpr = 'evict_last')"),
    "async": KERNEL.replace("def", "async def"),
    "global list": "A = [1]\n" + KERNEL,
    "global string": "A = 'x'\n" + KERNEL,
    "global call": "A = int(3)\n" + KERNEL,
    "range redefined": "range = 3\n" + KERNEL,
    "tl redefined": KERNEL + "\n\ntl = 3\n",
    "dunder": "__builtins__ = 3\n" + KERNEL,
    "global annotation": "A: print() = 3\n" + KERNEL,
    "twice": KERNEL + KERNEL.removeprefix(HEAD),
    "semicolon": "A = 1; B = 2\n" + KERNEL,
    "recursion": KERNEL + "    k(x_ptr, y_ptr, n, B)\n",
    "mutual recursion": KERNEL
    + "    j(x_ptr)\n\n@triton.jit\ndef j(x_ptr):\n    k(x_ptr, x_ptr, 1, 1)\n\n@triton.jit\ndef i(x):\n    pass\n",
    "grid code": "GRID = '__import__(1)'\n" + KERNEL,
    "grid call": "GRID = str(3)\n" + KERNEL,
    "grid attribute": "GRID = 'x.y'\n" + KERNEL,
    "grid twice": "GRID='1'\n" * 2 + KERNEL,
    "args code": "ARGS = {'n': 'exec(1)'}\n" + KERNEL,
    "space code": "SPACE = {'B': ['open(1)']}\n" + KERNEL,
    "config code": "CONFIG = {'B': 'open(1)'}\n" + KERNEL,
    "constraint code": "CONSTRAINTS = ['open(1)']\n" + KERNEL,
    "constraint text": "CONSTRAINTS = 'B > 1'\n" + KERNEL,
    "constraint number": "CONSTRAINTS = [1]\n" + KERNEL,
    "constraints by name": "CONSTRAINTS = {'k': 'B > 1'}\n" + KERNEL,
    "scratch dtype": "SCRATCH = {'s': ('object', '1')}\n" + KERNEL,
    "scratch code": "SCRATCH = {'s': ('float32', 'open(1)')}\n" + KERNEL,
    "scratch form": "SCRATCH = {'s': 3}\n" + KERNEL,
    "descriptor form": "DESCRIPTORS = {'s': ('x_ptr', '(1,)', '(1,)')}\n" + KERNEL,
    "descriptor code": "DESCRIPTORS = {'s': ('x_ptr', '(1,)', '(1,)', 'open(1)')}\n" + KERNEL,
    "descriptor else": "DESCRIPTORS = {'s': ('x_ptr', '(1,)', '(1,)', '(1,)', 'x')}\n" + KERNEL,
    "scratch fill": "SCRATCH = {'s': ('float32', '1', 7)}\n" + KERNEL,
    "launches": "LAUNCHES = ['missing']\n" + KERNEL,
    "deep expression": f"GRID = '{'-' * 300}1'\n" + KERNEL,
    "not python": KERNEL + "    x = = 3\n",
    "nul": KERNEL + "\0",
    "form feed": KERNEL + "    # \x0c\n",
    "line separator": KERNEL + "    # \u2028\n",
    "return alone": KERNEL + "    # \r    x = 1\n",
    "bidi": KERNEL + "    # \u202e\n",
    "surrogate": KERNEL + "    # \ud800\n",
    "cyrillic": KERNEL + "    \u0445 = 1\n",
    "full width": KERNEL + "    y = \uff54l.exp(x)\n",
    "large": KERNEL + "#" * 70_000,
    "long": KERNEL + "\n" * 4000,
    "nodes": KERNEL + "    x = n\n" * 2500 + "    x = (n,n,n,n,n,n,n,n,n)\n" * 400,
    "deep": KERNEL + f"    y = {'-' * 200}1\n",
    "parentheses": KERNEL + f"    y = {'(' * 250}1{')' * 250}\n",
    "very deep": KERNEL + f"    y = {'-' * 30_000}1\n",
    "digits": KERNEL + f"    y = {'9' * 5000}\n",
    "hex digits": KERNEL + f"    y = 0x{'f' * 5000}\n",
    "functions": HEAD + "".join(f"@triton.jit\ndef f{i}(x):\n    pass\n\n\n" for i in range(40)),
    "inverted quotes": '"""\n"""; A = 1\n' + KERNEL,
    "type alias": KERNEL + "\n\ntype X = int\n",
}


@pytest.mark.parametrize("line", ALLOWED_LINES)
def test_allowed_statement(line):
    verdict = check(with_line(line))
    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize("line", REFUSED_LINES)
def test_refused_statement(line):
    verdict = check(with_line(line))
    assert (verdict.word, verdict.stage) == (Word.STATIC, "gate")
    assert len(verdict.reason) > 10


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_refused_file(name):
    verdict = check(REFUSED_FILES[name])
    assert (verdict.word, verdict.stage) == (Word.STATIC, "gate")


def test_reason_has_the_line_and_what_is_allowed():
    verdict = check(with_line("y = tl.expp(x)"))
    assert verdict.detail["line"] == 8
    assert "line 8" in verdict.reason and "tl.exp2" in verdict.reason


@pytest.mark.parametrize("name", language.functions_of(language.installed_version()))
def test_tl_function_is_allowed_with_its_own_keywords_only(name):
    def call(keyword):
        if name in ("range", "static_range"):
            return with_line(f"for i in tl.{name}(4{keyword}):\n    x += i")
        return with_line(f"y = tl.{name}({keyword.removeprefix(', ')})")

    params = language.functions_of(language.installed_version())[name]
    assert check(call(f", {params[-1]}=1" if params else "")).accepted
    assert not check(call(", _semantic=1")).accepted
    assert not check(with_line(f"y = tl.{name}")).accepted


@pytest.mark.parametrize("line, said", [
    ("y = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (8,), (0,))",
     "tl.make_block_ptr is refused: Triton 3.9 has no block"),
    ("y = tl.advance(x, (8,))",
     "tl.advance is refused: Triton 3.9 has no block pointers; use tl.make_tensor_descriptor"),
    ("y = tl.load(x, boundary_check=(0,))", "tl.load has no argument 'boundary_check'"),
    ("y = tl.load(x, padding_option='zero')", "tl.load has no argument 'padding_option'"),
    ("tl.store(x, 1.0, boundary_check=(0,))", "tl.store has no argument 'boundary_check'"),
])  # fmt: skip
def test_block_pointers_are_allowed_where_triton_has_them(monkeypatch, line, said):
    for version, accepted in (((3, 6), True), ((3, 8), True), ((3, 9), False)):
        monkeypatch.setattr(language, "installed_version", lambda version=version: version)
        verdict = check(with_line(line))
        assert verdict.accepted is accepted and (said in verdict.reason) is not accepted, verdict.reason


@pytest.mark.parametrize(
    "spec",
    [
        'GRID = "(cdiv(n, B), num_sms, grid(0))"',
        'ARGS = {"n": "shape(x_ptr, 0)"}',
        'SCRATCH = {"y_ptr": ("float32", "(B, n)", 0)}',
        'INIT = {"y_ptr": 0}',
        'LAUNCHES = ["k"]',
        'SPACE = {"B": [1, "next_power_of_2(n)"]}',
        'CONFIG = {"B": 2, "num_warps": 4}',
        "A: tl.constexpr = 1.5",
        "A = tl.constexpr(-3)",
        "A = 7",
        '"""A docstring, also über."""',
    ],
)
def test_allowed_at_module_level(spec):
    text = spec + "\n" + KERNEL if spec.startswith('"""') else KERNEL + "\n\n" + spec + "\n"
    verdict = check(text)
    assert verdict.accepted, verdict.reason


def test_windows_line_ends_are_fine():
    assert check(KERNEL.replace("\n", "\r\n")).accepted


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_always_answers_on_any_text(text):
    assert check(text).word is Word.STATIC
    assert check(KERNEL + text).word in (Word.STATIC, Word.ACCEPT)


def test_fuzz_answers_within_a_second_and_smuggles_nothing():
    told = fuzz_gate.fuzz(1500, seed=time.time_ns() % 10**6)
    assert told["slowest_s"] < 1.0
    assert told["accept"] > 5 and told["reject-static"] > 1000


def test_fuzz_seeds_are_good_kernels():
    assert [check(text).reason for text in fuzz_gate.SEEDS] == ["", ""]


def test_a_tasks_own_kernel_has_any_names_and_no_other_top_level():
    """It ran as its author wrote it; what is read of a database later may still run nothing by itself."""
    text = with_line("α = x * __n").replace("n,", "__n,", 1)
    assert not check(text).accepted and check(text, own=True).accepted
    assert not check("import os\n" + text, own=True).accepted
