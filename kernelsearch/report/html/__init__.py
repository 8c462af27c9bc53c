"""One self-contained HTML page of a database: no network, no cookies, readable without its script."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from importlib import resources
from typing import Any

from kernelsearch.core import formats
from kernelsearch.record.store import Store
from kernelsearch.report.html import charts, content, kernel_parts


def render_page(
    store: Store, task: str | None = None, device: str | None = None, limit: int | None = 10, live: bool = False
) -> str:
    """The whole page as text; a live one asks where it came from for changes. Raises KernelsearchError.

    Texts of kernels, rationales and reasons may come from anywhere: the templates escape them, and a content security
    policy allows no other script than the page's own. Kernels outside the leaderboard are packed, for the script.
    """
    facts = content.page(store, task, device, limit)
    packed, alone = {}, len(facts["sections"]) == 1
    for section in facts["sections"]:
        widths = (charts.WIDE, charts.NARROW)
        section["charts"] = {"trials": [charts.draw_trials(section, width) for width in widths]}
        section["parts"] = []
        for kernel in sorted(section["kernels"].values(), key=lambda k: -(k["speedup"] or 0)):
            if kernel["part"]:
                part = _template("kernel.html.j2").render(
                    k={**kernel, "open": kernel["kernel"] == section["best"] and alone},
                    code=kernel_parts.render_code(kernel),
                    shapes=section["sizes"],
                    place=section["device"],
                    words=formats,
                )
                if kernel["static"]:
                    section["parts"].append(part)
                else:
                    packed[kernel["part"]] = part
    script = _file("page.js")
    return _template("page.html.j2").render(
        **facts,
        style=_file("page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        packed=base64.b64encode(gzip.compress(json.dumps(packed).encode(), mtime=0)).decode(),
        live=live,
        words=formats,
        tasks=sorted({r["task"] for r in facts["rows"]}),
        devices=sorted({r["device"] for r in facts["rows"]}),
        evidences=[e for e in ("confirmed", "measured", "estimated") if any(r["evidence"] == e for r in facts["rows"])],
        named=str(store.path).rpartition("/")[2],
    )


def _file(name: str) -> str:
    return resources.files("kernelsearch.report.html").joinpath(name).read_text()


@cache
def _template(name: str) -> Any:
    import jinja2

    spacing: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, **spacing)
    environment.filters["breakable"] = _breakable
    return environment.from_string(_file(name))


def _breakable(name: str) -> Any:
    """A name, escaped, that may go on in the next line after `_` and `+`."""
    from markupsafe import Markup, escape

    return Markup(str(escape(name)).replace("_", "_<wbr>").replace("+", "+<wbr>"))
