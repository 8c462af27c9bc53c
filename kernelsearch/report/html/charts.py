"""Charts of the HTML page: Vega-Lite specifications, drawn to SVG when the page is written.

Colours are the page's CSS variables, so that one drawing serves light and dark; every mark has an aria-label, which
a screen reader speaks and the page's script shows under the pointer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

Spec = dict[str, Any]
Facts = Mapping[str, Any]

WIDE, NARROW = 1000, 290
"""Inner widths of a drawing in pixels: for a screen, and for a phone, where the wide one would be cut."""
INK, MUTED, RULE, ACCENT, SECOND = (f"var(--{n})" for n in ("ink", "muted", "rule", "accent", "second"))
HEIGHT = 280
LOWEST = 0.5
"""Trials that are slower stand on the lower edge, so that what is near the best has room."""

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
    "legend": {"labelColor": INK, "labelFontSize": 12},
}


def draw_svg(spec: Spec, title: str) -> str:
    """An SVG element that scales with its container; title is its accessible name."""
    import vl_convert

    schema = "https://vega.github.io/schema/vega-lite/v5.json"
    drawn = vl_convert.vegalite_to_svg({"$schema": schema, "config": CONFIG, **spec})
    size = re.match(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', drawn)
    assert size is not None  # each drawing begins so
    width, height = size.groups()
    named = f'role="graphics-document" aria-label="{title}"'  # an image's marks would not be spoken
    head = f'<svg {named} viewBox="0 0 {width} {height}" style="max-width:{width}px">'
    return head + drawn[drawn.index(">") + 1 :]


def _join_points(drawn: str) -> str:
    """The SVG with neighbouring points that look alike and have no label as one path of dots."""

    def join(group: re.Match[str]) -> str:
        at = re.findall(r"translate\(([-\d.]+),([-\d.]+)\)", group[0])
        dots = "".join(f"M{float(x):.1f} {float(y):.1f}h0" for x, y in at)
        width = "5.6" if group["shape"].count("A") else "4"
        return (
            f'<path d="{dots}" stroke="{group["fill"]}" stroke-linecap="round" stroke-width="{width}" opacity="0.75"/>'
        )

    point = r'<path transform="translate\([-\d.,]+\)[^"]*" d="(?P<shape>[^"]+)" fill="(?P<fill>[^"]+)"[^>]*/>'
    return re.sub(point + r'(?:<path transform="[^"]+" d="(?P=shape)" fill="(?P=fill)"[^>]*/>)+', join, drawn)


def _quantity(field: str, title: str | list[str] | None, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


def _layer(mark: Spec, values: list[Spec] | None = None, description: bool = False, **encoding: Spec) -> Spec:
    """One layer; with a description each mark has its row's `label` as aria-label, without one it has none."""
    encoding |= {"description": {"field": "label"}} if description else {}
    layer = {"mark": mark if description else {"aria": False, **mark}, "encoding": encoding}
    return layer if values is None else {"data": {"values": values}, **layer}


def _text(align: str, **more: Any) -> Spec:
    return {"type": "text", "align": align, "color": MUTED, "fontSize": 11, **more}


