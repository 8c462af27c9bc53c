"""A task that is accepted, its parts to spoil, and how a command refuses what it is given."""

import re
import textwrap

GOOD = textwrap.dedent("""
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2, mask=i < n)

    def double(x):
        y = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128, num_warps=4)
        return y

    def reference(x): return x * 2

    def get_inputs(rows=8, cols=96): return [torch.randn(rows, cols)]

    SHAPES = [dict(rows=8)]
    TEST_SHAPES = [dict(rows=3, cols=50)]
    SPACE = {"num_warps": [1, 2, 4]}
""")
KERNEL = GOOD[GOOD.index("@triton.jit") : GOOD.index("def double(x)")]
REFERENCE = "def reference(x): return x * 2\n"
INPUTS = "def get_inputs(rows=8, cols=96): return [torch.randn(rows, cols)]\n"


def one_line(done, said):
    lines = [line for line in done.err.splitlines() if line.strip() and not line.startswith("note:")]
    assert done.code == 2, (done.code, done.err, done.out)
    assert done.out == ""
    message = "\n".join(lines)
    assert "Traceback" not in message and not message.startswith("Usage:\n")
    assert re.search(said, message, re.DOTALL | re.IGNORECASE), message
    return lines
