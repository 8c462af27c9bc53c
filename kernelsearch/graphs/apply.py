"""`apply`: proof in place. Each kernel is timed inside its model's graphs, in pairs with the graphs without it.

A graph is compiled once more for each kernel and called with the inputs of the script's last call. A kernel that does
not gain there is left out, with its reason; what is left is timed as a whole, and its results are compared with those
of the compiled model without us and with those of its operations run one by one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Interpreter

from kernelsearch.core.errors import TaskError
from kernelsearch.core.formats import format_interval
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Evidence
from kernelsearch.graphs.collect import write_tasks
from kernelsearch.graphs.costs import time_calls
from kernelsearch.graphs.model_options import load_kernels
from kernelsearch.graphs.region_report import align
from kernelsearch.graphs.replace import PlacedKernels, RegionKernel, layouts_of
from kernelsearch.graphs.watch import WatchedGraph, run_script
from kernelsearch.measure.timing.confirm_rules import Block, draw_order, log_ratios_of
from kernelsearch.measure.timing.paired_statistics import Interval, bootstrap_interval
from kernelsearch.record import region_rows
from kernelsearch.record.store import Store

BLOCKS = 40
WITH, WITHOUT = "with", "without"
ALLOWED = 2.0
"""Times the error that the compiled graph itself makes against its operations one by one."""
LEAST_ERROR = 1e-3
Calls = list[tuple[WatchedGraph, Callable[[list[Any]], Any]]]


def apply(script: str, arguments: Sequence[str], db: str, evidence: Evidence, say: Say) -> str:
    """Runs a script, and tries a database's kernels in its graphs; a table in words. Raises TaskError."""
    graphs = run_script(script, arguments)
    name, on_gpu = " ".join([script, *arguments]), torch.cuda.is_available()
    kernels = load_kernels(db, evidence, say, placed=False) if on_gpu else stand_in(db)
    found = [d for d in kernels if any(d == t.digest for g in graphs for _, t in g.regions)]
    if not found:
        return f"{name}: no kernel of {db} fits its {len(graphs)} graphs: it runs as torch.compile makes it"
    if not on_gpu:
        lines = _compare(_place(graphs, [kernels[d] for d in found], say))
        return "\n".join([*lines, f"no GPU here: {len(found)} regions ran as operators, nothing was timed"])
    device, rows, kept = torch.cuda.get_device_name(), [], []
    with Store.open(db) as store:
        shares: dict[str, float] = {}
        for use in region_rows.load_uses(store):
            if (use["model"], use["device"]) == (name, device):
                shares[use["region"]] = shares.get(use["region"], 0.0) + use["share"]

        def place(digest: str, reason: str, gain: Interval | None) -> None:
            ends = dict(gain=gain.ratio, gain_low=gain.low, gain_high=gain.high) if gain else {}
            own = {"region": digest, "model": name, "device": device, "kernel": kernels[digest].identity}
            region_rows.add_placement(store, {**own, **ends, "used": int(not reason), "reason": reason})

        for digest in sorted(found, key=lambda d: -shares.get(d, 0.0)):
            calls = _place(graphs, [kernels[digest]], say)
            gain = _time(calls, whole=False) if calls else None
            reason = "its sizes or layouts here were not judged" if not calls else _judge(calls, gain)
            kept += [] if reason else [digest]
            place(digest, reason, gain)
            shown = format_interval(vars(gain)) if gain else "-"
            rows.append((digest, f"{shares.get(digest, 0.0):.1%}", shown, reason or "used"))
        lines = align(("region", "share", "its graphs, with it", ""), rows)
        calls = _place(graphs, [kernels[d] for d in kept], say)
        lines += ["", *_compare(calls)] if calls else ["", "no kernel gains in place: the model is left as it is"]
        if calls:
            gain = _time([*calls, *((g, g.run) for g in graphs if all(g is not own for own, _ in calls))], whole=True)
            lines.append(
                f"the whole step (its {len(graphs)} graphs): {format_interval(vars(gain))} (measured in pairs)"
            )
            if gain.low < 1.0:
                lines.append("that is no gain: nothing is used")
                for digest in kept:
                    place(digest, "together they gain nothing", gain)
    return "\n".join(lines)


