"""`collect`: runs a script, stores the regions of its compiled graphs as tasks, and says what could be gained."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import StoreError
from kernelsearch.core.files import write_user_file
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Evidence
from kernelsearch.graphs import costs
from kernelsearch.graphs.task_text import VERSION, RegionTask
from kernelsearch.graphs.watch import WatchedGraph, run_script
from kernelsearch.kernel.targets import Target
from kernelsearch.record import region_rows
from kernelsearch.record.store import Store
from kernelsearch.trial.bench import choose_target

PLAIN = "convert_element_type scalar_tensor full view permute expand unsqueeze squeeze clone".split()
"""Operations that name no region."""
MOST_SHAPES = 8  # sizes of a region that are timed, those that were seen most often


def collect(script: str, arguments: Sequence[str], db: str, target: str, say: Say) -> dict[str, Any]:
    """Runs a script and stores what its graphs are made of; `region_report.write_report` says it in words.

    Raises TaskError for a script that fails or compiles nothing.
    """
    machine, device = choose_target(target)
    graphs = run_script(script, arguments)
    name = " ".join([script, *arguments])
    regions, uses = _count(graphs, machine, 0.0 if device else machine.launch_us)
    where = device.name if device else machine.name
    if device:
        say(f"measuring {len(graphs)} graphs and {len(uses)} regions on {where}")
        total = _measure(graphs, regions, uses)
    else:
        total = _sum_times(graphs, lambda graph: costs.estimate_rest(graph, machine))
    region_us = sum(use["uses"] * use["time_us"] for use in uses)
    step = total.get("step") or region_us + sum(total.values())
    model = {"name": name, "device": where, "torch": VERSION, "step_us": step, "region_us": region_us}
    model |= {f"{kind}_us": float(total[kind]) for kind in ("product", "attention")}
    model["evidence"] = (Evidence.MEASURED if device else Evidence.ESTIMATED).value
    for use in uses:
        use |= {"model": name, "device": where}
    facts = {digest: {"name": name_region(t.operations), "code": t.text} for digest, t in regions.items()}
    rows = [{"digest": digest, "torch": VERSION, **own} for digest, own in facts.items()]
    with Store.open(db, say=say) as store:
        region_rows.add_model(store, model, rows, uses)
        write_tasks(store, db, regions)
        uses = [u for u in region_rows.load_uses(store) if (u["model"], u["device"]) == (name, where)]
    counts = {"graphs": len(graphs), "calls": sum(graph.times for graph in graphs)}
    return {"model": model, "regions": facts, "uses": uses, **counts}


def name_region(operations: Sequence[str]) -> str:
    """A region in a few words: its operations, each once, without those that only convert."""
    words = [o for o in dict.fromkeys(operations) if o not in PLAIN] or operations
    return " ".join(words[:7]) + (" ..." if len(words) > 7 else "")


def _count(
    graphs: Sequence[WatchedGraph], target: Target, launch_us: float
) -> tuple[dict[str, RegionTask], list[dict[str, Any]]]:
    """(The distinct regions by digest, rows of where they are used, each with an estimated time, a launch in it)."""
    tasks: dict[str, RegionTask] = {}
    found: dict[tuple[str, str, tuple[tuple[str, int], ...]], dict[str, Any]] = {}
    for graph in graphs:
        for region, task in graph.regions:
            tasks.setdefault(task.digest, task)
            moved, flops = costs.count_region(region)
            floor = costs.find_floor_us(moved, flops, target)
            times = dict(time_us=launch_us + costs.OVER_FLOOR["region"] * floor, least_us=launch_us + floor)
            key = (task.digest, graph.direction, tuple(task.sizes.items()))
            new = dict(zip(("region", "direction", "sizes"), key)) | dict(sizes=dict(task.sizes), uses=0, bytes=moved)
            use = found.setdefault(key, new | times)
            use["uses"] += graph.times
    return tasks, list(found.values())


def _sum_times(
    graphs: Sequence[WatchedGraph], count: Callable[[WatchedGraph], Mapping[str, float]]
) -> dict[str, float]:
    """What count gives for each graph, by kind, as often as a step calls it; 0 for other kinds."""
    total = defaultdict[str, float](float)
    for graph in graphs:
        for kind, us in count(graph).items():
            total[kind] += graph.times * us
    return total


def _measure(
    graphs: Sequence[WatchedGraph], regions: Mapping[str, RegionTask], uses: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Puts the measured times into uses; the step's times by kind."""
    total = _sum_times(graphs, costs.measure_graph)
    for use in uses:
        use["time_us"] = max(use["least_us"], costs.measure_region(regions[use["region"]], use["sizes"]))
    alone = sum(use["uses"] * use["time_us"] for use in uses)
    for use in uses if total["fused"] else ():  # together they take no longer than the step's fused kernels
        use["time_us"] *= min(1.0, total["fused"] / alone)
    return total


def folder_of(db: str) -> Path:
    """Where the task files of a database's regions lie."""
    return Path(db).with_name(f"{Path(db).stem}_regions")


def file_of(db: str, digest: str) -> Path:
    """The task file of a region, which is code: only what this process saw is written there, never a database's text.

    Raises StoreError for what is no digest.
    """
    if not re.fullmatch("[0-9a-f]+", digest):
        raise StoreError(f"{db} has a region that has no digest: {digest!r}")
    return folder_of(db) / f"region_{digest}.py"


def write_tasks(store: Store, db: str, regions: Mapping[str, RegionTask]) -> None:
    """Writes the task file of each of these regions, with the sizes that were seen most often as its shapes."""
    folder = folder_of(db)
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, Counter[tuple[tuple[str, int], ...]]] = {}
    for use in region_rows.load_uses(store):
        if (task := regions.get(use["region"])) and use["sizes"].keys() == task.sizes.keys():
            sizes = tuple((name, int(use["sizes"][name])) for name in sorted(task.sizes))
            counts.setdefault(use["region"], Counter())[sizes] += use["uses"]
    for digest, found in counts.items():
        shapes = [dict(sizes) for sizes, _ in found.most_common(MOST_SHAPES)]
        name = name_region(regions[digest].operations)
        text = f'"""Region {digest}: {name}."""\n\n{regions[digest].write(shapes[0])}'
        if shapes[0]:
            text += f"\n\nSHAPES = {shapes!r}\n"
        file = file_of(db, digest)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_user_file(file, text)
            for made in folder.glob(f"region_{digest}_seeded*.py"):
                made.unlink()
