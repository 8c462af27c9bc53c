"""SwiGLU, silu(a) * b, in bfloat16."""

import torch
import torch.nn.functional as F


def reference(a, b):
    return F.silu(a) * b


def get_inputs(rows=4096, cols=14336, dtype=torch.bfloat16):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=rows, cols=14336) for rows in (1024, 2048, 4096, 8192, 16384)]
TEST_SHAPES = [dict(rows=7, cols=1000), dict(rows=3, cols=64)]


def liger(a, b):
    from liger_kernel.transformers.functional import liger_swiglu

    return liger_swiglu(a, b)


BASELINES = {"liger": liger}
