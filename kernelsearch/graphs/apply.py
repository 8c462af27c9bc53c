"""`apply`: proof in place. Each kernel is timed inside its model's graphs, in pairs with the graphs without it.

A graph is compiled once more for each kernel and called with the inputs of the script's last call. A kernel that does
not gain there is left out, with its reason; what is left is timed as a whole, and its results are compared with those
of the compiled model without us and with those of its operations run one by one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.fx import Interpreter

from kernelsearch.core.errors import StoreError
from kernelsearch.core.formats import format_count, format_interval
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Evidence
from kernelsearch.graphs.costs import time_calls
from kernelsearch.graphs.model_options import load_kernels
from kernelsearch.graphs.region_report import align, total_by_region
from kernelsearch.graphs.replace import PlacedKernels, RegionKernel, layouts_of
from kernelsearch.graphs.task_text import RegionTask
from kernelsearch.graphs.watch import WatchedGraph, run_script
from kernelsearch.measure.timing.confirm_rules import Block, draw_order, log_ratios_of
from kernelsearch.measure.timing.paired_statistics import Interval, bootstrap_interval
from kernelsearch.record import region_rows
from kernelsearch.record.store import Store

BLOCKS = 40
WITH, WITHOUT = "with", "without"
ALLOWED = 2.0  # times the error that the compiled graph itself makes against its operations one by one
LEAST_ERROR, FAR_ERROR = 1e-3, 0.1
ALLOWED_NOISE = 10.0  # the same where that error is about as large as the result, whose true value may be zero
STOOD_IN = (
    "no GPU here: each region ran as an operator made of its own operations, which tries its place; no kernel ran, and "
    "nothing was timed"
)
RANDOM = ("rand", "dropout", "bernoulli", "multinomial", "normal_functional", "inductor_seed")


class Call(NamedTuple):
    """A graph, what it is compiled to with kernels, and the regions that these replaced."""

    graph: WatchedGraph
    run: Callable[[list[Any]], Any]
    replaced: Sequence[str] = ()


def apply(script: str, arguments: Sequence[str], db: str, evidence: Evidence, say: Say) -> str:
    """Runs a script, and tries a database's kernels in its graphs; a table in words. Raises StoreError, TaskError."""
    if not Path(db).exists():
        raise StoreError(f"no database at {db}: `kernelsearch collect {script} --db {db}` makes one of this model")
    graphs = run_script(script, arguments)
    name, on_gpu = " ".join([script, *arguments]), torch.cuda.is_available()
    kernels = load_kernels(db, evidence, say, placed=False) if on_gpu else stand_in(graphs, db)
    found = [d for d in kernels if any(d == t.digest for g in graphs for _, t in g.regions)]
    if not found:
        return f"{name}: no kernel of {db} fits its {len(graphs)} graphs: it runs as torch.compile makes it"
    if not on_gpu:
        calls = _place(graphs, [kernels[d] for d in found], say)
        ran = {digest for call in calls for digest in call.replaced}
        lost = [f"region {d} was not found again in its graph: it stays torch.compile's" for d in found if d not in ran]
        lines = [*_compare(calls, f"with {format_count(len(ran), 'region')} as operators"), *lost]
        return "\n".join([*lines, STOOD_IN])
    device, rows, kept = torch.cuda.get_device_name(), [], []
    with Store.open(db) as store:
        uses = [u for u in region_rows.load_uses(store) if (u["model"], u["device"]) == (name, device)]
        shares = {row["region"]: row["share"] for row in total_by_region(uses)}

        def place(digest: str, reason: str, gain: Interval | None) -> None:
            ends = dict(gain=gain.ratio, gain_low=gain.low, gain_high=gain.high) if gain else {}
            own = {"region": digest, "model": name, "device": device, "kernel": kernels[digest].identity}
            region_rows.add_placement(store, {**own, **ends, "used": int(not reason), "reason": reason})

        for digest in sorted(found, key=lambda d: -shares.get(d, 0.0)):
            calls = _place(graphs, [kernels[digest]], say)
            gain = _time(calls) if calls else None
            reason = _judge(calls, gain) if gain is not None else "its sizes or layouts here were not judged"
            kept += [] if reason else [digest]
            place(digest, reason, gain)
            shown = format_interval(vars(gain)) if gain else "-"
            rows.append((digest, f"{shares.get(digest, 0.0):.1%}", shown, reason or "used"))
        lines = align(("region", "share", "its graphs, with it", ""), rows)
        calls = _place(graphs, [kernels[d] for d in kept], say)
        if not calls:
            return "\n".join([*lines, "", "no kernel gains in place: the model is left as it is"])
        others = [Call(g, g.run) for g in graphs if all(g is not call.graph for call in calls)]
        gain = _time([*calls, *others])
        lines += ["", *_compare(calls)]
        lines.append(f"the whole step (its {len(graphs)} graphs): {format_interval(vars(gain))} (measured in pairs)")
        reason = "together they gain nothing" if gain.low < 1.0 else next(filter(None, map(_explain_error, calls)), "")
        for digest in kept if reason else ():
            place(digest, reason, gain)
        if reason:
            lines.append(f"nothing is used: {reason}")
    return "\n".join(lines)


def stand_in(graphs: Sequence[WatchedGraph], db: str) -> dict[str, RegionKernel]:
    """The operations of each region that a database knows in the place of a kernel, at the sizes that are here."""
    with Store.open(db, write=False) as store:
        known = region_rows.load_regions(store)
    seen: dict[str, list[RegionTask]] = {}
    for task in (task for graph in graphs for _, task in graph.regions if task.digest in known):
        seen.setdefault(task.digest, []).append(task)
    kernels = {}
    for digest, tasks in seen.items():
        scope = tasks[0].load()
        with torch.device("meta"):
            judged = frozenset(layouts_of(scope["get_inputs"](**task.sizes)) for task in tasks)
        counts, call = (len(tasks[0].inputs), len(tasks[0].outputs)), scope["reference"]
        kernels[digest] = RegionKernel(digest, "its own operations", call, call, *counts, judged)
    return kernels