def stand_in(db: str) -> dict[str, RegionKernel]:
    """Each region's own operations in the place of a kernel, at the sizes that were seen."""
    kernels = {}
    with Store.open(db) as store:
        write_tasks(store, db)
        uses = region_rows.load_uses(store)
        for digest, row in region_rows.load_regions(store).items():
            sizes = [use["sizes"] for use in uses if use["region"] == digest]
            scope: dict[str, Any] = {}
            exec(compile(row["code"].format(**sizes[0]), "<region>", "exec"), scope)  # text of ours
            with torch.device("meta"):
                inputs = [scope["get_inputs"](**one) for one in sizes]
                result = scope["reference"](*inputs[0])
            count = len(result) if isinstance(result, tuple) else 1
            judged, call = frozenset(map(layouts_of, inputs)), scope["reference"]
            kernels[digest] = RegionKernel(digest, "its own operations", call, call, len(inputs[0]), count, judged)
    return kernels


def _place(graphs: Sequence[WatchedGraph], kernels: Sequence[RegionKernel], say: Say) -> Calls:
    """The graphs that have a region of these kernels, each compiled with them."""
    calls = []
    for graph in graphs:
        if {k.region for k in kernels} & {task.digest for _, task in graph.regions}:
            record = PlacedKernels({k.region: k for k in kernels}, say)
            compiled = graph.compile(record.make_pass())
            if record.replaced:
                calls.append((graph, compiled))
    return calls


def _time(calls: Calls, whole: bool) -> Interval:
    """The time without over that with, of calls of all these graphs one after another, in blocks A B B A."""
    rng, blocks = random.Random(0), list[Block]()
    for number in range(BLOCKS):
        block = []
        for contestant in draw_order((WITH, WITHOUT), (), number, rng):
            total = 0.0
            for graph, compiled in calls:
                inputs, run = graph.copy_inputs(), compiled if contestant == WITH else graph.run
                with torch.no_grad():
                    total += time_calls(lambda run=run, inputs=inputs: run(list(inputs)), 1, 0 if number else 2)[0]
            block.append((contestant, total))
        blocks.append(tuple(block))
    return bootstrap_interval([log_ratios_of(blocks, WITH, WITHOUT)])


def _judge(calls: Calls, gain: Interval) -> str:
    """Why a kernel is not used in place; empty where it gains."""
    for graph, compiled in calls:
        ours, usual = _find_errors(graph, compiled)
        if ours > max(ALLOWED * usual, LEAST_ERROR):
            return f"the {graph.direction} graph's results differ by {ours:.1e}, those without it by {usual:.1e}"
    return "" if gain.low > 1.0 else f"no gain in place, {format_interval(vars(gain))}: a lost fusion, host time or L2"


def _compare(calls: Calls) -> list[str]:
    """Lines on how far results (loss, gradients) are from those of the operations one by one, with and without us."""
    lines = []
    for graph, compiled in calls:
        ours, usual = _find_errors(graph, compiled)
        what = "gradients" if graph.direction == "backward" else "results, a loss among them,"
        lines.append(
            f"{graph.direction} graph: {what} differ from eager by {ours:.1e} with kernels, {usual:.1e} without"
        )
        if ours > max(ALLOWED * usual, LEAST_ERROR):
            raise TaskError(f"{lines[-1]}: more than is allowed")
    return lines


def _find_errors(graph: WatchedGraph, compiled: Callable[[list[Any]], Any]) -> tuple[float, float]:
    """(The largest relative error of a result with our kernels, that without us), against the operations one by one."""
    results = []
    eager = Interpreter(graph.module)
    for run in (lambda inputs: eager.run(*inputs), graph.run, compiled):
        torch.manual_seed(0)
        with torch.no_grad():
            results.append([x.detach() for x in run(graph.copy_inputs()) if isinstance(x, torch.Tensor)])
    exact, usual, ours = results
    return _distance(ours, exact), _distance(usual, exact)


def _distance(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    largest = 0.0
    for a, b in zip(found, exact, strict=True):
        if b.is_floating_point() and b.numel():
            norm = float(b.float().norm())
            away = float((a.float() - b.float()).norm()) / (norm or 1.0)
            largest = max(largest, away if math.isfinite(away) else float(not torch.equal(a.isnan(), b.isnan())))
        elif not torch.equal(a, b):
            largest = math.inf
    return largest
