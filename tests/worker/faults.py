"""Faults of workers, one function each, with their verdicts: `python tests/worker/faults.py [--gpu]` prints a table.

A fault is inflicted on an open Bench, then an honest kernel is judged by the same pools. Some are candidates that the
gate passes; a compiler that crashes, hangs or finds the disk full is made by code that the gate would refuse, handed
in behind it; some are done to a worker from outside.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation, rejection
from kernelsearch.trial import bench as benches
from kernelsearch.trial.bench import Bench
from kernelsearch.verify import gate
from kernelsearch.worker.isolation import sandbox

RUN_LIMIT_S = 2.0
COMPILE_LIMIT_S = 2.0
MEMORY_LIMIT = 1 << 30
CONFIG = {"num_warps": 4}

TASK = """
import torch
import triton
import triton.language as tl


def reference(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=64, cols=256, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=64, cols=256)]
TEST_SHAPES = [dict(rows=3, cols=100)]


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    numerator = tl.exp(x)
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1], BLOCK=block, num_warps=4)
    return y
"""

ENDLESS = "while n_cols > 0:\n        n_cols = tl.maximum(n_cols, 1)\n    y = y + n_cols"
"""Its result is used: Triton drops a loop whose result is not."""

_COUNT = iter(range(1, 1_000_000))


def make_honest(bench: Bench) -> Kernel:
    """A right kernel that no worker has seen: its mask is written in another way each time."""
    text = bench.facts.seed.replace("cols < n_cols", f"cols + {(n := next(_COUNT))} < n_cols + {n}")
    return Kernel.parse(text)


def add_line(bench: Bench, line: str) -> Kernel:
    """The seed with one more line in front of its store."""
    text = bench.facts.seed
    return Kernel.parse(text.replace("    tl.store(", f"    {line}\n    tl.store("))


def add_code(bench: Bench, code: str) -> Kernel:
    """An honest kernel in a file that also runs some Python, which the gate would refuse."""
    kernel = make_honest(bench)
    return kernel.with_changes(constants=(*kernel.constants, code))


# ---------------------------------------------------------------- faults


def endless_loop(bench: Bench) -> Verdict:
    return evaluate(bench, add_line(bench, ENDLESS), RUN_LIMIT_S)


def spin_wait(bench: Bench) -> Verdict:
    """Program 0 waits for what program 1 stores: with one program at a time it waits for ever."""
    wait = (
        "there = tl.load(y_ptr + y_stride)\n    while (row == 0) & (there != there):\n"
        "        there = tl.load(y_ptr + y_stride)"
    )
    return evaluate(bench, add_line(bench, wait), RUN_LIMIT_S)


def wild_write(bench: Bench) -> Verdict:
    return evaluate(bench, add_line(bench, "tl.store(y_ptr + 1099511627776 + cols, y)"))


def wild_read(bench: Bench) -> Verdict:
    return evaluate(bench, add_line(bench, "y = y + 0.0 * tl.load(x_ptr - 1099511627776 + cols)"))


def eats_memory(bench: Bench) -> Verdict:
    """A Python integer of 2³⁹ bits: 64 GiB. The gate refuses one that it can work out; it does not know the tile."""
    return evaluate(bench, add_line(bench, "y = y + (1 << (1 << 39) * (y.numel // y.numel)) * 0.0"))


def hoards_memory(bench: Bench) -> Verdict:
    """Takes memory page by page until it is stopped; each piece is smaller than any limit."""
    with without_gate():
        return evaluate(bench, add_code(bench, only_evaluating("HOARD = [b'x' * (1 << 26) for _ in range(1 << 20)]")))


def scratch_beyond_memory(bench: Bench) -> Verdict:
    """Asks for three scratch buffers of 64 GiB, each as large as a buffer may be."""
    names = ("s_ptr", "t_ptr", "u_ptr")
    text = bench.facts.seed.replace("n_cols, BLOCK: tl.constexpr", f"n_cols, {', '.join(names)}, BLOCK: tl.constexpr")
    return evaluate(bench, Kernel.parse(text).with_changes(scratch=dict.fromkeys(names, ("float64", f"({1 << 33},)"))))


def killed_at_work(bench: Bench) -> Verdict:
    """SIGKILL from outside, once, in the middle of an honest candidate's job: it is asked again, and must not pay."""
    threading.Timer(0.5, lambda: kill_all(bench.evaluators)).start()
    with without_gate():
        return evaluate(bench, add_code(bench, only_evaluating("__import__('time').sleep(1.5)")))


