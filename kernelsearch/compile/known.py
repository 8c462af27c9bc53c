"""A kernel that compilers and GPUs are tried with."""

from kernelsearch.kernel.launch import Specialisation

PROOF_BLOCK = 256
KNOWN = """
import triton
import triton.language as tl


@triton.jit
def known_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, 3.0 * x + tl.sum(x, axis=0), mask=at < n)
"""
"""A kernel that every GPU computes rightly, in whole numbers: each element three times, and the sum of its block."""
KNOWN_SPEC = Specialisation(
    "known_kernel",
    (("x_ptr", "*fp32"), ("y_ptr", "*fp32"), ("n", "i32"), ("BLOCK", "constexpr")),
    (("BLOCK", PROOF_BLOCK),),
    ("x_ptr", "y_ptr"),
    (("num_warps", 4),),
)
