"""`openai:URL#MODEL`: any OpenAI-compatible server, `vllm serve` first, through the `openai` client.

The grammar is sent as vLLM's `structured_outputs`; a server without this field is asked without a grammar, and the user
reads so. The key comes from the environment (OPENAI_API_KEY, or `?key_env=NAME`) and goes nowhere else.

Options: grammar=ebnf|lark|none (vLLM's own choice of backend takes EBNF, `guidance` takes Lark), api=chat|completions,
timeout, retries, seed=on|off (vLLM 0.32's CPU engine dies of a seeded prompt that it reads in chunks), and
ahead=on|off: whether the search goes on while the server thinks, which disturbs measurements where both share a GPU. A
form of request that the server refuses is replaced by the other form once, and for good.
"""

from __future__ import annotations

import re
import time
from typing import Any

import openai

from kernelsearch.core.errors import ModelError
from kernelsearch.propose.engines.base import CUT, STOP, Ask, Engine, EngineSpec, Failure, Reply, Sample, shorten
from kernelsearch.propose.engines.registry import parse_choice
from kernelsearch.propose.engines.secrets import key_from, refuse_secrets_in_url, scrub

DIALECTS = {"ebnf": ("ebnf", "lark"), "lark": ("lark", "ebnf"), "none": ()}
"""The dialects to send, in order, by the option `grammar`."""
TIMEOUT_S = 120.0
RETRIES = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
CHARS_PER_TOKEN = 3.0
"""A cautious guess until the server counts the tokens of a prompt."""


def open(spec: EngineSpec) -> Engine:
    url, hash_, model = spec.rest.rpartition("#")
    if not hash_ or not model:
        raise ModelError(f"{scrub(spec.text)!r} names no model: write openai:URL#MODEL")
    refuse_secrets_in_url(url)
    return OpenAIServer(url, model, dict(spec.options))


