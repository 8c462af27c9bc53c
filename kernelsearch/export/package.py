"""Puts a package together: every file of it by path, as bytes, the same for the same databases and options."""

from __future__ import annotations

import inspect
import keyword
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

from kernelsearch.core.types import Evidence
from kernelsearch.export import huggingface, layouts, tables, texts, wheel, write
from kernelsearch.export.choose import Chosen, choose
from kernelsearch.export.errors import ExportError
from kernelsearch.export.licences import licence
from kernelsearch.export.modules import task_files
from kernelsearch.export.part import Part

FORMATS = ("pip", "hf", "configs")
CONFIGS = ("table", "autotune")
TAKEN = frozenset({"NotVerified", "benchmark", "evidence", "explain", "strict", "tests", "configs"})
"""Names that every package has of its own."""

RUNTIME = ("_dispatch.py", "_launch.py", "_tune.py", "benchmark.py", "tests/__init__.py", "tests/test_package.py")
MODULE_RUNTIME = ("_module.py",)


@dataclass(frozen=True)
class Options:
    """The command's options, as the command line names them."""

    tasks: tuple[str, ...]
    out: str
    name: str
    dbs: tuple[str, ...] = ("kernelsearch.db",)
    device: str | None = None
    evidence: Evidence = Evidence.CONFIRMED
    configs: str = "table"
    format: str = "pip"
    license: str = "MIT"
    author: str | None = None
    version: str = "0.1.0"
    force: bool = False


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, its files, the wheel (None where the format has none), and the parts."""

    out: Path
    files: tuple[str, ...]
    wheel: Path | None
    parts: tuple[Part, ...] = field(default=())
    module: str = ""


def export(options: Options) -> Exported:
    """Writes what the options ask for. Raises KernelsearchError before anything is written."""
    label = _label(options)
    if options.format == "configs" and options.configs == "autotune":
        raise ExportError("--format configs writes tables, which --configs autotune leaves out: say one of the two")
    out = Path(options.out)
    write.refuse_existing(out, options.force)
    chosen = [choose(options.dbs, task, options.evidence, options.device) for task in dict.fromkeys(options.tasks)]
    parts = tuple(_part(c, options) for c in chosen)
    _distinct(parts)
    files = {write.MARK: b"Written by `kernelsearch export`, which may replace this folder.\n"}
    built = None
    if options.format == "configs":
        for part in parts:
            files.update({name: text.encode() for name, text in tables.config_tables(part).items()})
        write.write_folder(out, files, options.force)
        return Exported(out, tuple(sorted(files)), None, parts, label.module)
    spdx, licence_text = licence(options.license, label.author, _year(parts))
    label = texts.Label(label.distribution, label.module, label.version, spdx, label.author)
    inside = package_files(parts, label, options.format)
    if options.format == "hf":
        files.update(huggingface.repository(label, parts, inside, licence_text))
    else:
        readme = texts.readme(label, parts)
        files.update({f"{label.module}/{path}": data for path, data in inside.items()})
        files.update(
            {
                "README.md": readme.encode(),
                "LICENSE": licence_text.encode(),
                "pyproject.toml": texts.pyproject(label, parts).encode(),
            }
        )
        installed = {f"{label.module}/{path}": data for path, data in inside.items()}
        metadata = texts.metadata(label, parts, readme)
        name, data = wheel.wheel(label.distribution, label.version, metadata, installed, licence_text.encode())
        files[f"dist/{name}"] = data
        built = out / "dist" / name
    write.write_folder(out, files, options.force)
    return Exported(out, tuple(sorted(files)), built, parts, label.module)


def package_files(parts: Sequence[Part], label: texts.Label, layout: str = "pip") -> dict[str, bytes]:
    """The files of the import package by path inside it."""
    from kernelsearch.export.module_form import module_files
    from kernelsearch.export.operator import operator_module
    from kernelsearch.verify import tolerance

    files = {name: template(name) for name in RUNTIME}
    files["_layouts.py"] = inspect.getsource(layouts)
    files["tests/tolerance.py"] = inspect.getsource(tolerance)
    files["py.typed"] = ""
    files["__init__.py"] = texts.init(label, parts)
    files["evidence.json"] = tables.dumped(tables.evidence(tuple(parts), label.distribution, label.version))
    files["_build.py"] = (
        f'"""The name under which torch knows this package\'s operators."""\n\nNAMESPACE = "{label.module}"\n'
    )
    if any(p.examined.is_module for p in parts):
        files.update({name: template(name) for name in MODULE_RUNTIME})
    for part in parts:
        made = task_files(part)
        made["__init__.py"] = module_files(part) if part.examined.is_module else operator_module(part)
        files.update({f"{part.folder}/{name}": text for name, text in made.items()})
        files.update({f"configs/{name}": text for name, text in tables.config_tables(part).items()})
    for name, text in files.items():
        if name.endswith(".py"):
            compile(text, name, "exec")
    return {name: text.encode() for name, text in sorted(files.items())}


def template(name: str) -> str:
    return (resources.files("kernelsearch.export") / "templates" / f"{name}.txt").read_text(encoding="utf-8")


# ---------------------------------------------------------------- names and parts


def _label(options: Options) -> texts.Label:
    """The package's names. Raises ExportError for one that pip or Python would refuse."""
    name = options.name
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise ExportError(
            f"--name {name!r} is no name of a package: letters, digits, '-', '_' and '.', as in fast-softmax"
        )
    module = re.sub(r"[-_.]+", "_", name).lower()
    if not module.isidentifier() or keyword.iskeyword(module):
        raise ExportError(
            f"--name {name!r} cannot be imported as {module!r}: begin with a letter, avoid Python's own words"
        )
    if module in sys.stdlib_module_names or module in ("torch", "triton", "numpy", "kernels", "kernelsearch"):
        raise ExportError(f"--name {name!r} would hide the module {module}: choose another")
    if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", options.version):
        raise ExportError(f"--version {options.version!r} is no version of a package, such as 0.1.0 (PEP 440)")
    distribution = re.sub(r"[-_.]+", "-", name).lower()
    return texts.Label(distribution, module, options.version, "", options.author or f"the authors of {distribution}")


def _part(chosen: Chosen, options: Options) -> Part:
    from kernelsearch.export.autotuned import as_whole
    from kernelsearch.export.examine import examine

    if not chosen.name.isidentifier() or keyword.iskeyword(chosen.name) or chosen.name in TAKEN:
        raise ExportError(
            f"task {chosen.name!r} cannot be a function of a package: rename its file and search it again"
        )
    autotune = options.configs == "autotune"
    part = Part(chosen, examine(chosen.path), autotune)
    part = replace(part, as_whole=as_whole(part)) if autotune else part
    known = {s.key for s in part.examined.facts.shapes}
    if not any(shape in known for by_shape in chosen.devices.values() for shape in by_shape):
        raise ExportError(f"{chosen.name} has no time at a shape of its file: nothing to export")
    return part


def _distinct(parts: Sequence[Part]) -> None:
    names = [part.name for part in parts]
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise ExportError(f"two of the tasks are called {twice[0]}: a package has one function of a name")


def _year(parts: Sequence[Part]) -> str:
    """The year of the newest measurement, so that the same database gives the same text."""
    return max((f.measured for p in parts for f in p.chosen.found), default="")[:4]
