"""RMS norm of rows in bfloat16: 48 to 32,768 columns, up to 1.2 million rows."""

import torch
import torch.nn.functional as F


def reference(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-5)


def get_inputs(rows=2048, cols=4096):
    return [torch.randn(rows, cols, dtype=torch.bfloat16), torch.randn(cols, dtype=torch.bfloat16)]


WIDTHS = [1024, 2048, 4096, 8192, 16384, 32768, 48, 96, 127, 768, 1023, 1536, 2047, 3072, 5120, 6144]
SHAPES = [dict(rows=2048, cols=cols) for cols in WIDTHS]
SHAPES += [dict(rows=4096, cols=cols) for cols in (3584, 4096, 5120, 7168, 8192, 12288)]
SIZES = [(8192, 4096), (8192, 8192), (16384, 4096), (16384, 8192)]
SIZES += [(145956, 384), (380668, 512), (589824, 256), (1179648, 256)]
SHAPES += [dict(rows=rows, cols=cols) for rows, cols in SIZES]
TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=1, cols=129)]
