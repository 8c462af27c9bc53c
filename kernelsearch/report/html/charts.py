"""The page's pictures: Vega-Lite specifications, drawn to SVG when the page is written.

Colours are the page's CSS variables, so that one drawing serves light and dark; every mark carries an aria-label,
which a reader hears and the page's script shows under the pointer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelsearch.core import extras
from kernelsearch.core.errors import KernelsearchError

Spec = dict[str, Any]
Facts = Mapping[str, Any]

WIDE, NARROW = 880, 290
"""Widths of a drawing's inside, in pixels: for a screen, and for a phone, where the wide one would be cut."""
INK, MUTED, RULE, ACCENT, SECOND = (f"var(--{n})" for n in ("ink", "muted", "rule", "accent", "second"))

CONFIG = {
    "background": None,
    "padding": {"left": 20, "right": 8, "top": 5, "bottom": 5},  # a browser's letters are wider than the drawing's
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "gridColor": RULE,
        "domainColor": RULE,
        "tickColor": RULE,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "gridOpacity": 0.6,
    },
}


class NoDrawing(KernelsearchError):
    """The library that draws is not installed."""


def svg(spec: Spec, title: str) -> str:
    """An SVG element that scales with its container; title is its accessible name. Raises NoDrawing."""
    try:
        import vl_convert
    except ImportError:
        raise NoDrawing(f"--html draws with vl-convert, which is not installed: {extras.install('html')}") from None
    drawn = vl_convert.vegalite_to_svg(
        {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "config": CONFIG, **spec}
    )
    width, height = re.match(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', drawn).groups()
    head = f'<svg role="img" aria-label="{title}" viewBox="0 0 {width} {height}" style="max-width:{width}px">'
    return head + drawn[drawn.index(">") + 1 :]


def curve(section: Facts, width: int = WIDE) -> str | None:
    """Best so far over trials, one line a run, the baselines as rules; None where nothing was accepted."""
    curves = [c for c in section["curves"] if c["steps"]]
    if not curves:
        return None
    first = curves[0]["run"]
    points = [
        {
            **s,
            "run": c["run"],
            "name": c["name"],
            "best": c["run"] == first,
            "said": f"{c['name']}: {s['speedup']:.3f}x the seed at trial {s['trial']}, {s['kernel']} ({s['edit']})",
        }
        for c in curves
        for s in c["steps"]
    ]
    rules = [b for b in section["baselines"] if "speedup" in b]
    low = min([1.0, *(p["speedup"] for p in points), *(b["speedup"] for b in rules)])
    high = max([1.05, *(p["speedup"] for p in points), *(b["speedup"] for b in rules)])
    scale = {"type": "log" if high / low > 5 else "linear", "domain": [low / 1.03, high * 1.05], "nice": False}
    ticks = min(max(p["trial"] for p in points) or 1, width // 45)
    x = {"field": "trial", "type": "quantitative", "title": "trial", "axis": {"grid": False, "tickCount": ticks}}
    y = {
        "field": "speedup",
        "type": "quantitative",
        "scale": scale,
        "title": f"x the seed ({section['evidence']})",
        **({"axis": {"values": _round_numbers(*scale["domain"])}} if scale["type"] == "log" else {}),
    }
    colour = {"condition": {"test": "datum.best", "value": ACCENT}, "value": SECOND}
    layers: list[Spec] = [
        {
            "data": {"values": points},
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2.5, "aria": False},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour,
                "detail": {"field": "run"},
                "opacity": {"condition": {"test": "datum.best", "value": 1}, "value": 0.45},
            },
        },
        {
            "data": {"values": [p for p in points if p["best"]]},
            "mark": {"type": "point", "filled": True, "size": 55, "color": ACCENT},
            "encoding": {"x": x, "y": y, "description": {"field": "said"}},
        },
    ]
    if rules:
        layers[:0] = _rules(rules, y, width)
    return svg({"width": width, "height": 260, "layer": layers}, f"Best so far of {section['task']} over trials")


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20, ... inside the range: what a logarithmic axis is labelled with."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [n * 10.0**p for p in powers for n in (1, 2, 5) if low <= n * 10.0**p <= high]


def _rules(baselines: Sequence[Facts], y: Spec, width: int) -> list[Spec]:
    values = [{**b, "said": f"{b['name']}: {b['speedup']:.3f}x the seed (confirmed)"} for b in baselines]
    return [
        {
            "data": {"values": values},
            "mark": {"type": "rule", "strokeDash": [5, 4], "color": MUTED},
            "encoding": {"y": y, "description": {"field": "said"}},
        },
        {
            "data": {"values": values},
            "mark": {
                "type": "text",
                "align": "right",
                "x": width,
                "dy": -5,
                "color": MUTED,
                "fontSize": 11,
                "aria": False,
            },
            "encoding": {"y": y, "text": {"field": "name"}},
        },
    ]


