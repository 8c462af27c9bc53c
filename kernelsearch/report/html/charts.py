"""Charts of the HTML page: Vega-Lite specifications, drawn to SVG when the page is written.

Colours are the page's CSS variables, so that one drawing serves light and dark; every mark has an aria-label, which
a screen reader speaks and the page's script shows under the pointer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from kernelsearch.core import extras
from kernelsearch.core.errors import KernelsearchError

Spec = dict[str, Any]
Facts = Mapping[str, Any]

WIDE, NARROW = 880, 290
"""Inner widths of a drawing in pixels: for a screen, and for a phone, where the wide one would be cut."""
INK, MUTED, RULE, ACCENT, SECOND = (f"var(--{n})" for n in ("ink", "muted", "rule", "accent", "second"))
_FOUND: Spec = {"condition": {"test": "datum.found", "value": ACCENT}, "value": SECOND}
"""The colour of the kernel found, and of all others."""

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


def draw_svg(spec: Spec, title: str) -> str:
    """An SVG element that scales with its container; title is its accessible name.

    Raises KernelsearchError if vl-convert is missing.
    """
    try:
        import vl_convert
    except ImportError:
        hint = extras.install_command("html")
        raise KernelsearchError(f"--html draws with vl-convert, which is not installed: {hint}") from None
    schema = "https://vega.github.io/schema/vega-lite/v5.json"
    drawn = vl_convert.vegalite_to_svg({"$schema": schema, "config": CONFIG, **spec})
    width, height = re.match(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', drawn).groups()
    head = f'<svg role="img" aria-label="{title}" viewBox="0 0 {width} {height}" style="max-width:{width}px">'
    return head + drawn[drawn.index(">") + 1 :]


def _quantity(field: str, title: str | list[str], **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


def _layer(mark: Spec, values: list[Spec] | None = None, description: bool = False, **encoding: Spec) -> Spec:
    """One layer; with a description each mark has its row's `label` as aria-label, without one it has none."""
    encoding |= {"description": {"field": "label"}} if description else {}
    layer = {"mark": mark if description else {"aria": False, **mark}, "encoding": encoding}
    return layer if values is None else {"data": {"values": values}, **layer}


def _text(align: str, **more: Any) -> Spec:
    return {"type": "text", "align": align, "color": MUTED, "fontSize": 11, **more}


def draw_curve(section: Facts, width: int = WIDE) -> str | None:
    """Best so far over trials, one line a run, the baselines as rules; None if nothing was accepted."""
    curves = [c for c in section["curves"] if c["steps"]]
    if not curves:
        return None
    points = []
    for c in curves:
        for s in c["steps"]:
            label = f"{c['name']}: {s['speedup']:.3f}x the seed at trial {s['trial']}, {s['kernel']} ({s['edit']})"
            points.append({**s, "run": c["run"], "name": c["name"], "best": c is curves[0], "label": label})
    baselines = [b for b in section["baselines"] if "speedup" in b]
    speedups = [row["speedup"] for row in (*points, *baselines)]
    low, high = min([1.0, *speedups]), max([1.05, *speedups])
    scale = {"type": "log" if high / low > 5 else "linear", "domain": [low / 1.03, high * 1.05], "nice": False}
    ticks = min(max(p["trial"] for p in points) or 1, width // 45)
    x = _quantity("trial", "trial", axis={"grid": False, "tickCount": ticks})
    y = _quantity("speedup", f"x the seed ({section['evidence']})", scale=scale)
    if scale["type"] == "log":
        y["axis"] = {"values": _round_numbers(*scale["domain"])}
    rules = [{**b, "label": f"{b['name']}: {b['speedup']:.3f}x the seed (confirmed)"} for b in baselines]
    best = {"test": "datum.best", "value": ACCENT}
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 2.5}
    styles: Spec = {
        "color": {"condition": best, "value": SECOND},
        "detail": {"field": "run"},
        "opacity": {"condition": {**best, "value": 1}, "value": 0.45},
    }
    dot = {"type": "point", "filled": True, "size": 55, "color": ACCENT}
    layers = [
        _layer({"type": "rule", "strokeDash": [5, 4], "color": MUTED}, rules, True, y=y),
        _layer(_text("right", x=width, dy=-5), rules, y=y, text={"field": "name"}),
        _layer(line, points, x=x, y=y, **styles),
        _layer(dot, [p for p in points if p["best"]], True, x=x, y=y),
    ]
    spec = {"width": width, "height": 260, "layer": layers if rules else layers[2:]}
    return draw_svg(spec, f"Best so far of {section['task']} over trials")


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20, ... inside the range: the labels of a logarithmic axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [n * 10.0**p for p in powers for n in (1, 2, 5) if low <= n * 10.0**p <= high]


