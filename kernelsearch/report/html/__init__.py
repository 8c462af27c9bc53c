"""One self-contained HTML page of a database: no network, no cookies, readable without its script."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any

from kernelsearch.core import formats
from kernelsearch.record.store import Store
from kernelsearch.report.html import charts, content


def render_page(store: Store, task: str | None = None, device: str | None = None, limit: int | None = 10) -> str:
    """The whole page as text. Raises KernelsearchError when the library that draws is missing.

    Texts of kernels, rationales and reasons may come from anywhere: the template escapes them, the script sets them
    as text only, and a content security policy allows no other script than the page's own.
    """
    facts = content.page(store, task, device, limit)
    for section in facts["sections"]:
        widths = (charts.WIDE, charts.NARROW)
        section["charts"] = {name: [draw(section, w) for w in widths] for name, draw in _CHARTS.items()}
    script = _file("page.js")
    return _template().render(
        **facts,
        style=_file("page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        trees=_inert({s["id"]: {"evidence": s["evidence"], **s["tree"]} for s in facts["sections"]}),
        words=formats,
        tasks=sorted({r["task"] for r in facts["rows"]}),
        devices=sorted({r["device"] for r in facts["rows"]}),
        evidences=[e for e in ("confirmed", "measured", "estimated") if any(r["evidence"] == e for r in facts["rows"])],
        named=str(store.path).rpartition("/")[2],
    )


_CHARTS = {"curve": charts.draw_curve, "roofline": charts.draw_roofline, "shares": charts.draw_shares}


def _file(name: str) -> str:
    return resources.files("kernelsearch.report.html").joinpath(name).read_text()


def _inert(value: Any) -> str:
    """JSON that cannot end its script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _template() -> Any:
    import jinja2

    spacing = {"trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, **spacing)
    environment.filters["breakable"] = _breakable
    return environment.from_string(_file("page.html.j2"))


def _breakable(name: str) -> Any:
    """A name, escaped, that may go on in the next line after `_` and `+`."""
    from markupsafe import Markup, escape

    return Markup(str(escape(name)).replace("_", "_<wbr>").replace("+", "+<wbr>"))
