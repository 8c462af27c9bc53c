"""The mean loss of a language model's logits in bfloat16.

Liger computes the gradient in its forward pass, so that only the sum of both passes compares.
"""

import torch
import torch.nn.functional as F


def reference(logits, labels):
    return F.cross_entropy(logits, labels)


def get_inputs(tokens=4096, vocabulary=32000):
    return [torch.randn(tokens, vocabulary, dtype=torch.bfloat16), torch.randint(0, vocabulary, (tokens,))]


SHAPES = [dict(tokens=4096, vocabulary=vocabulary) for vocabulary in (32000, 50304, 102400, 128256, 151936)]
TEST_SHAPES = [dict(tokens=7, vocabulary=1000), dict(tokens=2, vocabulary=129)]
DOMAIN = {"logits": "finite"}


def liger(logits, labels):
    from liger_kernel.transformers.functional import liger_cross_entropy

    return liger_cross_entropy(logits, labels)


BASELINES = {"liger": liger}
