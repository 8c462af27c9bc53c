"""`anthropic:MODEL`, or `anthropic:URL#MODEL`: a model of Anthropic, through the official client.

The key comes from the environment (ANTHROPIC_API_KEY, or `?key_env=NAME`) and goes nowhere else. Neither a grammar is
sent (answers are checked here) nor a temperature, which the newest client no longer takes.

Options: answers=kernel|edit|both, answer_tokens, timeout, retries, ahead=on|off.
"""

from __future__ import annotations

from typing import Any

import anthropic

from kernelsearch.propose.engines.base import CUT, REFUSAL, STOP, Ask, Engine, EngineSpec, Failure, Reply, Sample
from kernelsearch.propose.engines.secrets import refuse_secrets_in_url, scrub
from kernelsearch.propose.engines.served_model import ServedModel


def open(spec: EngineSpec) -> Engine:
    url, _, model = spec.rest.rpartition("#")
    if url:
        refuse_secrets_in_url(url)
    return AnthropicServer(spec, url, model)


class AnthropicServer(ServedModel):
    """One model; each answer is a request of its own."""

    sdk = anthropic
    key_variable = "ANTHROPIC_API_KEY"

    def __init__(self, spec: EngineSpec, url: str, model: str) -> None:
        super().__init__(spec, f"anthropic:{url}#{model}" if url else f"anthropic:{model}", model)
        given: dict[str, Any] = {"base_url": url} if url else {}
        self._client = anthropic.Anthropic(api_key=self._key or "none", timeout=self._timeout, max_retries=0, **given)
        self.where = str(self._client.base_url)

    def _request(self, ask: Ask) -> Any:
        messages, longest, create = ask.messages[1:], self._longest(ask), self._client.messages.create
        return [
            create(model=self.model, system=ask.system, messages=messages, max_tokens=longest) for _ in range(ask.n)
        ]

    def _read(self, ask: Ask, response: Any, seconds: float, notes: tuple[str, ...]) -> Reply | Failure:
        samples, totals = [], [0, 0, 0]
        for one in response:
            if not isinstance(getattr(one, "content", None), list):
                return Failure(f"{self.label}: its answer is no message: is the URL right?", "refused", seconds=seconds)
            texts = [block.text for block in one.content if getattr(block, "type", "") == "text"]
            names = ("input_tokens", "output_tokens", "cache_read_input_tokens")
            counts = [int(getattr(one.usage, name, 0) or 0) for name in names]
            totals = [a + b for a, b in zip(totals, counts)]
            finish = {"max_tokens": CUT, "refusal": REFUSAL}.get(one.stop_reason, STOP)
            samples.append(Sample(scrub("".join(texts), self._key), finish, counts[1]))
        self._count_prompt(ask, totals[0] // len(response))
        return Reply(tuple(samples), totals[0] + totals[2], totals[1], totals[2], seconds, notes)
