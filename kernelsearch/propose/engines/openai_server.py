"""`openai:URL#MODEL`: any OpenAI-compatible server, `vllm serve` first, through the `openai` client.

A grammar is sent as vLLM's `structured_outputs`, which a server with a reasoning parser applies behind the thinking. A
server without this field is asked without a grammar: the user reads so, and the answers are checked here. The key comes
from the environment (OPENAI_API_KEY, or `?key_env=NAME`) and goes nowhere else.

Options: answers=kernel|edit|both, answer_tokens, grammar=ebnf|lark|none (vLLM's own choice of backend takes EBNF,
`guidance` takes Lark), api=chat|completions|responses, timeout, retries, seed=on|off (vLLM 0.32's CPU engine dies of a
seeded prompt that it reads in chunks), and ahead=on|off: whether the search goes on while the server thinks, which
disturbs measurements where both share a GPU. What a server refuses in one dialect is asked again in the other.
"""

from __future__ import annotations

import re
from typing import Any

import openai

from kernelsearch.core.errors import ModelError
from kernelsearch.propose.engines.base import CUT, REFUSAL, STOP, Ask, Engine, EngineSpec, Failure, Reply, Sample
from kernelsearch.propose.engines.registry import parse_choice
from kernelsearch.propose.engines.secrets import refuse_secrets_in_url, scrub
from kernelsearch.propose.engines.served_model import ServedModel

DIALECTS = {"ebnf": ("ebnf", "lark"), "lark": ("lark", "ebnf"), "none": ()}
"""The forms in which a grammar is sent, in order, by the option `grammar`."""
LIMITS = ("max_tokens", "max_completion_tokens")
SETTINGS = {
    "seed": r"\bseed\b",
    "temperature": r"\btemperature\b",
    "n": r"'n'|\"n\"|`n`|\bn [>=!]|\bn must|parameter:? n\b",
}
"""What a server may refuse by its name and is then asked without."""


def open(spec: EngineSpec) -> Engine:
    url, hash_, model = spec.rest.rpartition("#")
    if not hash_ or not model:
        raise ModelError(f"{scrub(spec.text)!r} names no model: write openai:URL#MODEL")
    refuse_secrets_in_url(url)
    return OpenAIServer(spec, url, model)


