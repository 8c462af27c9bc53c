"""`--base tiny`: a small transformer with random weights and a byte-level BPE learnt from the data; no download.

Its tokens may be as long as a line, and it reads a page from the ready-made edits on: by then nearly all of the rest
is the same on every page or is a kernel, which so small a model learns by heart. A page has 60 tokens, not 1,200.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

END = "<|endoftext|>"
UNREAD = r"(?m)\A.*?(?=^READY-MADE EDITS\n)|^(ITS TIMES|DO THIS)\n.*?\n\n"
"""What it does not read, as Oniguruma writes it: `.` is any character. A page without that heading is read whole."""
WORDS = r"\n|EDIT \w+|\bEND\b|\d"
"""What no token goes beyond: an edit's name is one, on the page and in the answer, and so is each digit."""
SEEN = 4
"""The least number of times that what becomes a token occurs."""


@dataclass(frozen=True)
class TinySize:
    """Sizes of a tiny model: about 6 million parameters by default. context is in tokens."""

    vocabulary: int = 4096
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    context: int = 8192


def build_tiny(folder: Path, texts: Iterable[str], size: TinySize, seed: int) -> None:
    """Writes the model and its tokenizer, as `from_pretrained` reads them."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import Olmo2Config, Olmo2ForCausalLM, PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.Replace(Regex(UNREAD), "")
    split = pre_tokenizers.Split(Regex(WORDS), "isolated")
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([split, bytewise])
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size.vocabulary, min_frequency=SEEN, special_tokens=[END], initial_alphabet=alphabet,
        show_progress=False,
    )  # fmt: skip
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=END)
    config = Olmo2Config(  # a type whose tokenizer is read as it is: that of Qwen2 gets its own borders of words
        vocab_size=len(tokenizer), hidden_size=size.hidden, intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, num_key_value_heads=max(1, size.heads // 2),
        max_position_embeddings=size.context, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        Olmo2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
