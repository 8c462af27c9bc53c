"""`options(db)` and the back end "kernelsearch": the kernels of a database inside a model that torch.compile compiles.

Whatever does not fit (another torch, device, size or layout, no kernel that is faster) stays Inductor's, and is said in
one line, once. The kernels come as the package that `export` makes of the regions' tasks.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelsearch.core.errors import StoreError, TaskError
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Evidence, content_digest, is_gain
from kernelsearch.export import ExportError
from kernelsearch.export.choose import TaskChoice, choose
from kernelsearch.export.package import ExportOptions, export
from kernelsearch.graphs.collect import file_of
from kernelsearch.graphs.replace import PlacedKernels, RegionKernel
from kernelsearch.graphs.task_text import VERSION
from kernelsearch.record import DEFAULT_DB, region_rows
from kernelsearch.record.store import Store
from kernelsearch.report.terminal import make_say

_TOLD: set[str] = set()


def options(db: str = DEFAULT_DB, evidence: str = Evidence.MEASURED.value) -> dict[str, Any]:
    """Options for `torch.compile(model, options=...)`: a pass that puts a database's kernels in place of regions.

    evidence is the weakest that a kernel must have. What `kernelsearch apply` left out on this device is not used.
    The database is trusted like code: its kernels run in this process.
    """
    return _make_options(db, Evidence(evidence))


def kernelsearch(
    module: torch.fx.GraphModule, inputs: Any, *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """The back end: Inductor with `options(db)`, where db is one of its options."""
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    given = dict(options or {})
    ours = _make_options(given.pop("db", DEFAULT_DB), Evidence.MEASURED)
    return compile_fx(module, inputs, config_patches={**list_mode_options(mode or "default"), **ours, **given})


def _make_options(db: str, least: Evidence) -> dict[str, Any]:
    kernels = load_kernels(db, least, say_once)
    return {"post_grad_custom_pre_pass": PlacedKernels(kernels, say_once).make_pass()} if kernels else {}


def say_once(line: str) -> None:
    if line not in _TOLD:
        _TOLD.add(line)
        make_say()(line)


def load_kernels(db: str, least: Evidence, say: Say, placed: bool = True) -> dict[str, RegionKernel]:
    """The kernels that were found for a database's regions and are faster on this device, by region.

    placed: without those that gained nothing in their model.
    """
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    if not Path(db).exists():
        say(f"no database at {db} (`kernelsearch collect` makes one): the model runs as torch.compile makes it")
        return {}
    try:
        with Store.open(db, write=False) as store:
            regions = region_rows.load_regions(store)
            rows = region_rows.load_placements(store) if placed else []
    except StoreError as error:
        say(f"{error}: the model runs as torch.compile makes it")
        return {}
    lost = {(p["region"], p["kernel"]) for p in rows if p["device"] == device and not p["used"]}
    fitting = [d for d, row in regions.items() if row["torch"] == VERSION]
    kernels: dict[str, RegionKernel] = {}
    why = f"it has no kernel that is faster on {device}"
    if device is None:
        why = "there is no GPU here"
    elif regions and not any(row["torch"] == VERSION for row in regions.values()):
        why = f"its regions are of torch {next(iter(regions.values()))['torch']}, this is {VERSION}"
    for region in fitting:
        try:
            if device and (kernel := _open_kernel(db, region, least, device, lost)):
                kernels[region] = kernel
        except (ExportError, TaskError) as error:
            say(f"{db}: region {region} stays torch.compile's: {error}")
    if not kernels:
        say(f"{db}: {why}: the model runs as torch.compile makes it")
    return kernels


def find_searched(db: str, region: str) -> Path | None:
    """The task file of a region for which a kernel was searched; None where there is none."""
    file = file_of(db, region)
    file = file.with_stem(f"{file.stem}_seeded")
    with Store.open(db, write=False) as store:
        searched = region_rows.find_best(store, f"region_{region}")
    return file if file.exists() and searched and searched["score"] else None


def list_faster(choice: TaskChoice) -> dict[str, dict[str, str]]:
    """By device the shapes at which something faster than the seed was found, with what that is."""
    return {
        device: faster
        for device, by_shape in choice.devices.items()
        if (
            faster := {
                shape: f"{found.digest} {sorted(found.config.items())}"
                for shape, found in by_shape.items()
                if not found.is_seed and is_gain(1 / found.ratios.get(shape, 1.0))
            }
        )
    }


def identify(faster: Mapping[str, str]) -> str:
    """What tells the kernels of a region apart, as placements name them."""
    return repr(sorted(faster.items()))


def _open_kernel(
    db: str, region: str, least: Evidence, device: str, lost: Collection[tuple[str, str]]
) -> RegionKernel | None:
    """The kernel of a region, as a package that is made once; None where nothing faster was found that is not lost."""
    file = find_searched(db, region)
    if file is None:
        return None
    try:
        faster = next(iter(list_faster(choose([db], str(file), least, device)).values()), {})
    except ExportError:  # nothing of this evidence on this device
        return None
    if not faster or (region, identity := identify(faster)) in lost:
        return None
    key = content_digest(repr((VERSION, device, identity)))[:8]
    name, folder = f"region_{region}_{key}", Path(db).with_name(f"{Path(db).stem}_kernels") / f"{region}_{key}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            _export([str(file), str(folder), name.replace("_", "-"), db, device, least.value])
        except ExportError:
            if not folder.exists():  # another process of the same job may have made it meanwhile
                raise
    task = _import_package(name, folder / name).TASKS[f"region_{region}"]
    try:
        return RegionKernel.of_task(region, task, faster, identity)
    except LookupError as error:
        raise ExportError(str(error)) from None


def _export(options: list[str]) -> None:
    """Exports in a process of its own: reading a task file puts stand-ins in the place of Triton's driver."""
    code = f"import sys\nfrom {__name__} import export_kernel\nexport_kernel(*sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["its process was ended"]
        raise ExportError(f"its kernel cannot be made a package: {said[-1]}")


def export_kernel(file: str, folder: str, name: str, db: str, device: str, evidence: str) -> None:
    export(ExportOptions((file,), folder, name, (db,), device, evidence=Evidence(evidence)))


def _import_package(name: str, folder: Path) -> ModuleType:
    if name not in sys.modules:
        place = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert place is not None and place.loader is not None  # it is a file of Python
        sys.modules[name] = importlib.util.module_from_spec(place)
        place.loader.exec_module(sys.modules[name])
    return sys.modules[f"{name}._dispatch"]