class OpenAIServer(ServedModel):
    """One model on one server."""

    sdk = openai
    key_variable = "OPENAI_API_KEY"

    def __init__(self, spec: EngineSpec, url: str, model: str) -> None:
        super().__init__(spec, f"openai:{url}#{model}", model)
        options, self.where = spec.options, url
        self._dialects = DIALECTS[parse_choice(options, "grammar", *DIALECTS)]
        self._api = parse_choice(options, "api", "chat", "completions", "responses")
        self._limit = LIMITS[0]
        self._left_out = set() if parse_choice(options, "seed", "on", "off") == "on" else {"seed"}
        self._changed: set[str] = set()
        self._held, self._lark = "", ""
        self._unreadable: set[str] = set()
        self._client = openai.OpenAI(base_url=url, api_key=self._key or "none", timeout=self._timeout, max_retries=0)

    def _begin(self) -> None:
        self._refusals: list[str] = []

    # ------------------------------------------------------------ one request

    def _request(self, ask: Ask) -> Any:
        settings: dict[str, Any] = {"seed": ask.seed, "temperature": ask.temperature, "n": ask.n}
        if ask.n == 1:
            del settings["n"]
        common = {"model": self.model, **{k: v for k, v in settings.items() if k not in self._left_out}}
        if self._api == "responses":
            common = {k: v for k, v in common.items() if k in ("model", "temperature")}
            longest, self._held = self._longest(ask), ""
            return self._client.responses.create(input=self._messages(ask), max_output_tokens=longest, **common)
        body: dict[str, Any] = {self._limit: self._longest(ask), **self._hold(ask)}
        if self._api == "completions":
            return self._client.completions.create(prompt=ask.plain, extra_body=body, **common)
        return self._client.chat.completions.create(messages=self._messages(ask), extra_body=body, **common)

    def _hold(self, ask: Ask) -> dict[str, Any]:
        """The part of a request that holds its answer to the grammar, if it has one and may."""
        grammar, self._held, self._lark = ask.grammar, "", ""
        if grammar is None or not self._dialects or grammar.lark in self._unreadable:
            return {}
        self._held, self._lark = self._dialects[0], grammar.lark
        return {"structured_outputs": {"grammar": getattr(grammar, self._held)}}

    def _messages(self, ask: Ask) -> Any:
        messages = ask.messages
        if "system" in self._left_out:  # its text begins the first question
            messages[:2] = [{"role": "user", "content": f"{ask.system}\n\n{ask.page}"}]
        return messages

    def _read(self, ask: Ask, response: Any, seconds: float, notes: tuple[str, ...]) -> Reply | Failure:
        if isinstance(getattr(response, "output", None), list):
            return self._read_response(ask, response, seconds, notes)
        choices = getattr(response, "choices", None)
        if not isinstance(choices, list):
            reason = f"{self.label}: its answer is no completion: is the URL right? (it ends in /v1)"
            return Failure(reason, "refused", seconds=seconds)
        if not choices:
            return Failure(f"{self.label}: its answer has no choices", seconds=seconds)
        usage = getattr(response, "usage", None)
        tokens_in = int(getattr(usage, "prompt_tokens", 0) or 0)
        tokens_out = int(getattr(usage, "completion_tokens", 0) or 0)
        cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", 0) or 0
        self._count_prompt(ask, tokens_in)
        samples = []
        for choice in choices:
            text = getattr(choice, "text", None)
            if text is None:
                text = getattr(getattr(choice, "message", None), "content", None)
            refusal = getattr(getattr(choice, "message", None), "refusal", None)
            finish = REFUSAL if refusal else getattr(choice, "finish_reason", None)
            finish = finish if finish in (CUT, REFUSAL, "content_filter") else STOP
            text = text if isinstance(text, str) and text else refusal or ""
            samples.append(Sample(scrub(text, self._key), finish, tokens_out // len(choices)))
        return Reply(tuple(samples), tokens_in, tokens_out, int(cached), seconds, notes)

    def _read_response(self, ask: Ask, response: Any, seconds: float, notes: tuple[str, ...]) -> Reply:
        """The answer of the responses API."""
        usage, status = response.usage, response.status
        tokens_in, tokens_out = (int(getattr(usage, f"{n}_tokens", 0) or 0) for n in ("input", "output"))
        cached = getattr(getattr(usage, "input_tokens_details", None), "cached_tokens", 0) or 0
        self._count_prompt(ask, tokens_in)
        finish = CUT if status == "incomplete" else STOP
        sample = Sample(scrub(response.output_text or "", self._key), finish, tokens_out)
        return Reply((sample,), tokens_in, tokens_out, int(cached), seconds, notes)

    # ------------------------------------------------------------ other forms of a request

    def _adapt(self, code: int, sentence: str, notes: list[str]) -> Failure | bool:
        message = sentence.lower()
        if "v1/responses" in message:
            return self._change("responses", _api="responses")
        if "chat template" in message or "not a chat model" in message:
            notes.append(f"{self.label} has no chat template: it is asked for plain completions")
            return self._change("completions", _api="completions")
        if self._api == "responses" and code in (404, 405) and "model" not in message:
            return self._change("chat", _api="chat")
        if "context" in message:
            return False
        if any(limit in message for limit in LIMITS) and re.search(
            r"unsupported|not supported|unrecognized|unknown|extra|instead|not permitted", message
        ):
            return self._change("limit", _limit=LIMITS[1 - LIMITS.index(self._limit)])
        if self._held or self._refusals:
            refused = self._refuse_grammar(code, sentence, notes)
            if refused is not None:
                return refused
        for name, words in {**SETTINGS, "system": r"system role|role '?system"}.items():
            if name not in self._left_out and re.search(words, message):
                return self._change(name, _left_out=self._left_out | {name})
        return False

    def _refuse_grammar(self, code: int, sentence: str, notes: list[str]) -> Failure | bool | None:
        """What follows if a refusal is one of the grammar or of the field that it came in; else None."""
        message = sentence.lower()
        unknown = any(word in message for word in ("unrecognized", "unknown", "extra inputs", "not permitted"))
        other = any(re.search(words, message) for words in SETTINGS.values())
        if self._held and ("structured_outputs" in message or (unknown and not other)):
            notes.append(f"{self.label} takes no grammar: its answers are checked here")
            return self._change(f"grammar as {self._held}", _dialects=())
        if not any(word in message for word in ("grammar", "lark", "ebnf", "xgrammar", "guidance")):
            return None
        self._refusals.append(sentence)
        reason = f"refuses the grammar: {self._refusals[0]}"
        if not self._held:
            return Failure(f"{code}, it {reason}", "grammar")
        if len(self._refusals) < 2:
            self._dialects = self._dialects[::-1]
        else:
            notes.append(f"{self.label} {reason}; its answers are checked here")
            self._unreadable.add(self._lark)
        return True

    def _change(self, what: str, **attributes: Any) -> bool:
        """Changes the form of requests; False if this change was made before and did not help."""
        if what in self._changed:
            return False
        self._changed.add(what)
        vars(self).update(attributes)
        return True
