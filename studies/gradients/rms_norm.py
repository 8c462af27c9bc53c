"""RMS norm of rows in bfloat16, with a weight."""

import torch
import torch.nn.functional as F


def reference(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, eps=1e-6)


def get_inputs(rows=8192, cols=4096, dtype=torch.bfloat16):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)]


SHAPES = [dict(rows=8192, cols=cols) for cols in (1024, 2048, 4096, 8192, 16384)]
TEST_SHAPES = [dict(rows=7, cols=1000), dict(rows=300, cols=64)]


def liger(x, weight):
    from liger_kernel.transformers.functional import liger_rms_norm

    return liger_rms_norm(x, weight, 1e-6, in_place=False)  # else its gradient destroys that of its result


BASELINES = {"liger": liger}