def shares(section: Facts, width: int = WIDE) -> str | None:
    """The share of the measured roofline that each contestant reached at each shape; None where nothing was confirmed."""
    rows = []
    for shape in (section["confirmed"] or {}).get("shapes", ()):
        if not shape["roofline"]:
            continue
        floor_us = shape["roofline"] * shape["time_us"]
        timed = [{"name": "found", "time_us": shape["time_us"]}, *(b for b in shape["baselines"] if b.get("time_us"))]
        for one in timed:
            share = floor_us / one["time_us"]
            rows.append(
                {
                    "shape": shape["label"],
                    "name": one["name"],
                    "share": share,
                    "found": one["name"] == "found",
                    "text": f"{share:.0%}",
                    "said": f"{one['name']}, {shape['label']}: {share:.1%} of the measured roofline, {one['time_us']:.1f} us",
                }
            )
    if not rows:
        return None
    top = max(1.0, *(r["share"] for r in rows))
    title = ["share of this device's measured roofline (confirmed)"]
    x = {
        "field": "share",
        "type": "quantitative",
        "title": title if width >= WIDE else ["share of the roofline", "measured here (confirmed)"],
        "axis": {"format": ".0%", "tickCount": width // 70},
        "scale": {"domain": [0, top * 1.08]},
    }
    y = {
        "field": "name",
        "type": "nominal",
        "title": None,
        "sort": {"field": "share", "order": "descending"},
        "axis": {"labelColor": INK, "ticks": False, "domain": False},
    }
    bars: list[Spec] = [
        {
            "mark": {"type": "bar", "cornerRadiusEnd": 3, "height": {"band": 0.7}},
            "encoding": {
                "x": x,
                "y": y,
                "color": {"condition": {"test": "datum.found", "value": ACCENT}, "value": SECOND},
                "description": {"field": "said"},
            },
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 4, "color": MUTED, "fontSize": 11, "aria": False},
            "encoding": {"x": x, "y": y, "text": {"field": "text"}},
        },
        {"mark": {"type": "rule", "color": INK, "strokeDash": [2, 3], "aria": False}, "encoding": {"x": {"datum": 1}}},
    ]
    facet = {
        "row": {
            "field": "shape",
            "title": None,
            "header": {
                "labelColor": MUTED,
                "labelAngle": 0,
                "labelAlign": "left",
                "labelOrient": "top",
                "labelAnchor": "start",
                "labelFontSize": 12,
            },
        }
    }
    spec = {
        "data": {"values": rows},
        "facet": facet,
        "spec": {"width": width - (110 if width >= WIDE else 60), "height": {"step": 22}, "layer": bars},
        "resolve": {"scale": {"y": "independent"}},
        "spacing": 14,
    }
    return svg(spec, f"Share of the roofline of {section['task']}")


def roofline(section: Facts, width: int = WIDE) -> str | None:
    """The classical picture, arithmetic intensity against rate on this device's own ceilings.

    One point a shape for the kernel found and for the seed; None without confirmed times, bytes, flops or ceilings.
    """
    ceilings, confirmed = section["ceilings"], section["confirmed"]
    peaks = {
        n.removeprefix("matmul_").removesuffix("_tflops"): v for n, v in ceilings.items() if n.startswith("matmul_")
    }
    gbps = ceilings.get("copy_gbps")
    sizes = {s["key"]: s for s in section["sizes"] if s.get("bytes_moved") and s.get("flops")}
    if not confirmed or not gbps or not peaks or not sizes:
        return None
    points = []
    for shape in confirmed["shapes"]:
        size = sizes.get(shape["shape"])
        if size is None:
            continue
        seed = next((b["time_us"] for b in shape["baselines"] if b["name"] == "seed" and b.get("time_us")), None)
        for name, us in (("found", shape["time_us"]), ("seed", seed)):
            if us:
                rate, intensity = size["flops"] / us / 1e6, size["flops"] / size["bytes_moved"]
                points.append(
                    {
                        "intensity": intensity,
                        "rate": rate,
                        "found": name == "found",
                        "said": f"{name}, {shape['label']}: {rate:.1f} TFLOP/s at {intensity:.1f} flop/byte",
                    }
                )
    if not points:
        return None
    left = min(p["intensity"] for p in points) / 4
    right = max(max(p["intensity"] for p in points), max(peaks.values()) * 1e3 / gbps) * 4
    roofs = []
    for name, peak in peaks.items():
        knee = peak * 1e3 / gbps
        roofs += [{"dtype": name, "intensity": i, "rate": min(peak, i * gbps / 1e3)} for i in (left, knee, right)]
    bottom = min([*(p["rate"] for p in points), left * gbps / 1e3]) / 2
    x = {
        "field": "intensity",
        "type": "quantitative",
        "title": "flop / byte",
        "scale": {"type": "log", "domain": [left, right], "nice": False},
        "axis": {"tickCount": _decades(left, right)},
    }
    y = {
        "field": "rate",
        "type": "quantitative",
        "title": "TFLOP/s",
        "scale": {"type": "log", "domain": [bottom, max(peaks.values()) * 2], "nice": False},
        "axis": {"tickCount": _decades(bottom, max(peaks.values()))},
    }
    ends = [r for r in roofs if r["intensity"] == right]
    spec = {
        "width": width,
        "height": 260,
        "layer": [
            {
                "data": {"values": roofs},
                "mark": {"type": "line", "color": MUTED, "aria": False},
                "encoding": {"x": x, "y": y, "detail": {"field": "dtype"}},
            },
            {
                "data": {"values": ends},
                "mark": {"type": "text", "align": "right", "dy": -6, "color": MUTED, "fontSize": 11, "aria": False},
                "encoding": {"x": x, "y": y, "text": {"field": "dtype"}},
            },
            {
                "data": {"values": points},
                "mark": {"type": "point", "filled": True, "size": 80},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": {"condition": {"test": "datum.found", "value": ACCENT}, "value": SECOND},
                    "description": {"field": "said"},
                },
            },
        ],
    }
    return svg(spec, f"Roofline of {section['task']}")


def _decades(low: float, high: float) -> int:
    return max(2, math.ceil(math.log10(high / low)))