def killed_each_time(bench: Bench) -> Verdict:
    done = threading.Event()

    def kill_again() -> None:
        while not done.wait(0.5):
            kill_all(bench.evaluators)

    killer = threading.Thread(target=kill_again)
    killer.start()
    try:
        with without_gate():
            return evaluate(bench, add_code(bench, only_evaluating("__import__('time').sleep(3.0)")))
    finally:
        done.set()
        killer.join()


def nursery_killed(bench: Bench) -> Verdict:
    """The processes that fork the workers are killed: their workers end, and nobody should notice."""
    for pool in (bench.evaluators, bench.runners, bench.compilers):
        if pool is not None and pool.source.nursery_pid is not None:
            if pool.source.trunk is not None:
                pool.source.trunk.process.kill()
            os.kill(pool.source.nursery_pid, signal.SIGKILL)
    kill_all(bench.compilers)
    return evaluate(bench, make_honest(bench))


def killed_at_rest(bench: Bench) -> Verdict:
    """SIGKILL from outside between two jobs: nobody should notice."""
    kill_all(bench.evaluators or bench.runners)
    kill_all(bench.compilers)
    return evaluate(bench, make_honest(bench))


def killed_on_the_gpu(bench: Bench) -> Verdict:
    """SIGKILL from outside to the run worker while an endless kernel runs: it is asked again, and ends at its limit."""
    killer = threading.Timer(1.0, lambda: kill_all(bench.runners))
    killer.start()
    verdict = evaluate(bench, add_line(bench, ENDLESS), RUN_LIMIT_S)
    killer.join()
    return verdict


def misaligned_address(bench: Bench) -> Verdict:
    """Promises an alignment that is not there, so that a wide load starts in the middle of a word."""
    off = "tl.max_contiguous(tl.multiple_of(cols + 1, 16), 16)"
    return evaluate(bench, add_line(bench, f"y = y + 0.0 * tl.load(x_ptr + {off})"))


def compiler_crash(bench: Bench) -> Verdict:
    with without_gate():
        return evaluate(bench, add_code(bench, only_compiling("__import__('os').abort()")))


def compiler_hang(bench: Bench) -> Verdict:
    with without_gate():
        return evaluate(bench, add_code(bench, only_compiling("any(iter(int, 1))")))


def compiler_program_hang(bench: Bench) -> Verdict:
    """A program that the compiler started never ends, and takes no processor time."""
    with without_gate():
        return evaluate(bench, add_code(bench, only_compiling("__import__('subprocess').run(['sleep', '1000000'])")))


def disk_full(bench: Bench) -> Verdict:
    """The compile worker may write 4 KiB to a file from now on: less than any cubin."""
    full = "(r := __import__('resource')).setrlimit(r.RLIMIT_FSIZE, (4096, -1))"
    with without_gate():
        return evaluate(bench, add_code(bench, only_compiling(full)))


def only_compiling(code: str) -> str:
    return f"if 'torch' not in __import__('sys').modules: {code}"


def only_evaluating(code: str) -> str:
    return f"if 'torch' in __import__('sys').modules: {code}"


@dataclass(frozen=True)
class Fault:
    """What is done, the verdict that it must get, and the wall-clock limit inside its time (0: none)."""

    inflict: Callable[[Bench], Verdict]
    word: Word
    limit_s: float = 0.0

    @property
    def name(self) -> str:
        return self.inflict.__name__


