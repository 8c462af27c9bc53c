"""Layer norm of rows in bfloat16, with a weight and a bias."""

import torch
import torch.nn.functional as F


def reference(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)


def get_inputs(rows=8192, cols=4096, dtype=torch.bfloat16):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype), torch.randn(cols, dtype=dtype)]


SHAPES = [dict(rows=8192, cols=cols) for cols in (1024, 2048, 4096, 8192, 16384)]
TEST_SHAPES = [dict(rows=7, cols=1000), dict(rows=300, cols=64)]


def liger(x, weight, bias):
    from liger_kernel.transformers.functional import liger_layer_norm

    return liger_layer_norm(x, weight, bias, 1e-5)


BASELINES = {"liger": liger}
