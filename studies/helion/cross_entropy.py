"""The mean loss of a language model's logits in bfloat16, for vocabularies of 32,000 to 256,000."""

import torch
import torch.nn.functional as F


def reference(logits, labels):
    return F.cross_entropy(logits, labels)


def get_inputs(tokens=4096, vocabulary=32000):
    return [torch.randn(tokens, vocabulary, dtype=torch.bfloat16), torch.randint(0, vocabulary, (tokens,))]


SIZES = {
    32000: (2048, 4096, 8192), 128000: (8192, 16384, 32768), 128256: (2048, 4096, 8192, 16384),
    129280: (2048, 4096, 8192), 151936: (2048, 4096, 8192), 152064: (2048, 4096, 8192), 256000: (1024, 2048),
}  # fmt: skip
SHAPES = [dict(tokens=tokens, vocabulary=vocabulary) for vocabulary, rows in SIZES.items() for tokens in rows]
TEST_SHAPES = [dict(tokens=7, vocabulary=1000), dict(tokens=1, vocabulary=129)]
DOMAIN = {"logits": "finite"}
