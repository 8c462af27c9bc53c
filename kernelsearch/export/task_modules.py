"""The Python modules of one task inside a package: its kernels, its launcher and its reference."""

from __future__ import annotations

import textwrap
from pathlib import Path

from kernelsearch.core import formats
from kernelsearch.core.parsing import parse_python
from kernelsearch.export import ExportError, quote_text, render
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.export.launches import launch_name, write_launch_function
from kernelsearch.export.ship import bound_names, extract_module
from kernelsearch.tasks.module import read_text
from kernelsearch.worker.launcher.fills import leave_out

HELPERS = (
    "aligned cdiv described grid_axis launch_options launched launched_with_workspace next_power_of_2 num_sms "
    "own_grid".split()
)
"""The functions of the package's `_launch.py` that generated launch functions may call."""


def write_task_files(part: ExportedTask) -> dict[str, str]:
    """The files of a task's folder by name, all but its `__init__.py`."""
    files = {f"{part.module_of(d)}.py": _kernel_module(part, d) for d in part.kernels}
    sites = [s.name for s in part.examined.sites]
    ruled = {s.name: f", {s.params!r}, {dict(s.meta)!r}" for s in part.examined.sites if s.ruled}
    lines = [f'{name} = Site("{name}"{ruled.get(name, "")})' for name in sites]
    files["sites.py"] = (
        '"""The kernels that the launcher launches: each passes on to the kernel that was chosen for the call."""\n\n'
        "from .._launch import Site\n\n" + "\n".join(lines) + "\n"
    )
    files.update(_task_modules(part, sites))
    if part.examined.task.baselines:
        files["baselines.py"] = _baselines(part)
    return files


# ---------------------------------------------------------------- launcher and reference


def _task_modules(part: ExportedTask, sites: list[str]) -> dict[str, str]:
    e = part.examined
    path, digest = e.task.path, part.chosen.digest
    roots = {"task": [e.launcher], "reference": []}
    for name, root in (("reference", e.reference), ("get_inputs", "get_inputs")):
        roots[find_defining_module(part, name)].append(root)
    head = f"The launcher, the reference and the inputs of {path.name} (task {digest}), as they were judged."
    ruled = {s.name: s.ruled for s in e.sites if s.ruled}
    text = read_text(path)
    files = {"task.py": extract_module(text, path.name, roots["task"], sites, head, ruled=ruled)}
    for kernel, module in part.launchers:
        fills = {fill for name in part.kernels[kernel].unfilled for fill in e.facts.find_fills(name)}
        less = leave_out(text, sorted(fills)) if all(Path(f.file).samefile(path) for f in fills) else None
        if less is None:
            raise ExportError(f"{path.name}: kernel {kernel} leaves out fills of a launcher in another file")
        said = f"The launcher of {path.name} (task {digest}), without fills of what kernel {kernel} writes."
        files[f"{module}.py"] = extract_module(less, path.name, [e.launcher], sites, said, ruled=ruled)
    if e.companion is not None:
        head = f"The reference of {e.companion.name} (task {digest}), as it was judged against."
        files["reference.py"] = extract_module(read_text(e.companion), e.companion.name, roots["reference"], (), head)
        if e.task.forward is not None:
            files["reference.py"] += render("gradient.jinja", gradient=e.task.forward.gradient, name=e.reference)
    return files


def _baselines(part: ExportedTask) -> str:
    """The task's own baselines, for the benchmark alone: the packages that they import need not be there."""
    path, forward = part.examined.task.path, part.examined.task.forward
    if forward is not None and not getattr(part.examined.task.module, "BASELINES", None):
        return '"""What training runs today, as it was timed."""\n\nfrom .reference import BASELINES\n'
    head = f"The baselines that {path.name} names: the benchmark runs them where what they import is installed."
    try:
        return extract_module(read_text(path), path.name, ["BASELINES"], (), head, lenient=True)
    except ExportError as error:  # the kernels work without them: the benchmark says why a claim is not checked
        return f'"""{quote_text(head)}"""\n\nBASELINES = {{}}\nLEFT_OUT = {str(error)!r}\n'


def find_defining_module(part: ExportedTask, name: str) -> str:
    """The module of the task's folder that holds `reference` or `get_inputs`: `task` or `reference`."""
    if part.examined.companion is None:
        return "task"
    statements = parse_python(read_text(part.examined.task.path)).body
    in_task = name == "get_inputs" and any("get_inputs" in bound_names(s) for s in statements)
    return "task" if in_task else "reference"


# ---------------------------------------------------------------- kernels


def _kernel_module(part: ExportedTask, digest: str) -> str:
    kernel, sites, configs = part.kernels[digest], part.sites_of(digest), part.configs_of(digest)
    launches = [write_launch_function(site, kernel, steps, configs) for site, steps in sites.values()]
    code = "\n\n".join(launches)
    imports, _, body = kernel.code.partition("\n\n\n")
    return render(
        "kernel.py.jinja",
        provenance=_provenance(part, digest),
        imports=imports if "torch." not in code else f"import torch\n{imports}",
        helpers=sorted(h for h in HELPERS if f"{h}(" in code),
        body=body.strip(),
        launches=code,
        sites={site: launch_name(site) for site in sites},
        config=dict(part.seed_config) if digest == part.seed.digest else None,
    )


def _provenance(part: ExportedTask, digest: str) -> str:
    """The docstring of a kernel's module: the rows of the record that it comes from, and its lineage."""
    candidates = [f for f in part.chosen.found if f.digest == digest]
    if digest == part.seed.digest:
        lines = [f"{part.name}: the task's own kernel {digest}, the seed of the search.", ""]
    else:
        lines = [f"{part.name}: kernel {digest}, found by a search.", ""]
    for f in candidates:
        row = f"run {f.run} ({f.run_name}), trial {f.trial}, " if f.run is not None else ""
        config = " ".join(f"{k}={v}" for k, v in f.config.items())
        lines.append(f"{f.evidence.value.capitalize()} on {f.device}: {row}of {f.database}.")
        lines.append(f"Config there: {config or 'none'}.")
    found = next((f for f in candidates if f.ancestors), None)
    if found and len(found.ancestors) > 1:
        lines += ["", "Lineage, from the seed on; gains are over the parent:"]
        for a in found.ancestors:
            at_config, own = formats.format_gain(found.gains.get(a.kernel)), formats.format_gain(a.gain)
            gain = f" ({at_config} with the config above, {own} each with its own best)" if a.gain else ""
            why = " ".join(a.rationale.split())
            step = f"{a.kernel[:8]} {a.edit or 'seed'}{gain}{': ' + why if why else ''}"
            lines += textwrap.wrap(step, 110, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(line[: len(line) - len(line.lstrip())] + quote_text(line) for line in lines).rstrip()
