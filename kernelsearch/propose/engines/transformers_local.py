"""`hf:PATH`: a model in this process by transformers, on a CPU or a GPU; llguidance masks every step.

All n answers to an ask are one batch over one prompt. A few tensor operations apply the bit mask: llguidance's own
kernel goes through torch.compile, which needs a C++ compiler for its first call.

Options: device (auto), dtype (auto), ahead=off|N: the search goes on while it answers, and takes the answers in N
trials later (24 on a CPU; off on a GPU, where candidates are measured).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteriaList,
)
from transformers.utils import logging

from kernelsearch.core.errors import ModelError
from kernelsearch.propose.engines.base import (
    CUT,
    STOP,
    Ask,
    Engine,
    EngineSpec,
    Failure,
    Reply,
    Sample,
    fit_grammar,
    shorten,
)
from kernelsearch.propose.engines.registry import parse_ahead


def open(spec: EngineSpec) -> Engine:
    if not Path(spec.rest).is_dir():
        raise ModelError(f"{spec.rest} is no folder with a model: download one first, nothing is downloaded here")
    logging.disable_progress_bar()  # progress is the search's own
    dtype = spec.options.get("dtype", "auto")
    device = spec.options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
    after = parse_ahead(spec.options, device == "cpu")
    try:
        tokenizer = AutoTokenizer.from_pretrained(spec.rest, local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(spec.rest, dtype=dtype, local_files_only=True)
        model = model.to(device).eval()
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError, ImportError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"the model in {spec.rest} cannot be loaded: {first}") from None
    return TransformersLocal(spec.text, Path(spec.rest).name, model, tokenizer, after)


@dataclass(frozen=True)
class Written:
    """Answers as tokens, without the end token, each with whether it is whole; and the prompt's."""

    prompt: list[int]
    answers: tuple[tuple[list[int], bool], ...]


