"""A byte-level BPE of 131,072 tokens, learned from the Python sources of this environment: no download."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SIZE = 131_072
BYTES = 60_000_000
"""Text that is read: more changes nothing that is measured here."""


def sources() -> Iterator[str]:
    """Python files of the standard library and of the installed packages, up to BYTES in all."""
    left = BYTES
    for folder in (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]):
        for path in sorted(Path(folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8", errors="ignore")
            left -= len(text)
            if left < 0:
                return
            yield text


def learn(path: Path) -> None:
    """Writes `tokenizer.json`; takes some minutes of one core."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    bpe.train_from_iterator(sources(), trainer)
    bpe.save(str(path))


if __name__ == "__main__":
    learn(Path(sys.argv[1]))