def _place(graphs: Sequence[WatchedGraph], kernels: Sequence[RegionKernel], say: Say) -> list[Call]:
    """The graphs that have a region of these kernels, each compiled with them."""
    calls = []
    for graph in graphs:
        if {k.region for k in kernels} & {task.digest for _, task in graph.regions}:
            record = PlacedKernels({k.region: k for k in kernels}, say)
            compiled = graph.compile(record.make_pass())
            if record.replaced:
                calls.append(Call(graph, compiled, record.replaced))
    return calls


def _time(calls: Sequence[Call]) -> Interval:
    """The time without over that with, of all these graphs one after another, each counted as often as a step calls it,
    in blocks A B B A."""
    rng, blocks = random.Random(0), list[Block]()
    for number in range(BLOCKS):
        block = []
        for contestant in draw_order((WITH, WITHOUT), (), number, rng):
            total = 0.0
            for graph, compiled, _ in calls:
                inputs, run = graph.copy_inputs(), compiled if contestant == WITH else graph.run
                with torch.no_grad():
                    total += graph.times * time_calls(lambda: run(list(inputs)), 1, 0 if number else 2)[0]  # noqa: B023
            block.append((contestant, total))
        blocks.append(tuple(block))
    gain = bootstrap_interval([log_ratios_of(blocks, WITH, WITHOUT)])
    assert gain is not None  # so many blocks are enough
    return gain


def _judge(calls: Sequence[Call], gain: Interval) -> str:
    """Why a kernel is not used in place; empty where it gains."""
    lost = f"no gain in place, {format_interval(vars(gain))}: a lost fusion, host time or L2"
    return next(filter(None, map(_explain_error, calls)), "" if gain.low > 1.0 else lost)


def _explain_error(call: Call) -> str:
    """What is wrong with a graph's results with kernels; empty where they are as near to eager's as without."""
    found = _find_error(call)
    return f"the {call.graph.direction} graph's results {found.describe()}" if found.is_wrong else ""


def _compare(calls: Sequence[Call], how: str = "with kernels") -> list[str]:
    """Lines on how far results (loss, gradients) are from those of the operations one by one, with and without us."""
    lines = []
    for call in calls:
        what = "gradients" if call.graph.direction == "backward" else "results, a loss among them,"
        lines.append(f"{call.graph.direction} graph: {what} {_find_error(call).describe(how)}")
    return lines


@dataclass(frozen=True)
class Error:
    """How far a result with our kernels is from the operations' own, one by one (eager), and how far it is without us;
    usual is None where it is compared with that without us. least: so much is always allowed."""

    ours: float = 0.0
    usual: float | None = 0.0
    least: float = LEAST_ERROR

    @property
    def is_wrong(self) -> bool:
        usual = self.usual or 0.0
        return self.ours > max((ALLOWED if usual <= FAR_ERROR else ALLOWED_NOISE) * usual, self.least)

    def describe(self, how: str = "with kernels") -> str:
        if self.usual is None:
            return f"differ from torch.compile's by {self.ours:.1e} {how} (its random numbers are not eager's)"
        return f"differ from eager by {self.ours:.1e} {how}, {self.usual:.1e} without"


def _find_error(call: Call) -> Error:
    """The error of the result that is worst. What a graph writes in place is a result too."""
    graph, compiled, _ = call
    results, eager = [], Interpreter(graph.module)
    for run in (lambda inputs: eager.run(*inputs), graph.run, compiled):
        torch.manual_seed(0)
        given = graph.copy_inputs()
        with torch.no_grad():
            made = run(list(given))
        results.append([x.detach() for x in (*made, *(given if graph.mutates else ())) if isinstance(x, torch.Tensor)])
    random_numbers = any(part in str(n.target) for n in graph.module.graph.nodes for part in RANDOM)
    errors = [_compare_results(e, u, o, random_numbers) for e, u, o in zip(*results, strict=True)]
    return max(errors, key=lambda e: (e.is_wrong, e.usual is not None, e.ours, e.usual), default=Error())


def _compare_results(exact: torch.Tensor, usual: torch.Tensor, ours: torch.Tensor, random_numbers: bool) -> Error:
    """Inductor draws random numbers otherwise, and may overflow where eager does not: then that is what we compare."""
    error = _distance(usual, exact)
    if error > FAR_ERROR and (random_numbers or math.isinf(error)):
        rounding = torch.finfo(usual.dtype).eps if usual.dtype.is_floating_point else 0.0
        return Error(_distance(ours, usual), None, max(LEAST_ERROR, 2 * rounding))
    return Error(_distance(ours, exact), error)


def _distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The error of a result, by its norm or by its largest element; infinite where one is not finite. Of integers and
    truth values it is the share of those that differ."""
    if not exact.numel():
        return 0.0
    a, b = (torch.view_as_real(x) if x.is_complex() else x for x in (found, exact))
    if not b.is_floating_point():
        return float((a != b).float().mean())
    a, b = a.float(), b.float()
    same = (a == b) | (a.isnan() & b.isnan())
    if bool((~same & ~(a.isfinite() & b.isfinite())).any()):
        return math.inf
    away, size = (a - b).masked_fill(same, 0.0), b.masked_fill(~b.isfinite(), 0.0)
    return max(float(m(away)) / (float(m(size)) or 1.0) for m in (torch.norm, lambda v: v.abs().max()))