class TransformersLocal(Engine):
    """A model and its tokenizer; the ask's grammar masks every token."""

    def __init__(self, name: str, label: str, model: Any, tokenizer: Any, after: int | None = None) -> None:
        self.name, self.label, self.model, self.tokenizer = name, label, model, tokenizer
        self.ahead, self.after = after is not None, after
        self._unwanted: Ask | None = None
        self._vocabulary = model.get_output_embeddings().out_features
        self._guided = from_tokenizer(tokenizer, n_vocab=max(self._vocabulary, len(tokenizer)))
        self._limit = getattr(model.config, "max_position_embeddings", None)

    def complete(self, ask: Ask) -> Reply | Failure:
        started = time.monotonic()
        written = self.write(ask)
        seconds = time.monotonic() - started
        if isinstance(written, Failure):
            return replace(written, seconds=seconds)
        samples = tuple(self._sample(*one) for one in written.answers)
        return Reply(samples, len(written.prompt), sum(s.tokens for s in samples), 0, seconds)

    def write(self, ask: Ask) -> Written | Failure:
        """The answers as tokens."""
        text = self._text(ask)
        prompt = self.tokenizer(text)["input_ids"]
        if self._limit and len(prompt) + ask.max_tokens > self._limit:
            reason = f"{self.label}: the prompt of {len(prompt)} tokens and an answer of {ask.max_tokens} do not fit"
            return Failure(f"{reason} into its context of {self._limit}", "context", self._limit)
        mask = None
        if held := fit_grammar(ask.grammar, text):
            grammar = LLMatcher.grammar_from_lark(held.lark)
            fault = LLMatcher.validate_grammar(grammar, self._guided)
            if fault:
                return Failure(f"{self.label}: llguidance refuses the grammar: {shorten(fault)}", "grammar")
            end = self.tokenizer.eos_token_id
            mask = _GrammarMask(self._guided, grammar, ask.n, len(prompt), self._vocabulary, end)
        try:
            answers = self._generate(prompt, ask, [mask] if mask else [])
        except (RuntimeError, ValueError, IndexError) as error:
            return Failure(f"{self.label}: {shorten(str(error))}", "busy")
        whole = [len(tokens) < ask.max_tokens for tokens in answers]
        if mask:
            whole = [m.is_accepting() or m.is_stopped() for m in mask.matchers]
        return Written(prompt, tuple(zip(answers, whole, strict=True)))

    def count(self, text: str) -> int:
        return len(self.tokenizer(text)["input_ids"])

    def stop(self, ask: Ask) -> None:
        """Cuts the answers to this ask after the token that is being computed."""
        self._unwanted = ask

    def close(self) -> None:
        self.model = None

    def _text(self, ask: Ask) -> str:
        if getattr(self.tokenizer, "chat_template", None):
            return self.tokenizer.apply_chat_template(ask.messages, tokenize=False, add_generation_prompt=True)
        return ask.plain

    @torch.inference_mode()
    def _generate(self, prompt: list[int], ask: Ask, masks: list[LogitsProcessor]) -> list[list[int]]:
        """The new tokens of each answer, without padding; the prompt is computed once, however many they are."""
        end = self.tokenizer.eos_token_id
        rows = torch.tensor([prompt] * ask.n, device=self.model.device)
        read = DynamicCache(config=self.model.config)
        self.model(rows[:1, :-1], past_key_values=read, use_cache=True, logits_to_keep=1)
        read.batch_repeat_interleave(ask.n)

        def unwanted(tokens: torch.LongTensor, scores: torch.FloatTensor, **_: Any) -> torch.Tensor:
            return torch.full((len(tokens),), self._unwanted is ask, dtype=torch.bool, device=tokens.device)

        with torch.random.fork_rng():  # the process's own randomness stays what it is
            torch.manual_seed(ask.seed)
            tokens = self.model.generate(
                rows,
                attention_mask=torch.ones_like(rows),
                past_key_values=read,
                max_new_tokens=ask.max_tokens,
                do_sample=ask.temperature > 0,
                temperature=ask.temperature or None,
                top_k=None,
                top_p=None,
                eos_token_id=end,
                pad_token_id=end,
                logits_processor=LogitsProcessorList(masks),
                stopping_criteria=StoppingCriteriaList([unwanted]),
            )
        answers = tokens[:, len(prompt) :].tolist()
        return [answer[: answer.index(end)] if end in answer else answer for answer in answers]

    def _sample(self, tokens: list[int], finished: bool) -> Sample:
        text = self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Sample(text, STOP if finished else CUT, len(tokens))


class _GrammarMask(LogitsProcessor):
    """Masks the logits by one grammar matcher for each answer; end is the end token."""

    def __init__(self, guided: Any, grammar: str, n: int, prompt_length: int, vocabulary: int, end: int) -> None:
        first = LLMatcher(guided, grammar)  # reading the grammar takes longer than a tiny model's answer
        self.matchers = [first, *(first.deep_copy() for _ in range(n - 1))]
        self._length = prompt_length
        self._mask = torch.full((n, (vocabulary + 31) // 32), -1, dtype=torch.int32)
        self._bits = torch.arange(32, dtype=torch.int32)
        self._end = torch.zeros(self._mask.shape[1], dtype=torch.int32)
        self._end[end // 32] = torch.tensor(1 << end % 32 if end % 32 < 31 else -(1 << 31), dtype=torch.int32)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        for row, matcher in enumerate(self.matchers):
            if input_ids.shape[1] > self._length and not matcher.is_stopped():
                matcher.consume_token(int(input_ids[row, -1]))
            if matcher.is_stopped():  # the sentence is whole: nothing but the end token may follow
                self._mask[row] = self._end
            else:
                matcher.unsafe_compute_mask_ptr(self._mask[row].data_ptr(), self._mask.shape[1] * 4)
        allowed = ((self._mask.unsqueeze(-1) >> self._bits) & 1).bool().flatten(1)[:, : scores.shape[1]]
        return cast(torch.FloatTensor, scores.masked_fill(~allowed.to(scores.device), float("-inf")))
