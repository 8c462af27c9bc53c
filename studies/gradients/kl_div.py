"""The Kullback-Leibler divergence of a student's log-probabilities from a teacher's probabilities, over the batch."""

import torch
import torch.nn.functional as F


def reference(student, teacher):
    return F.kl_div(student, teacher, reduction="batchmean")


def get_inputs(tokens=4096, vocabulary=32000):
    return [torch.randn(tokens, vocabulary).log_softmax(-1), torch.randn(tokens, vocabulary).softmax(-1)]


SHAPES = [dict(tokens=2048, vocabulary=vocabulary) for vocabulary in (4096, 8192, 16384, 32000, 65536)]
TEST_SHAPES = [dict(tokens=7, vocabulary=1000), dict(tokens=2, vocabulary=129)]
DOMAIN = {"student": "finite", "teacher": "unit"}


def liger(student, teacher):
    from liger_kernel.transformers.functional import liger_kl_div

    return liger_kl_div(student, teacher, reduction="batchmean")


BASELINES = {"liger": liger}