def draw_trials(section: Facts, width: int = WIDE) -> str | None:
    """Every trial as a point, rejected ones below by verdict, each run's best so far as a line; None without a trial.

    The fastest baselines of a measured search are rules; what was only estimated has none beside it.
    """
    trials = section["points"]
    timed = [{**t, "speedup": 1 / t["score"], "label": _trial_label(t, section)} for t in trials if t["score"]]
    failed = [{**t, "label": _trial_label(t, section)} for t in trials if not t["score"]]
    baselines = [b for b in section["baselines"] if "speedup" in b and section["evidence"] == "measured"]
    rules = [{**b, "label": f"{b['name']}: {b['speedup']:.3f}x the seed (confirmed)"} for b in baselines]
    if not timed:
        return None
    speedups = [row["speedup"] for row in (*timed, *rules)]
    low, high = min([1.0, *speedups]), max([1.05, *speedups])
    cut, low = low < LOWEST, max(low, LOWEST)
    log = high / low > 5
    edge = [f"slower than {LOWEST}: on the edge"] if cut else []
    y = _quantity("speedup", [f"x the seed ({section['evidence']})", *edge])
    domain = [low if cut else low / 1.03, high * 1.05]
    y["scale"] = {"type": "log" if log else "linear", "domain": domain, "nice": False, "clamp": cut}
    y["axis"] = {"values": _round_numbers(*y["scale"]["domain"])} if log else {}
    names_of_rules = _merge_labels(rules, "speedup", y["scale"], HEIGHT)
    last = max(t["number"] for t in trials)
    ticks, scale = min(last or 1, width // 60), {"domain": [-last / 100 - 0.1, last * 1.01 + 0.1], "nice": False}

    def trial_axis(title: str | None) -> Spec:
        axis = {"grid": False, "tickCount": ticks, **({} if title else {"labels": False, "ticks": False})}
        return _quantity("number", title, axis=axis, scale=scale)

    columns = {"columns": width // 250, "orient": "bottom", "title": None, "labelLimit": width}
    kinds = [kind for kind in _KINDS if any(t["kind"] == kind for t in trials)]
    legend = {"orient": "top", "title": None, "symbolType": "circle", "symbolOpacity": 1}
    color = {"field": "kind", "type": "nominal", "legend": legend}
    color["scale"] = {"domain": kinds, "range": [_KINDS[kind] for kind in kinds]}
    curves, names = _best_so_far(section["runs"], timed)
    dash = {"field": "name", "type": "nominal", "legend": {**columns, "symbolStrokeColor": INK, **_SYMBOL}}
    dash["scale"] = {"domain": names, "range": _DASHES[: len(names)]}
    line = {"type": "line", "interpolate": "step-after", "color": INK, "strokeWidth": 1.6}
    dot, named = {"type": "point", "filled": True, "size": 26, "opacity": 0.75}, len(trials) <= MOST_LABELS
    x = trial_axis(None if failed else "trial")
    layers = [
        _layer({"type": "rule", "strokeDash": [5, 4], "color": MUTED}, rules, True, y=y),
        _layer(_text("right", x=width, dy=-5), names_of_rules, y=y, text={"field": "name"}),
        _layer(dot, timed, named, x=x, y=y, color=color),
        _layer(line, curves, x=x, y=y, strokeDash=dash),
    ]
    above: Spec = {"width": width, "height": HEIGHT, "layer": layers if rules else layers[2:]}
    if failed:
        words = {"field": "verdict", "type": "nominal", "title": None, "axis": {"domain": False, "ticks": False}}
        cross = {"type": "point", "shape": "cross", "size": 50, "filled": True, "angle": 45}
        below = _layer(cross, failed, named, x=trial_axis("trial"), y=words, color=color)
        above = {"vconcat": [above, {"width": width, "height": {"step": 18}, **below}], "spacing": 6}
    return _join_points(draw_svg(above, f"Every trial of {section['task']}, and the best so far of each run"))


_KINDS = {"seed": INK, "rewrite": ACCENT, "retune": SECOND}
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 6], [1, 4]]
"""One for each run that has a name in the legend; the last is for all others together."""
_SYMBOL = {"symbolSize": 900, "symbolStrokeWidth": 2, "columnPadding": 28}
MOST_LABELS = 1500
"""With more trials than this the points have no labels: their text would be larger than all else on the page."""


def _trial_label(trial: Facts, section: Facts) -> str:
    head = f"trial {trial['number']} of run {trial['run']}, {trial['kind']} {trial['kernel'][:8]}"
    edit = f" ({trial['edit']})" if trial["edit"] else ""
    if not trial["score"]:
        return f"{head}{edit}: {trial['verdict']}"
    early = ", stopped early" if trial["abandoned"] else ""
    return f"{head}{edit}: {1 / trial['score']:.3f}x the seed ({section['evidence']}{early})"


def _best_so_far(runs: Sequence[Facts], timed: Sequence[Facts]) -> tuple[list[Spec], list[str]]:
    """The steps of each run's best so far, and the names of the lines; runs after the first six share one name."""
    steps: list[Spec] = []
    names: list[str] = []
    for place, run in enumerate(runs):
        own = [t for t in timed if t["run"] == run["id"] and not t["abandoned"]]
        if not own:
            continue
        name = f"best of run {run['id']} ({run['strategy']}, seed {run['seed']})"
        name = name if place < len(_DASHES) - 1 else "best of each other run"
        names += [] if name in names else [name]
        best = 0.0
        for trial in own:
            if trial["speedup"] > best:
                best = trial["speedup"]
                steps.append({"number": trial["number"], "speedup": best, "name": name, "run": run["id"]})
        steps.append({**steps[-1], "number": run["trials"] - 1})
    return steps, names


def _merge_labels(rows: Sequence[Spec], field: str, scale: Spec, height: int) -> list[Spec]:
    """One label for those whose lines are too near to write beside each other."""
    low, high = scale["domain"]
    log = math.log if scale["type"] == "log" else float
    merged: list[Spec] = []
    for row in sorted(rows, key=lambda r: -r[field]):
        above = merged[-1] if merged else None
        if above and (log(above["least"]) - log(row[field])) / (log(high) - log(low)) * height < 15:
            above.update(name=f"{above['name']}, {row['name']}", least=row[field])
        else:
            merged.append({**row, "least": row[field]})
    return merged


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20, ... inside the range: the labels of a logarithmic axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [n * 10.0**p for p in powers for n in (1, 2, 5) if low <= n * 10.0**p <= high]