class OpenAIServer(Engine):
    """One model on one server."""

    def __init__(self, url: str, model: str, options: dict[str, str]) -> None:
        self.name, self.label = f"openai:{url}#{model}", model.rstrip("/").rpartition("/")[2]
        self.model = model
        self._key = key_from(options.get("key_env", "OPENAI_API_KEY"))
        self._dialects = DIALECTS[parse_choice(options, "grammar", *DIALECTS)]
        self._api = parse_choice(options, "api", "chat", "completions")
        self._seeded = parse_choice(options, "seed", "on", "off") == "on"
        self.ahead = parse_choice(options, "ahead", "on", "off") == "on"
        self._retries = int(_number(options, "retries", RETRIES))
        self._sleep = time.sleep
        self._timeout = _number(options, "timeout", TIMEOUT_S)
        self._client = openai.OpenAI(base_url=url, api_key=self._key or "none", timeout=self._timeout, max_retries=0)
        self._chars_per_token = CHARS_PER_TOKEN
        self.trouble = ""

    def complete(self, ask: Ask) -> Reply | Failure:
        started, notes, tries, self.trouble = time.monotonic(), [], 0, ""
        self._refusals: list[str] = []
        while True:
            try:
                response = self._request(ask)
            except openai.APIStatusError as error:
                failure, again = self._read_refusal(error, notes), _is_transient(error.status_code)
                if failure is None:
                    continue  # in another form
                pause = _requested_pause(error)
            except openai.APITimeoutError:
                failure, again, pause = Failure(f"no answer within {self._timeout:g} s"), True, None
            except openai.APIConnectionError as error:
                cause = scrub(str(error.__cause__ or error), self._key)
                failure = Failure(f"nothing answers at {self._client.base_url}: {shorten(cause)}")
                again, pause = True, None
            except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
                reason = shorten(scrub(str(error), self._key))
                failure, again, pause = Failure(f"its answer cannot be read: {reason}"), False, None
            else:
                return self._read(ask, response, time.monotonic() - started, tuple(notes))
            if not again or tries >= self._retries:
                spent = time.monotonic() - started
                return Failure(f"{self.label}: {failure.reason}", failure.kind, failure.limit, spent)
            self.trouble = failure.reason
            self._sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**tries if pause is None else pause))
            tries += 1

    def count(self, text: str) -> int:
        return int(len(text) / self._chars_per_token) + 1

    def close(self) -> None:
        self._client.close()

    # ------------------------------------------------------------ one request

    def _request(self, ask: Ask) -> Any:
        body: dict[str, Any] = {}
        if self._dialects:
            body["structured_outputs"] = {"grammar": getattr(ask.grammar, self._dialects[0])}
        common = dict(
            model=self.model, n=ask.n, max_tokens=ask.max_tokens, temperature=ask.temperature, extra_body=body
        )
        if self._seeded:
            common["seed"] = ask.seed
        if self._api == "completions":
            return self._client.completions.create(prompt=ask.plain, **common)
        return self._client.chat.completions.create(messages=ask.messages, **common)

    def _read(self, ask: Ask, response: Any, seconds: float, notes: tuple[str, ...]) -> Reply | Failure:
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
        if tokens_in:
            self._chars_per_token = max(1.0, len(ask.system + ask.page) / tokens_in)
        samples = []
        for choice in choices:
            text = getattr(choice, "text", None)
            if text is None:
                text = getattr(getattr(choice, "message", None), "content", None)
            finish = CUT if getattr(choice, "finish_reason", None) == CUT else STOP
            text = text if isinstance(text, str) else ""
            samples.append(Sample(scrub(text, self._key), finish, tokens_out // max(1, len(choices))))
        return Reply(tuple(samples), tokens_in, tokens_out, int(cached), seconds, notes)

    # ------------------------------------------------------------ refusals of a server

    def _read_refusal(self, error: openai.APIStatusError, notes: list[str]) -> Failure | None:
        """The failure of an HTTP error; None if the next request takes another form, which the server may accept."""
        code, message = error.status_code, shorten(scrub(_message(error), self._key))
        lower = message.lower()
        if code in (401, 403):
            where = "OPENAI_API_KEY is not accepted" if self._key else "it wants a key, and OPENAI_API_KEY is not set"
            return Failure(f"{code}, {where}", "refused")
        if code == 404:
            return Failure(f"404, no model {self.model!r} at {self._client.base_url}: {message}", "refused")
        if code in (400, 413, 422):
            if "context length" in lower or "maximum context" in lower or "too long" in lower:
                return Failure(f"{code}, the prompt does not fit: {message}", "context", _limit(lower))
            if "chat template" in lower and self._api == "chat":
                self._api = "completions"
                notes.append(f"{self.label} has no chat template: it is asked for plain completions")
                return None
            if self._dialects and any(word in lower for word in ("structured_outputs", "unrecognized", "extra inputs")):
                self._dialects = ()
                notes.append(f"{self.label} takes no grammar: its answers are checked here and often dropped")
                return None
            if self._dialects and any(word in lower for word in ("grammar", "lark", "ebnf", "xgrammar", "guidance")):
                self._refusals.append(message)
                self._dialects = self._dialects[::-1]  # after two refusals the order is the first again
                if len(self._refusals) < len(self._dialects):
                    return None
                return Failure(f"{code}, it refuses the grammar: {self._refusals[0]}", "grammar")
            return Failure(f"{code}, {message}", "refused")
        if code == 429:
            return Failure(f"429, too many requests: {message}")
        return Failure(f"{code}, {message}")


def _number(options: dict[str, str], name: str, default: float) -> float:
    try:
        return float(options.get(name, default))
    except ValueError:
        raise ModelError(f"{name}={options[name]}: it is a number") from None


def _is_transient(code: int) -> bool:
    return code in (408, 409, 429) or code >= 500


def _requested_pause(error: openai.APIStatusError) -> float | None:
    try:
        return max(0.0, float(error.response.headers.get("retry-after", "")))
    except ValueError:
        return None


def _message(error: openai.APIStatusError) -> str:
    """The server's own sentence: `{"error": {"message"}}`, `{"message"}`, or whatever text there is."""
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error", body)
    message = inner.get("message") if isinstance(inner, dict) else inner
    return str(message or error.message or "no reason given")


def _limit(text: str) -> int | None:
    number = re.search(r"(?:context length|context window)[^0-9]{0,30}([0-9][0-9,]*)", text)
    return int(number.group(1).replace(",", "")) if number else None
