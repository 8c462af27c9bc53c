"""The HTML page of a database, served while searches write it: it is drawn again when a browser asks and it changed."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import Lock
from urllib.parse import urlsplit

import click

from kernelsearch.core.errors import KernelsearchError
from kernelsearch.record import queries
from kernelsearch.record.store import Store
from kernelsearch.report.html import render_page

REST = 3.0
"""After a drawing the page rests so many times as long as that took, so that a search beside it keeps its cores."""


class LivePage:
    """The newest drawing of a database's page, and a version that changes with it."""

    def __init__(self, db: str) -> None:
        self.db = db
        self._turn = Lock()
        self._version, self._text, self._rests_until = "", "", 0.0

    def load(self) -> tuple[str, str]:
        """(version, text), drawn again if the database has changed and the rest is over."""
        with self._turn:
            if time.monotonic() >= self._rests_until:
                with Store.open(self.db, write=False) as store:
                    version = json.dumps([queries.totals(store), sorted(store.find_written_runs())])
                    if version != self._version:
                        began = time.monotonic()
                        self._text, self._version = render_page(store, live=True), version
                        self._rests_until = time.monotonic() + REST * (time.monotonic() - began)
            return self._version, self._text


def _is_ours(asked: str | None, host: str) -> bool:
    """Whether a browser asked for an address or for this host: a stranger's name may lead here from his own page."""
    with suppress(ValueError):
        name = urlsplit(f"//{asked}").hostname or ""
        return name in ("localhost", host.lower()) or bool(ip_address(name))
    return False


def serve(db: str, host: str, port: int) -> None:
    """Serves the page at `/` and its version at `/version` until Ctrl-C. Raises KernelsearchError."""
    page = LivePage(db)
    page.load()  # an error is told here, not to a browser

    class Handler(BaseHTTPRequestHandler):
        """Answers for `/` and `/version`; it writes no log."""

        def do_GET(self) -> None:
            kinds = (
                {"/": ("text/html", 1), "/version": ("text/plain", 0)} if _is_ours(self.headers["Host"], host) else {}
            )
            kind, which = kinds.get(self.path.partition("?")[0], ("", 0))
            body = page.load()[which].encode() if kind else b"not here\n"
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", f"{kind or 'text/plain'}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the page asks every two seconds."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise KernelsearchError(
            f"port {port} of {host} cannot be served ({error.strerror}): give another --port"
        ) from None
    with server, suppress(KeyboardInterrupt):
        click.echo(f"serving {db} at http://{host}:{server.server_port}/ until Ctrl-C", err=True)
        server.serve_forever()
