"""`--base tiny`: a small transformer with random weights and a byte-level BPE learnt from the data; no download.

Its tokens may be as long as a line, and of a page it reads the list of ready-made edits alone: what else is there, the
kernel too, so small a model learns by heart from a few hundred pages. A page has 80 tokens, not 1,200.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

END = "<|endoftext|>"
UNREAD = r"(?m)\A.*?(?=^READY-MADE EDITS\n)|^(ITS TIMES|WHERE ITS TIME GOES|DO THIS)\n.*(?=^ANSWER\n)"
"""What it does not read, as Oniguruma writes it: `.` is any character. A page without these headings is read whole."""
WORDS = r"\n|EDIT \w+|\bEND\b|\d"
"""What no token goes beyond: an edit's name is one, on the page and in the answer, and so is each digit."""
SEEN = 4
"""The least number of times that what becomes a token occurs."""


@dataclass(frozen=True)
class TinySize:
    """Sizes of a tiny model: about a million parameters by default. context is in tokens."""

    vocabulary: int = 4096
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    context: int = 8192


def build_tiny(folder: Path, texts: Iterable[str], size: TinySize, seed: int) -> None:
    """Writes the model and its tokenizer, as `from_pretrained` reads them."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import GraniteConfig, GraniteForCausalLM, PreTrainedTokenizerFast

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
    config = GraniteConfig(  # a type whose tokenizer is read as it is: that of Qwen2 gets its own borders of words
        vocab_size=len(tokenizer), hidden_size=size.hidden, intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, num_key_value_heads=max(1, size.heads // 2),
        max_position_embeddings=size.context, attention_multiplier=(size.hidden // size.heads) ** -0.5,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        GraniteForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
