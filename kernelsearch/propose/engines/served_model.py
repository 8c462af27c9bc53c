"""A model behind an HTTP API, asked through its provider's client: what is the same for all providers.

Passing faults are tried again after a pause. A form of request that the server refuses is replaced by another form
once, and for good. Every sentence of a server is scrubbed before anybody reads it.
"""

from __future__ import annotations

import re
import time
from typing import Any

from kernelsearch.propose.engines.base import Ask, Engine, EngineSpec, Failure, Reply, shorten
from kernelsearch.propose.engines.registry import parse_choice, parse_number
from kernelsearch.propose.engines.secrets import key_from, scrub

TIMEOUT_S = 600.0
RETRIES = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
CHARS_PER_TOKEN = 3.0
"""A cautious guess until the server counts the tokens of a prompt."""


class ServedModel(Engine):
    """One model of one provider. A provider sets sdk and defines _request, _read and _adapt.

    sdk is the client's package; its errors have the same names for every provider.
    """

    answers = "kernel"
    sdk: Any
    key_variable: str
    _client: Any

    def __init__(self, spec: EngineSpec, name: str, model: str) -> None:
        options = spec.options
        self.name, self.label, self.model = name, model.rstrip("/").rpartition("/")[2], model
        self.key_variable = options.get("key_env", self.key_variable)
        self._key = key_from(self.key_variable)
        self.ahead = parse_choice(options, "ahead", "on", "off") == "on"
        self._retries = int(parse_number(options, "retries", RETRIES))
        self._timeout = parse_number(options, "timeout", TIMEOUT_S)
        self._sleep = time.sleep
        self._chars_per_token = CHARS_PER_TOKEN
        self._most: int | None = None
        self.trouble = ""

    # ------------------------------------------------------------ what a provider defines

    where: str
    """The address that is asked, for sentences."""

    def _request(self, ask: Ask) -> Any:
        raise NotImplementedError

    def _read(self, ask: Ask, response: Any, seconds: float, notes: tuple[str, ...]) -> Reply | Failure:
        raise NotImplementedError

    def _adapt(self, code: int, message: str, notes: list[str]) -> Failure | bool:
        """True if the next request takes another form, which the server may accept; or the failure, if it is known."""
        return False

    # ------------------------------------------------------------ asking

    def complete(self, ask: Ask) -> Reply | Failure:
        started, notes, tries, self.trouble = time.monotonic(), list[str](), 0, ""
        self._begin()
        while True:
            try:
                response = self._request(ask)
            except self.sdk.APIStatusError as error:
                failure, code = self._read_refusal(error, notes), error.status_code
                again = code in (408, 409, 429) or code >= 500
                if failure is None:
                    continue  # in another form
                pause = _requested_pause(error)
            except self.sdk.APITimeoutError:
                failure, again, pause = Failure(f"no answer within {self._timeout:g} s"), True, None
            except self.sdk.APIConnectionError as error:
                cause = scrub(str(error.__cause__ or error), self._key)
                failure, again, pause = Failure(f"nothing answers at {self.where}: {shorten(cause)}"), True, None
            except (self.sdk.APIError, ValueError, TypeError, AttributeError) as error:
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

    def _begin(self) -> None:
        """Makes ready for an ask."""

    def _longest(self, ask: Ask) -> int:
        """The tokens of an answer: those of the ask, or the server's own limit where it has named a smaller one."""
        return min(ask.max_tokens, self._most or ask.max_tokens)

    def _count_prompt(self, ask: Ask, tokens: int) -> None:
        if tokens:
            self._chars_per_token = max(1.0, len(ask.plain) / tokens)

    def _read_refusal(self, error: Any, notes: list[str]) -> Failure | None:
        """The failure of an HTTP error; None if the next request takes another form."""
        code, message = error.status_code, shorten(scrub(_message(error), self._key))
        lower = message.lower()
        if code in (401, 403):
            variable = self.key_variable
            where = f"{variable} is not accepted" if self._key else f"it wants a key, and {variable} is not set"
            return Failure(f"{code}, {where}", "refused")
        adapted = code in (400, 404, 405, 413, 422) and self._adapt(code, message, notes)
        if isinstance(adapted, Failure):
            return adapted
        if adapted:
            return None
        if code == 404:
            return Failure(f"404, no model {self.model!r} at {self.where}: {message}", "refused")
        if code in (400, 413, 422):
            most = re.search(
                r"max_(?:completion_|output_)?tokens.*?(?:at most|maximum\D{0,60}|<=?|up to)\s*(\d+)", lower
            )
            if most and "context" not in lower and int(most[1]) < (self._most or 1 << 30):
                self._most = int(most[1])
                return None
            if any(words in lower for words in ("context length", "maximum context", "too long", "context window")):
                return Failure(f"{code}, the prompt does not fit: {message}", "context", _limit(lower))
            return Failure(f"{code}, {message}", "refused")
        return Failure(f"429, too many requests: {message}" if code == 429 else f"{code}, {message}")


def _requested_pause(error: Any) -> float | None:
    try:
        return max(0.0, float(error.response.headers.get("retry-after", "")))
    except ValueError:
        return None


def _message(error: Any) -> str:
    """The server's own sentence: `{"error": {"message"}}`, `{"message"}`, or whatever text there is."""
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error", body)
    message = inner.get("message") if isinstance(inner, dict) else inner
    return str(message or error.message or "no reason given")


def _limit(text: str) -> int | None:
    number = re.search(r"(?:context length|context window)[^0-9]{0,30}([0-9][0-9,]*)", text)
    return int(number.group(1).replace(",", "")) if number else None
