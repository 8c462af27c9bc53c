"""`export --model`: the kernels of a model's regions as a package that puts them into the model where no search is."""

from __future__ import annotations

import inspect
import pprint
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from kernelsearch.export import ExportError, quote
from kernelsearch.export.choose import choose
from kernelsearch.export.package import TEMPLATES, ExportOptions, ExportResult, Pack, export
from kernelsearch.graphs import regions, task_text
from kernelsearch.graphs import replace as placing
from kernelsearch.graphs.model_options import find_searched, identify, list_faster
from kernelsearch.graphs.task_text import VERSION
from kernelsearch.record import region_rows
from kernelsearch.record.store import Store

PARTS = MappingProxyType({"_regions.py": regions, "_task_text.py": task_text, "_replace.py": placing})
"""The modules that find regions in a graph and replace them: a package has them of its own."""


def export_model(options: ExportOptions, pack: Pack | None = None) -> ExportResult:
    """`export` of all regions that have a faster kernel, with `options()` for torch.compile beside their functions.

    What `apply` left out on a device is left out there. Raises ExportError where nothing is left.
    """
    tasks: list[str] = []
    faster: dict[str, dict[str, dict[str, str]]] = {}
    for db in options.dbs:
        with Store.open(db, write=False) as store:
            found = [digest for digest, row in region_rows.load_regions(store).items() if row["torch"] == VERSION]
            lost = {
                (p["region"], p["device"], p["kernel"]) for p in region_rows.load_placements(store) if not p["used"]
            }
        for region in found:
            if region in faster or (file := find_searched(db, region)) is None:
                continue
            with suppress(ExportError):  # nothing of this evidence
                choice = choose(options.dbs, str(file), options.evidence, options.device)
                here = {d: s for d, s in list_faster(choice).items() if (region, d, identify(s)) not in lost}
                if here:
                    tasks.append(str(file))
                    faster[region] = here
    if not tasks:
        raise ExportError(
            f"no region in {' and '.join(options.dbs)} has a faster {options.evidence.value} kernel: search them with "
            "`kernelsearch optimize --db DB --hours H`, or allow weaker --evidence"
        )
    return export(replace(options, tasks=tuple(tasks)), pack, _write_modules(options.name, faster))


def _write_modules(name: str, faster: Mapping[str, Mapping[str, Mapping[str, str]]]) -> dict[str, str]:
    """The files that such a package has besides those of each."""
    files, namespace = {}, re.sub(r"\W", "_", f"{name}_regions")
    for path, module in PARTS.items():
        text = inspect.getsource(module).replace("from kernelsearch.graphs.", "from ._")
        files[path] = text.replace(f'NAMESPACE = "{placing.NAMESPACE}"', f"NAMESPACE = {quote(namespace)}")
    values = f"TORCH = {quote(VERSION)}\nFASTER = {pprint.pformat(faster, width=110, sort_dicts=True)}\n"
    template = (TEMPLATES / "_model.py.txt").read_text(encoding="utf-8")
    return files | {"_model.py": template.replace("# the record\n", values)}