COMPILING = (
    Fault(compiler_crash, Word.COMPILE),
    Fault(compiler_hang, Word.TIMEOUT, COMPILE_LIMIT_S),
    Fault(compiler_program_hang, Word.TIMEOUT, COMPILE_LIMIT_S),
    Fault(disk_full, Word.COMPILE),
)
WITHOUT_GPU = (
    Fault(endless_loop, Word.TIMEOUT, RUN_LIMIT_S),
    Fault(spin_wait, Word.TIMEOUT, RUN_LIMIT_S),
    Fault(wild_write, Word.MEMORY),
    Fault(wild_read, Word.MEMORY),
    Fault(eats_memory, Word.COMPILE),  # the evaluator runs out of memory; the compiler, asked then, says what is wrong
    Fault(hoards_memory, Word.CRASH),
    Fault(scratch_beyond_memory, Word.CRASH),
    Fault(killed_at_work, Word.ACCEPT),
    Fault(killed_each_time, Word.CRASH),
    Fault(killed_at_rest, Word.ACCEPT),
    Fault(nursery_killed, Word.ACCEPT),
    *COMPILING,
)
WITH_GPU = (
    Fault(endless_loop, Word.TIMEOUT, RUN_LIMIT_S),
    Fault(wild_write, Word.CRASH),
    Fault(wild_read, Word.CRASH),
    Fault(misaligned_address, Word.CRASH),
    Fault(scratch_beyond_memory, Word.CRASH),
    Fault(killed_on_the_gpu, Word.TIMEOUT, RUN_LIMIT_S),
    Fault(killed_at_rest, Word.ACCEPT),
    Fault(nursery_killed, Word.ACCEPT),
    *COMPILING,
)


# ---------------------------------------------------------------- what happens then


@dataclass(frozen=True)
class Aftermath:
    """A fault's verdict with its seconds, and those of the honest kernel after it."""

    verdict: Verdict
    seconds: float
    after: Verdict
    after_seconds: float


def inflict_and_recover(bench: Bench, fault: Fault) -> Aftermath:
    start = time.perf_counter()
    verdict = fault.inflict(bench)
    middle = time.perf_counter()
    after = evaluate(bench, make_honest(bench))
    return Aftermath(verdict, middle - start, after, time.perf_counter() - middle)


def evaluate(bench: Bench, kernel: Kernel, limit_s: float = 30.0) -> Verdict:
    """The verdict of a whole trial: gate, compile, judge, time or estimate."""
    return Evaluation(bench, limit_s=limit_s).evaluate(kernel, CONFIG).verdict


def kill_all(pool) -> None:
    """SIGKILL to every worker of a pool, as from outside."""
    for worker in {*pool.free, *pool._leased} - {None}:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)


@contextmanager
def without_gate():
    """The gate lets everything pass."""
    real, gate.check = gate.check, lambda text: Verdict(Word.ACCEPT, "gate")
    try:
        yield
    finally:
        gate.check = real


def _limit_memory(role: str) -> int | None:
    """A small limit for the workers that run candidates on the CPU; a CUDA context alone is larger."""
    return MEMORY_LIMIT if role in ("compile", "evaluate") else None


@contextmanager
def open_bench(folder: Path):
    """A Bench on the small task, with short limits."""
    path = folder / "softmax.py"
    path.write_text(TASK)
    real = benches.COMPILE_LIMIT_S, sandbox.resident_limit, rejection.ALLOWED_BYTES
    benches.COMPILE_LIMIT_S, sandbox.resident_limit = COMPILE_LIMIT_S, _limit_memory
    rejection.ALLOWED_BYTES = MEMORY_LIMIT
    try:
        with Bench.open(path) as bench:
            evaluate(bench, make_honest(bench))  # every pool has a worker
            yield bench
    finally:
        benches.COMPILE_LIMIT_S, sandbox.resident_limit, rejection.ALLOWED_BYTES = real


def main(faults: tuple[Fault, ...]) -> int:
    """Prints the table as Markdown; exits with 1 when a verdict is wrong or an honest kernel is refused."""
    print(
        "| fault | verdict | s | of these its limit | next, honest kernel | s | reason |\n|---|---|---|---|---|---|---|"
    )
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, open_bench(Path(folder)) as bench:
        start = time.perf_counter()
        usual = evaluate(bench, make_honest(bench))
        print(f"| (none) | {usual.word.value} | {time.perf_counter() - start:.2f} | | | | |")
        for fault in faults:
            aftermath = inflict_and_recover(bench, fault)
            wrong += aftermath.verdict.word is not fault.word or not aftermath.after.accepted
            reason = " ".join(aftermath.verdict.reason.split())[:100].replace("|", "\\|")
            print(
                f"| {fault.name.replace('_', ' ')} | {aftermath.verdict.word.value} | {aftermath.seconds:.2f} | "
                f"{fault.limit_s or '–'} | {aftermath.after.word.value} | {aftermath.after_seconds:.2f} | {reason} |",
                flush=True,
            )  # fmt: skip
        print("\nLayers of the worker that ran the candidates:", ", ".join(usual.referee.layers))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(WITH_GPU if "--gpu" in sys.argv else WITHOUT_GPU))
