"""The Python modules of one task inside a package: its kernels, its launcher and reference, and the torch operator."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from kernelsearch.core.parsing import parsed
from kernelsearch.export import ship
from kernelsearch.export.autotuned import autotuned
from kernelsearch.export.errors import ExportError
from kernelsearch.export.examine import text_of
from kernelsearch.export.launches import launch_function, launch_name
from kernelsearch.export.part import Part

HELPERS = (
    "aligned",
    "cdiv",
    "grid_axis",
    "launch_options",
    "launched",
    "launched_with_workspace",
    "next_power_of_2",
    "num_sms",
    "own_grid",
)
"""What generated launch functions call; it is in the package's `_launch.py`."""


def task_files(part: Part) -> dict[str, str]:
    """The files of a task's folder by name."""
    files = {f"{part.module_of(d)}.py": _kernel_module(part, d) for d in part.kernels}
    sites = [s.name for s in part.examined.sites]
    lines = [f'{name} = Site("{name}")' for name in sites]
    files["sites.py"] = (
        '"""The kernels that the launcher launches: each passes on to the kernel that was chosen for the call."""\n\n'
        "from .._launch import Site\n\n" + "\n".join(lines) + "\n"
    )
    files.update(_task_modules(part, sites))
    if part.examined.task.baselines:
        files["baselines.py"] = _baselines(part)
    return files


# ---------------------------------------------------------------- launcher and reference


def _task_modules(part: Part, sites: Sequence[str]) -> dict[str, str]:
    e = part.examined
    file = e.task.path.name
    head = f"The launcher, the reference and the inputs of {file} (task {part.chosen.digest}), as they were judged."
    if e.companion is None:
        roots = [e.launcher, e.reference, "get_inputs"]
        roots += ["get_init_inputs"] if e.is_module and hasattr(e.task.module, "get_init_inputs") else []
        return {"task.py": ship.shipped(text_of(e.task.path), file, roots, sites, head).text}
    companion, main = text_of(e.companion), text_of(e.task.path)
    in_main = "get_inputs" in {n for s in parsed(main).body for n in ship.bound_names(s)}
    other = ["reference"] if in_main else ["reference", "get_inputs"]
    own = [e.launcher, "get_inputs"] if in_main else [e.launcher]
    said = f"The reference of {e.companion.name} (task {part.chosen.digest}), as it was judged against."
    task = ship.shipped(main, file, own, sites, head).text
    reference = ship.shipped(companion, e.companion.name, other, (), said).text
    return {"task.py": task, "reference.py": reference}


def _baselines(part: Part) -> str:
    """The task's own baselines, for the benchmark alone: what they import need not be there."""
    task = part.examined.task
    head = f"The baselines that {task.path.name} names: the benchmark runs them where what they import is installed."
    try:
        return ship.shipped(text_of(task.path), task.path.name, ["BASELINES"], (), head, lenient=True).text
    except ExportError as error:  # the kernels can do without: the benchmark says why a claim is not checked
        return f'"""{head}"""\n\nBASELINES = {{}}\nLEFT_OUT = {str(error)!r}\n'


def place_of(part: Part, name: str) -> str:
    """The module that holds `reference` or `get_inputs`, as the operator's module imports it."""
    if part.examined.companion is None:
        return "task"
    in_main = "get_inputs" in {n for s in parsed(text_of(part.examined.task.path)).body for n in ship.bound_names(s)}
    return "task" if name == "get_inputs" and in_main else "reference"


# ---------------------------------------------------------------- kernels


def _kernel_module(part: Part, digest: str) -> str:
    kernel = part.kernels[digest]
    tuned = part.tuned(digest)
    launches, tables = [], []
    configs = part.configs_of(digest)
    for site, steps in part.sites_of(digest).values():
        launches.append(launch_function(site, kernel, steps, configs))
    tables.append(_sites_text("SITES", part.sites_of(digest)))
    if tuned:
        for number, (shape, found) in enumerate(part.buckets(digest)):
            made, names = autotuned(part, kernel, shape, found, number)
            launches.append(made)
            lines = [f'    "{site}": {name},' for site, name in names.items()]
            tables.append(f"SITES_{number} = {{\n" + "\n".join(lines) + "\n}\n")
    if digest == part.seed.digest:
        tables.append(f"CONFIG = {dict(part.examined.facts.config)!r}\n")
    code = "\n\n".join(launches)
    used = sorted(h for h in HELPERS if f"{h}(" in code)
    head, _, body = kernel.code.partition("\n\n\n")
    imports = ["import torch"] if "torch." in code else []
    imports += head.splitlines()
    whole = [_provenance(part, digest), "", *imports]
    whole += ["", f"from .._launch import {', '.join(used)}", "", "", body.strip(), "", "", _RULE, "", "", code]
    return "\n".join(whole) + "\n" + "\n".join(tables)


_RULE = "# ---------------------------------------------------------------- how it is launched"


def _sites_text(name: str, sites: Mapping[str, Any]) -> str:
    lines = [f'    "{site}": {launch_name(site)},' for site in sites]
    return f"\n{name} = {{\n" + "\n".join(lines) + "\n}\n"


def _provenance(part: Part, digest: str) -> str:
    """The docstring of a kernel's module: where it came from, as rows of the record."""
    found = [f for f in part.chosen.found if f.digest == digest]
    if digest == part.seed.digest:
        lines = [f"{part.name}: the task's own kernel {digest}, the seed of the search.", ""]
    else:
        lines = [f"{part.name}: kernel {digest}, found by a search.", ""]
    for f in found:
        where = (
            f"run {f.run} ({f.run_name}), trial {f.trial}, of {f.database}" if f.run is not None else f"of {f.database}"
        )
        config = " ".join(f"{k}={v}" for k, v in f.config.items())
        lines += [f"{f.evidence.value.capitalize()} on {f.device}: {where}.", f"Config there: {config or 'none'}."]
    ancestors = next((f.ancestors for f in found if f.ancestors), ())
    if len(ancestors) > 1:
        lines += ["", "Lineage, from the seed on (gains as the search saw them, each after its own tuning):"]
        for a in ancestors:
            gain = f" ({a.gain:.2f}x)" if a.gain else ""
            why = " ".join(a.rationale.split())
            said = f"{a.kernel[:8]} {a.edit or 'seed'}{gain}{': ' + why if why else ''}"
            lines += textwrap.wrap(said, 110, initial_indent="  ", subsequent_indent="    ")
    text = "\n".join(line.replace("\\", "/").replace('"""', "'''") for line in lines).rstrip()
    return f'"""{text}\n"""'
