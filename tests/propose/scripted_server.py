"""An OpenAI-compatible server that says what a script tells it: answers, refusals, silence.

A script is a function of the request's JSON that gives a `Say`. `obedient` samples the grammar that it is sent, as an
engine with a random model would; by hand: `python tests/propose/scripted_server.py SECONDS [THINKS_FOR]` prints its URL
and lives for so many seconds.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import drawing


@dataclass(frozen=True)
class Say:
    """One response: texts become choices or refusals; another status is an error."""

    texts: tuple[str, ...] = ()
    finish: str = "stop"
    status: int = 200
    message: str = ""
    wait_s: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    refused: bool = False


Script = Callable[[dict], Say]


class Server:
    """Runs while its `with` does; `requests` has (path, headers, JSON) of everything that was asked."""

    def __init__(self, script: Script) -> None:
        self.requests: list[tuple[str, dict[str, str], dict]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, request))
                said = script(request)
                time.sleep(said.wait_s)
                body = said.raw if said.raw is not None else json.dumps(_body(said, request, self.path)).encode()
                try:
                    self.send_response(said.status)
                    kind = "application/json" if said.raw is None else "text/html"
                    for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **said.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client did not wait

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Server:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _body(said: Say, request: dict, path: str) -> dict:
    if said.status != 200:
        return {"error": {"message": said.message, "type": "invalid_request_error", "code": said.status}}
    if path.endswith("/responses"):
        return _response(said, request)
    if path.endswith("/v1/messages"):
        return _message(said, request)
    chat = "messages" in request
    asked = json.dumps(request.get("messages") or request.get("prompt"))
    choices = [
        {
            "index": i,
            "finish_reason": said.finish,
            **({"message": _said(t, said)} if chat else {"text": t}),
        }
        for i, t in enumerate(said.texts)
    ]
    usage = {"prompt_tokens": len(asked) // 4, "completion_tokens": sum(len(t) // 4 for t in said.texts)}
    usage["total_tokens"] = sum(usage.values())
    return {"id": "1", "object": "chat.completion" if chat else "text_completion", "created": 0,
            "model": request["model"], "choices": choices, "usage": usage}  # fmt: skip


def _said(text: str, said: Say) -> dict:
    if said.refused:
        return {"role": "assistant", "content": None, "refusal": text}
    return {"role": "assistant", "content": text}


def _response(said: Say, request: dict) -> dict:
    """The answer of OpenAI's responses API."""
    content = [{"type": "output_text", "text": text, "annotations": []} for text in said.texts]
    output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}]
    usage = {"input_tokens": 30, "output_tokens": 7, "total_tokens": 37, "input_tokens_details": {"cached_tokens": 5},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    return {"id": "r", "object": "response", "created_at": 0, "model": request["model"], "output": output,
            "status": "incomplete" if said.finish == "length" else "completed", "usage": usage,
            "parallel_tool_calls": False, "tool_choice": "auto", "tools": []}  # fmt: skip


def _message(said: Say, request: dict) -> dict:
    """The answer of Anthropic's messages API."""
    content = [{"type": "text", "text": text} for text in said.texts]
    return {"id": "m", "type": "message", "role": "assistant", "model": request["model"], "content": content,
            "stop_reason": {"stop": "end_turn", "length": "max_tokens"}.get(said.finish, said.finish),
            "stop_sequence": None,
            "usage": {"input_tokens": 30, "output_tokens": 7, "cache_read_input_tokens": 5}}  # fmt: skip


def always(*texts: str, **fields: object) -> Script:
    return lambda request: Say(texts, **fields)


def refusing(status: int, message: str, **fields: object) -> Script:
    return lambda request: Say(status=status, message=message, **fields)


def in_turn(*scripts: Script) -> Script:
    """The first script answers the first request, and so on; the last one all that follow."""
    left = list(scripts)
    return lambda request: (left.pop(0) if len(left) > 1 else left[0])(request)


def obedient(request: dict) -> Say:
    """n samples of the grammar that came with the request."""
    grammar, rng = request["structured_outputs"]["grammar"], random.Random(request.get("seed", 0))
    return Say(tuple(drawing.draw(grammar, rng, depth=99, most=1) for _ in range(request.get("n", 1))))


def slowly(script: Script, wait_s: float) -> Script:
    """The same answers after some seconds of thinking."""
    return lambda request: replace(script(request), wait_s=wait_s)


if __name__ == "__main__":
    with Server(slowly(obedient, float(sys.argv[2]) if sys.argv[2:] else 0.0)) as server:
        print(server.url, flush=True)
        time.sleep(float(sys.argv[1]) if sys.argv[1:] else 3600)
