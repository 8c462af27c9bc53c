"""Answers drawn from a grammar by an engine's own mask, token by token, as a model of random weights would draw them.

The logits are standard normal, independent at each step: what an untrained network gives at temperature 1, without the
cost of running one. Everything else is the engine's: its compiled grammar, its vocabulary, its masks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernelsearch.propose.grammar.kernel_file import KernelGrammar


@dataclass
class Drawn:
    """One answer: its text, tokens, whether it stopped by itself, and the seconds of each mask."""

    text: str
    tokens: int
    stopped: bool
    masks: list[float] = field(default_factory=list)


class Vocabulary:
    """A tokenizer for both engines: a `tokenizer.json` whose first token ends a text."""

    def __init__(self, fast) -> None:
        self.fast, self.end = fast, fast.eos_token_id
        self.size = len(fast)

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        from transformers import PreTrainedTokenizerFast

        return cls(PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token="<|endoftext|>"))


class Llguidance:
    """llguidance: Lark, a matcher for each answer."""

    name = "llguidance"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance.hf

        self.vocabulary = vocabulary
        self.tokenizer = llguidance.hf.from_tokenizer(vocabulary.fast, n_vocab=vocabulary.size)

    def compile(self, grammar: KernelGrammar):
        """(the compiled grammar, seconds of this process's time)."""
        from llguidance import LLMatcher

        text = grammar.lark
        start = time.process_time()
        matcher = LLMatcher(self.tokenizer, LLMatcher.grammar_from_lark(text))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher, time.process_time() - start

    def draw(self, compiled, rng: np.random.Generator, most: int) -> Drawn:
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        matcher, mask = compiled.deep_copy(), allocate_token_bitmask(1, self.vocabulary.size)
        tokens: list[int] = []
        seconds = []
        while len(tokens) < most:
            start = time.perf_counter()
            fill_next_token_bitmask(matcher, mask, 0)
            seconds.append(time.perf_counter() - start)
            token = chosen(mask[0], self.vocabulary.size, rng)
            if token == self.vocabulary.end:
                return Drawn(self.vocabulary.fast.decode(tokens), len(tokens), True, seconds)
            matcher.consume_token(token)
            tokens.append(token)
        return Drawn(self.vocabulary.fast.decode(tokens), len(tokens), False, seconds)


class Xgrammar:
    """xgrammar: EBNF, a grammar that is compiled once and matched many times."""

    name = "xgrammar"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import xgrammar

        self.vocabulary = vocabulary
        info = xgrammar.TokenizerInfo.from_huggingface(
            vocabulary.fast, vocab_size=vocabulary.size, stop_token_ids=vocabulary.end
        )
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, grammar: KernelGrammar):
        start = time.process_time()
        return self.compiler.compile_grammar(grammar.ebnf), time.process_time() - start

    def draw(self, compiled, rng: np.random.Generator, most: int) -> Drawn:
        import xgrammar

        matcher, mask = xgrammar.GrammarMatcher(compiled), xgrammar.allocate_token_bitmask(1, self.vocabulary.size)
        tokens: list[int] = []
        seconds = []
        while len(tokens) < most:
            start = time.perf_counter()
            matcher.fill_next_token_bitmask(mask)
            seconds.append(time.perf_counter() - start)
            token = chosen(mask[0].numpy(), self.vocabulary.size, rng)
            matcher.accept_token(token)
            if token == self.vocabulary.end:
                return Drawn(self.vocabulary.fast.decode(tokens), len(tokens), True, seconds)
            tokens.append(token)
        return Drawn(self.vocabulary.fast.decode(tokens), len(tokens), False, seconds)


ENGINES = {e.name: e for e in (Llguidance, Xgrammar)}


def chosen(mask: np.ndarray, size: int, rng: np.random.Generator) -> int:
    """A token of the mask by the softmax of standard normal logits."""
    allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:size])
    if not len(allowed):
        raise ValueError("the engine allows no token at all")
    return int(allowed[np.argmax(rng.standard_normal(len(allowed)) + rng.gumbel(size=len(allowed)))])
