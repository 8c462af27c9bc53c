"""`vllm:MODEL`: a model in this process by vLLM's offline engine, grammar and prefix cache included.

All n answers to an ask are one request, so that vLLM batches them over one cached prompt. Its package pins its own
torch: give it an environment of its own.

Options: backend=guidance|xgrammar (guidance compiles a new parent's grammar in tenths of a second, xgrammar in seconds
but masks faster), ngram=N (speculative decoding with N drafted tokens out of the prompt; 0: off), prefix_cache=on|off,
max_model_len, gpu_memory (share), dtype, ahead=off|N: the search goes on while it answers, and takes the answers in N
trials later (24 on a CPU; off on a GPU, where candidates are measured).
"""

from __future__ import annotations

import time
from typing import Any

from vllm import LLM, SamplingParams
from vllm.platforms import current_platform
from vllm.sampling_params import StructuredOutputsParams

try:
    from vllm.exceptions import VLLMError
except ImportError:  # older versions raise ValueError for a bad request
    VLLMError = ValueError

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
from kernelsearch.propose.engines.registry import parse_ahead, parse_choice


def open(spec: EngineSpec) -> Engine:
    options = spec.options
    backend = parse_choice(options, "backend", "guidance", "xgrammar")
    given: dict[str, Any] = {
        "enable_prefix_caching": parse_choice(options, "prefix_cache", "on", "off") == "on",
        "structured_outputs_config": {"backend": backend},
        "disable_log_stats": True,
    }
    try:
        if int(options.get("ngram", 0)):
            drafted = {"method": "ngram", "num_speculative_tokens": int(options["ngram"]), "prompt_lookup_max": 4}
            given["speculative_config"] = drafted
        if "max_model_len" in options:
            given["max_model_len"] = int(options["max_model_len"])
        if "gpu_memory" in options:
            given["gpu_memory_utilization"] = float(options["gpu_memory"])
    except ValueError as error:
        raise ModelError(f"an option of {spec.text} is no number: {error}") from None
    if "dtype" in options:
        given["dtype"] = options["dtype"]
    after = parse_ahead(options, current_platform.is_cpu())
    try:
        model = LLM(model=spec.rest, **given)
    except (VLLMError, OSError, ValueError, RuntimeError, AssertionError) as error:
        raise ModelError(f"vLLM cannot load {spec.rest}: {shorten(str(error))}") from None
    return VLLMOffline(spec.text, spec.rest.rstrip("/").rpartition("/")[2], model, backend, after)


class VLLMOffline(Engine):
    """One `vllm.LLM`."""

    def __init__(self, name: str, label: str, model: Any, backend: str, after: int | None = None) -> None:
        self.name, self.label, self.model = name, label, model
        self.ahead, self.after = after is not None, after
        self._tokenizer = model.get_tokenizer()
        self._dialect = "lark" if backend == "guidance" else "ebnf"

    def complete(self, ask: Ask) -> Reply | Failure:
        started = time.monotonic()
        grammar = getattr(fit_grammar(ask.grammar, self._text(ask)), self._dialect, None)
        structured = StructuredOutputsParams(grammar=grammar) if grammar else None
        # The CPU engine of vLLM 0.32 dies of a seeded prompt that it reads in chunks: CPU generators have no offset.
        seed = None if current_platform.is_cpu() else ask.seed
        params = SamplingParams(
            n=ask.n, max_tokens=ask.max_tokens, temperature=ask.temperature, seed=seed, structured_outputs=structured
        )
        try:
            (output,) = self._generate(ask, params)
        except (VLLMError, ValueError, RuntimeError, AssertionError) as error:
            return self._failure(str(error), time.monotonic() - started)
        samples = tuple(
            Sample(o.text, CUT if o.finish_reason == CUT else STOP, len(o.token_ids)) for o in output.outputs
        )
        cached = getattr(output, "num_cached_tokens", None) or 0
        total = sum(s.tokens for s in samples)
        return Reply(samples, len(output.prompt_token_ids or ()), total, cached, time.monotonic() - started)

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def close(self) -> None:
        self.model = None

    def _text(self, ask: Ask) -> str:
        """The prompt as the model reads it."""
        if getattr(self._tokenizer, "chat_template", None):
            return self._tokenizer.apply_chat_template(ask.messages, tokenize=False, add_generation_prompt=True)
        return ask.plain

    def _generate(self, ask: Ask, params: SamplingParams) -> Any:
        if getattr(self._tokenizer, "chat_template", None):
            return self.model.chat([ask.messages], params, use_tqdm=False)
        return self.model.generate([ask.plain], params, use_tqdm=False)

    def _failure(self, message: str, seconds: float) -> Failure:
        lower = message.lower()
        kind = "busy"
        if "context" in lower or "max_model_len" in lower or "longer than the maximum" in lower:
            kind = "context"
        elif "grammar" in lower or "lark" in lower:
            kind = "grammar"
        return Failure(f"{self.label}: {shorten(message)}", kind, seconds=seconds)
