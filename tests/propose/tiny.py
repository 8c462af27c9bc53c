"""A tiny Qwen2 of random weights with a byte-level BPE of its own, built in seconds and with no download."""

from __future__ import annotations

from functools import cache
from pathlib import Path

STUDIES = Path(__file__).resolve().parents[2] / "studies"


def texts() -> list[str]:
    """What the BPE learns its merges from: the shipped task files, and no script that changes with each study."""
    files = (p for p in sorted(STUDIES.glob("*/*.py")) if p.stem == p.parent.name)
    return [p.read_text(encoding="utf-8") for p in files]


@cache
def tokenizer(size: int = 1024):
    """A byte-level BPE as a transformers tokenizer, with `<|endoftext|>` (also its padding) and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=size, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        ),
    )  # fmt: skip
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|endoftext|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
    )  # fmt: skip
    fast.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return fast


def build(folder: Path, seed: int = 0, vocabulary: int = 1024, context: int = 8192, hidden: int = 64) -> Path:
    """Writes the model and its tokenizer into folder, as `from_pretrained` reads them; it has four heads."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokens = tokenizer(vocabulary)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokens), hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=context, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=tokens.eos_token_id, pad_token_id=tokens.pad_token_id,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder
