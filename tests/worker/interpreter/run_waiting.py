"""The interpreter's side of `test_waiting.py`: `TRITON_INTERPRET=1 python run_waiting.py` prints JSON."""

import json

import torch
import triton
import triton.language as tl

from kernelsearch.evaluate.faults import EndlessLoop
from kernelsearch.worker.interpreter.addresses import Buffers
from kernelsearch.worker.interpreter.programs import order_programs, run_programs, watch
from kernelsearch.worker.interpreter.races import AccessLog


@triton.jit
def has_come(p):
    return tl.load(p, volatile=True) == 1


@triton.jit
def take(p):
    while tl.atomic_xchg(p, 1) == 1:
        pass


@triton.jit
def lock_that_is_held(p):
    tl.atomic_xchg(p, 1)
    take(p)


@triton.jit
def flag_of_another(p):
    while tl.atomic_cas(p + 1, 1, 1) != 1:
        pass
    tl.store(p, 7)


@triton.jit
def volatile_load_in_a_helper(p):
    while not has_come(p):
        pass
    tl.store(p, 7)


@triton.jit
def work_between_the_looks(p):
    for _ in range(2):
        seen = 0
        while (seen != 1) and (tl.program_id(0) >= 0):
            tl.store(p + 2 + tl.arange(0, 4), tl.arange(0, 4) * 0.5)
            seen = tl.atomic_add(p, 0)
    tl.store(p, 7)


@triton.jit
def no_other_program(p):
    spin = tl.program_id(0) + 5
    while spin > 0:
        spin = tl.maximum(spin, 1)
    tl.store(p, spin)


@triton.jit
def counts_in_memory(p):
    while tl.atomic_add(p, 1) < 40:
        pass


@triton.jit
def counts_in_a_name(p):
    left = 300
    while left > 0:
        left -= 3
    tl.store(p, 41 + left)


@triton.jit
def moves_a_block_pointer(p):
    block = tl.make_block_ptr(p, (1,), (1,), (-64,), (1,), (0,))
    left = 64
    while left > 0:
        block = tl.advance(block, (1,))
        left -= 1
    tl.store(block, tl.full([1], 41, tl.int32))


@triton.jit
def toggles_in_memory(p):
    while tl.load(p + 1) < 41:
        was = tl.load(p)
        tl.store(p, 1 - was)
        tl.store(p + 1, tl.load(p + 1) + was)
    tl.store(p, tl.load(p + 1))


@triton.jit
def same_names_but_a_longer_walk(p):
    at = 0
    while at < 15:
        at = tl.load(p + at).to(tl.int32)
    tl.store(p, 41)


@triton.jit
def stores_the_same_until_the_last(p):
    turn = 0
    while tl.load(p) == 0:
        tl.store(p + tl.arange(0, 16), tl.arange(0, 16) * 0, mask=turn < 39)
        tl.store(p, (turn >= 39) * 41)
        turn += 1


KERNELS = {name: k for name, k in globals().items() if hasattr(k, "rewrite") and name not in ("has_come", "take")}


def run(kernel, start):
    memory = start.clone()
    buffers = Buffers({"p": memory})
    try:
        with watch(buffers, AccessLog({"p": memory})):
            run_programs(kernel, {"p": memory}, frozenset(), (1, 1, 1), order_programs((1, 1, 1), "forward"), buffers)
    except Exception as error:
        while not isinstance(error, EndlessLoop) and error.__cause__ is not None:
            error = error.__cause__
        return f"{type(error).__name__}: {error}"
    return memory[0].item()


if __name__ == "__main__":
    start = torch.zeros(16, dtype=torch.int32)
    walk = torch.arange(1, 17, dtype=torch.int32)
    print(json.dumps({n: run(k, walk if "walk" in n else start) for n, k in KERNELS.items()}))
