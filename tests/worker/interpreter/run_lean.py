"""Kernels run with and without the shortened interpreter, each outcome as bytes: one process, one JSON object."""

import hashlib
import json

import torch
import triton
import triton.language as tl
from triton.language import core
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.worker.interpreter import shortcuts
from kernelsearch.worker.interpreter.programs import run_programs


@triton.jit
def helper(a, b):
    return a * 2 + b, tl.maximum(a, b)


@triton.jit
def mixed(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < n
    x = tl.load(x_ptr + at, mask=ok, other=-1.5)
    half, brain, whole = x.to(tl.float16), x.to(tl.bfloat16), (x * 7).to(tl.int32)
    once, twice = helper(half, brain.to(tl.float16))
    tile = tl.reshape(x, (4, BLOCK // 4))
    rows = tl.sum(tile, axis=1)
    wide = tl.broadcast_to(rows[:, None], (4, BLOCK // 4)) + tl.trans(tl.reshape(x, (BLOCK // 4, 4)))
    product = tl.dot(tile, tl.trans(tile), input_precision="ieee")
    random = tl.rand(7, at)
    top = tl.max(x, axis=0) + tl.argmax(x, axis=0) + tl.sum(tl.cumsum(whole, axis=0) % 5)
    small = (at & 0xFF).to(tl.uint8)
    y = tl.reshape(wide, (BLOCK,)) + once + twice + random + top + tl.sum(product) + tl.cdiv(whole, 3) + small
    tl.store(y_ptr + at, y, mask=ok)
    tl.atomic_add(i_ptr + (at % 4), whole, mask=ok)


@triton.jit
def spreads(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    at, row = tl.arange(0, 8), tl.arange(0, 4)[:, None]
    scale, whole = tl.load(x_ptr), tl.load(i_ptr + 1)
    tile = tl.load(x_ptr + row * 8 + at[None, :], mask=(row < 3) & (at < n - 94)[None, :], other=0.25)
    for _ in range(2):
        small, large = tl.minimum(tile, scale), tl.clamp(tile, scale - 1, 1.0)
        tile = tl.where(tile > scale, tile * scale - row, tile / 3 + at) + tl.fma(small, scale, large)
        tile = tl.where((at == 3)[None, :] & (whole == 0), tile % 7, tl.math.div_rn(tile, 3.0)) + (scale > 0) * tile
        whole += tl.sum((row << 2) ^ (at & whole)) // 3 - (True + whole)
    kept = tl.where(scale > 5, scale, 2.0)
    tl.store(y_ptr + row * 8 + at, tile + kept)
    tl.store(y_ptr + 40 + at + whole * 0, scale)
    tl.store(i_ptr + at, whole, mask=(at < 4) & (whole != 77))


@triton.jit
def wraps(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    state = at * 1664525 + 1013904223
    for _ in range(n % 7):
        state = state * 1664525 + 1013904223 - at
    tl.store(y_ptr + at, state.to(tl.float32), mask=at < n)
    tl.store(i_ptr + (at % 4), state, mask=at < 4)


@triton.jit
def described(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, (n // 8, 8), (8, 1), (4, 8))
    target = tl.make_tensor_descriptor(y_ptr, (n // 8, 8), (8, 1), (4, 8))
    target.store([4, 0], tl.exp(source.load([8, 0])) / 3)


@triton.jit
def blocked(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, 4), 1.0)
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
    tl.store(i_ptr + tl.arange(0, 4), tl.sum(tl.load(block, boundary_check=(0,), padding_option="zero")).to(tl.int32))


@triton.jit
def shapes_differ(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, 8), tl.arange(0, 4) + tl.arange(0, 8))


@triton.jit
def not_a_power(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, 4), tl.sum(tl.zeros((3, 4), tl.float32), axis=0))


@triton.jit
def float_pointer(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr + 1.5, 0.0)


@triton.jit
def unsigned_and_negative(x_ptr, y_ptr, i_ptr, n, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, 4), tl.arange(0, 4).to(tl.uint32) + (-1))


def outcome(kernel) -> str:
    """A digest of all that the kernel wrote, or what it raised."""
    torch.manual_seed(3)
    x, y, i = torch.randn(100), torch.zeros(100), torch.zeros(4, dtype=torch.int32)
    args = {"x_ptr": x, "y_ptr": y, "i_ptr": i, "n": 100, "BLOCK": 64}
    try:
        run_programs(kernel, args, frozenset({"BLOCK"}), (2, 1, 1), [(0, 0, 0), (1, 0, 0)])
    except Exception as error:  # what is raised is the outcome
        return f"{type(error).__name__}: {error}"
    assert not torch.equal(y, torch.zeros(100)), "nothing was written"
    return hashlib.sha256(y.numpy().tobytes() + i.numpy().tobytes()).hexdigest()


def uninstall() -> None:
    """Puts Triton's own functions back."""
    builder.options = interpreter.InterpreterOptions()
    interpreter._get_np_dtype, interpreter._patch_lang = shortcuts._plain_np_dtype, shortcuts._plain_patch
    core._unwrap_if_constexpr, core.dtype.__eq__ = shortcuts._plain_unwrap, shortcuts._plain_eq
    shortcuts.TritonSemantic.broadcast_impl_value = shortcuts._plain_broadcast
    shortcuts.TritonSemantic.binary_op_type_checking_impl = shortcuts._plain_match
    core.block_type.__init__, core.tensor.__init__ = shortcuts._plain_block_type, shortcuts._plain_tensor


KERNELS = (mixed, spreads, wraps, described, blocked, shapes_differ, not_a_power, float_pointer, unsigned_and_negative)
short = {k.__name__: [outcome(k), outcome(k)] for k in KERNELS}
uninstall()
long = {k.__name__: [outcome(k), outcome(k)] for k in KERNELS}
shortcuts.install()
print(json.dumps({"short": short, "long": long, "after": {k.__name__: [outcome(k)] * 2 for k in KERNELS}}))