def draw_shares(section: Facts, width: int = WIDE) -> str | None:
    """The share of the measured roofline that each contestant reached at each shape; None if nothing was confirmed."""
    rows = []
    for shape in (section["confirmed"] or {}).get("shapes", ()):
        if not shape["roofline"]:
            continue
        floor_us = shape["roofline"] * shape["time_us"]
        timed = [{"name": "found", "time_us": shape["time_us"]}, *(b for b in shape["baselines"] if b.get("time_us"))]
        for one in timed:
            name, share = one["name"], floor_us / one["time_us"]
            label = f"{name}, {shape['label']}: {share:.1%} of the measured roofline, {one['time_us']:.1f} us"
            row = {"shape": shape["label"], "name": name, "share": share, "found": name == "found"}
            rows.append({**row, "text": f"{share:.0%}", "label": label})
    if not rows:
        return None
    wide = width >= WIDE
    title = ["share of this device's measured roofline (confirmed)"]
    x = _quantity(
        "share",
        title if wide else ["share of the roofline", "measured here (confirmed)"],
        axis={"format": ".0%", "tickCount": width // 70},
        scale={"domain": [0, max([1.0, *(r["share"] for r in rows)]) * 1.08]},
    )
    y = {
        "field": "name",
        "type": "nominal",
        "title": None,
        "sort": {"field": "share", "order": "descending"},
        "axis": {"labelColor": INK, "ticks": False, "domain": False},
    }
    bars = [
        _layer({"type": "bar", "cornerRadiusEnd": 3, "height": {"band": 0.7}}, None, True, x=x, y=y, color=_FOUND),
        _layer(_text("left", dx=4), x=x, y=y, text={"field": "text"}),
        _layer({"type": "rule", "color": INK, "strokeDash": [2, 3]}, x={"datum": 1}),
    ]
    label = {"Angle": 0, "Align": "left", "Orient": "top", "Anchor": "start", "FontSize": 12, "Color": MUTED}
    header = {f"label{name}": value for name, value in label.items()}
    spec = {
        "data": {"values": rows},
        "facet": {"row": {"field": "shape", "title": None, "header": header}},
        "spec": {"width": width - (110 if wide else 60), "height": {"step": 22}, "layer": bars},
        "resolve": {"scale": {"y": "independent"}},
        "spacing": 14,
    }
    return draw_svg(spec, f"Share of the roofline of {section['task']}")


def draw_roofline(section: Facts, width: int = WIDE) -> str | None:
    """Arithmetic intensity against rate under this device's own ceilings (Williams et al. 2009).

    One point a shape for the kernel found and for the seed; None without confirmed times, bytes, flops or ceilings.
    """
    ceilings, confirmed = section["ceilings"], section["confirmed"]
    matmuls = {name: tflops for name, tflops in ceilings.items() if name.startswith("matmul_")}
    peaks = {n.removeprefix("matmul_").removesuffix("_tflops"): tflops for n, tflops in matmuls.items()}
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
                label = f"{name}, {shape['label']}: {rate:.1f} TFLOP/s at {intensity:.1f} flop/byte"
                points.append({"intensity": intensity, "rate": rate, "found": name == "found", "label": label})
    if not points:
        return None
    top = max(peaks.values())
    left = min(p["intensity"] for p in points) / 4
    right = max(*(p["intensity"] for p in points), top * 1e3 / gbps) * 4
    bottom = min(*(p["rate"] for p in points), left * gbps / 1e3) / 2
    roofs = [
        {"dtype": name, "intensity": i, "rate": min(peak, i * gbps / 1e3)}
        for name, peak in peaks.items()
        for i in (left, peak * 1e3 / gbps, right)
    ]

    def axis(field: str, title: str, low: float, high: float, last: float) -> Spec:
        scale = {"type": "log", "domain": [low, high], "nice": False}
        return _quantity(field, title, scale=scale, axis={"tickCount": max(2, math.ceil(math.log10(last / low)))})

    x = axis("intensity", "flop / byte", left, right, right)
    y = axis("rate", "TFLOP/s", bottom, top * 2, top)
    ends, dot = [r for r in roofs if r["intensity"] == right], {"type": "point", "filled": True, "size": 80}
    layers = [
        _layer({"type": "line", "color": MUTED}, roofs, x=x, y=y, detail={"field": "dtype"}),
        _layer(_text("right", dy=-6), ends, x=x, y=y, text={"field": "dtype"}),
        _layer(dot, points, True, x=x, y=y, color=_FOUND),
    ]
    return draw_svg({"width": width, "height": 260, "layer": layers}, f"Roofline of {section['task']}")
