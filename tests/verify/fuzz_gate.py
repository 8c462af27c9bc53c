"""Fuzzes the gate: `python tests/verify/fuzz_gate.py 100000 [seed]` prints its answers and the CPU time of the slowest.

Mutates good kernels (tokens spliced, swapped, duplicated, bytes flipped), and grafts in pieces that must never pass.
A text with a forbidden piece in code may only be accepted where the piece ended up in a comment or docstring:
accepted texts are parsed again and searched for any name outside the whitelist.
"""

from __future__ import annotations

import ast
import random
import sys
import time

from kernelsearch.core.types import Verdict, Word
from kernelsearch.verify.gate import check

SEEDS = (
    '''import triton
import triton.language as tl

GRID = "(cdiv(n_rows, ROWS),)"
SPACE = {"ROWS": [1, 2], "num_warps": [4, 8]}
CONFIG = {"ROWS": 2}
LOG2E: tl.constexpr = 1.4426950408889634


@triton.jit
def _combine(a, b):
    return tl.maximum(a, b)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, n_cols, BLOCK: tl.constexpr, ROWS: tl.constexpr = 1):
    """A docstring."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    m = -float("inf")
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * x_stride + start + cols, mask=start + cols < n_cols, other=-float("inf"))
        m = tl.maximum(m, tl.reduce(x.to(tl.float32), 0, _combine))
    e = tl.exp2((x - m) * LOG2E)  # a comment
    y = e / tl.sum(e, axis=0)
    if ROWS == 1:
        tl.store(y_ptr + row * x_stride + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
''',
    """import triton
import triton.language as tl
from triton.language.extra import libdevice
SCRATCH = {"partial_ptr": ("float32", "(4, n)", 0)}
LAUNCHES = ["one", "two"]


@triton.jit(do_not_specialize=["n"])
def one(x_ptr, partial_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(partial_ptr + i, libdevice.tanh(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


@triton.jit
def two(partial_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.arange(0, B)[None, :]
    acc, other = tl.zeros([B, B], dtype=tl.float32), 0
    while other < n:
        acc += tl.dot(acc, acc, input_precision="ieee")
        other += B
    tl.store(y_ptr + i, acc.T.sum(0) if n > 1 else acc.max(axis=0), mask=i < n)
""",
)
POISON = (
    "import os",
    "__import__('os')",
    "exec('1')",
    "eval('1')",
    "open('/etc/passwd')",
    "getattr(tl, 'lo' + 'ad')",
    "tl.inline_asm_elementwise('', '', [x], tl.float32, True, 1)",
    "tl.device_print('x')",
    "lambda: 0",
    "(y := 3)",
    "[z for z in range(3)]",
    "{1: 2}",
    "f'{x}'",
    "x.handle",
    "tl.core.builtin",
    "().__class__.__bases__",
    "yield x",
    "await x",
    "globals()",
    "type(x)",
    "tl.extra.cuda.globaltimer()",
    "x.__class__",
    "triton.runtime.driver",
    "softmax_kernel.fn",
    "'evict_last'",
    "*x",
    "**x",
    "...",
    "b''",
    "1j",
    "10 ** 10 ** 10",
    "@x",
    "ｔl.load(x)",
    "х",
    "class A: pass",
    "try: pass\nexcept: pass",
    "with open('x') as f: pass",
    "global x",
    "del x",
    "raise x",
    "assert x",
    "async def f(): pass",
    "print(x)",
    "tl.static_print(x)",
    "\x00",
    "\x0c",
    "\u2028",
    "\ud800",
    "\u202e",
    "\\\n",
    ";",
    "'''",
    '"""',
    "#",
    "-" * 3000 + "1",
    "(" * 150,
    "[" * 99 + "]" * 99,
    "9" * 5000,
    "0x" + "f" * 5000,
    "x" * 70000,
    "a" + "+a" * 3000,
    "\t",
    "\r",
    "`",
    "$",
    "match x:\n    case 1: pass",
    "type X = int",
    "nonlocal x",
    "if 1: pass",
)
FORBIDDEN_NAMES = frozenset(
    "os exec eval open getattr globals type print __import__ inline_asm_elementwise device_print static_print "
    "globaltimer handle core runtime fn __class__ __bases__".split()
)


def mutated(rng: random.Random) -> str:
    """One source: a seed with one to four changes."""
    text = rng.choice(SEEDS)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(8):
            case 0:
                text = text[:at] + rng.choice(POISON) + text[at:]
            case 1:
                lines = text.split("\n")
                line = rng.randrange(len(lines))
                lines.insert(line, " " * rng.choice((0, 4, 8)) + rng.choice(POISON))
                text = "\n".join(lines)
            case 2:
                end = min(len(text), at + rng.randint(1, 30))
                text = text[:at] + text[end:]
            case 3:
                start = rng.randrange(len(text) + 1)
                text = text[:at] + text[start : start + rng.randint(1, 60)] + text[at:]
            case 4:
                text = text[:at] + chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))) + text[at + 1 :]
            case 5:
                words = text.split(" ")
                a, b = rng.randrange(len(words)), rng.randrange(len(words))
                words[a], words[b] = words[b], words[a]
                text = " ".join(words)
            case 6:
                old = rng.choice(("tl.exp2(", "tl.load(", "tl.sum(", "(x - m)", "cols", "LOG2E", "x_ptr", "0"))
                text = text.replace(old, rng.choice(POISON) + ("(" if old.endswith("(") else ""), 1)
            case _:
                text = "".join(rng.sample(text.splitlines(keepends=True), k=text.count("\n")))
    return text


def smuggled(text: str) -> set[str]:
    """Forbidden names in the code of an accepted text."""
    tree = ast.parse(text.replace("\r\n", "\n"))
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    return {n for n in names if n in FORBIDDEN_NAMES or n.startswith("__")}


def timed_check(text: str) -> tuple[Verdict, float]:
    """The verdict and its CPU seconds."""
    start = time.thread_time()
    return check(text), time.thread_time() - start


def fuzz(count: int, seed: int = 0) -> dict[str, float]:
    """Counts of answers and the CPU seconds of the slowest. Raises AssertionError on a smuggled name."""
    rng = random.Random(seed)
    counts = {"accept": 0, "reject-static": 0, "slowest_s": 0.0}
    for number in range(count):
        text = mutated(rng)
        verdict, seconds = timed_check(text)
        if seconds > counts["slowest_s"]:  # a busy machine slows a single run, and not every one of three
            counts["slowest_s"] = max(counts["slowest_s"], min(seconds, *(timed_check(text)[1] for _ in range(2))))
        counts[verdict.word.value] += 1
        if verdict.word is Word.ACCEPT:
            names = smuggled(text)
            assert not names, f"source {number} of seed {seed} passed with {names}:\n{text}"
    return counts


if __name__ == "__main__":
    print(fuzz(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, int(sys.argv[2]) if len(sys.argv) > 2 else 0))
