"""Puts a package together: all its files by path, as bytes, the same for the same databases and options."""

from __future__ import annotations

import inspect
import keyword
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module, resources
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from kernelsearch.core import tree_walk
from kernelsearch.core.files import write_folder
from kernelsearch.core.types import Evidence
from kernelsearch.export import ExportError, layouts, tables, texts
from kernelsearch.export.binaries import Packed, check_targets
from kernelsearch.export.choose import TaskChoice, choose
from kernelsearch.export.engine_tables import ENGINES, build_engine_tables
from kernelsearch.export.examine import examine
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.export.function_form import write_function_module
from kernelsearch.export.task_modules import write_task_files
from kernelsearch.record import DEFAULT_DB
from kernelsearch.tasks import differentiation
from kernelsearch.verify import gate

RULES = (
    "bits dispatch domains error_samples exactness expectation pieces planted regime_words regimes scalars scales "
    "sites terms tolerance widest".split()
)
"""The modules of the judge (`verify`) that a package's tests are made of."""

TAKEN = frozenset((*texts.OWN, "options", "benchmark", "tests", "configs"))
"""Names that every package has of its own."""

RUNTIME = ("_binaries.py", "_dispatch.py", "_launch.py", "benchmark.py", "tests/__init__.py", "tests/test_package.py")
Pack = Callable[[Sequence[ExportedTask], Sequence[str]], Packed]
"""Compiles for the devices of the evidence and these targets (`binaries.pack_binaries`)."""
TEMPLATES = resources.files("kernelsearch.export") / "templates"
OWN_LICENCE = "LICENSE-kernelsearch"
"""The file with the licence of what a package has from this project: its dispatch and the judge's rules."""
LICENCES = ("MIT", "BSD-3-Clause", "ISC")

MARK = ".kernelsearch-export"
"""The file by which an export recognises its own folders."""


@dataclass(frozen=True)
class ExportOptions:
    """The command's options, as the command line names them."""

    tasks: tuple[str, ...]
    out: str
    name: str
    dbs: tuple[str, ...] = (DEFAULT_DB,)
    device: str | None = None
    targets: tuple[str, ...] = ()
    evidence: Evidence = Evidence.CONFIRMED
    format: str = "pip"
    license: str | None = None
    author: str | None = None
    version: str = "0.1.0"
    force: bool = False


@dataclass(frozen=True)
class ExportResult:
    """What was written: the folder, its files, the wheel (None where the format has none), and the parts."""

    out: Path
    files: tuple[str, ...]
    wheel: Path | None
    parts: tuple[ExportedTask, ...] = ()
    licence: str = ""
    packed: Packed = field(default_factory=Packed)


def export(options: ExportOptions, pack: Pack | None = None, model: Mapping[str, str] | None = None) -> ExportResult:
    """Writes the package for these options. Raises KernelsearchError before anything is written.

    pack compiles its binaries; model are the modules that put its functions into a model, `_model.py` among them.
    """
    label = _label(options)
    out = Path(options.out)
    _check_free(out, options.force)
    _licence(options.license, "", "")  # one that is not there is said first
    check_targets(options.targets)
    chosen = [choose(options.dbs, task, options.evidence, options.device) for task in dict.fromkeys(options.tasks)]
    parts = tuple(map(_part, chosen))
    _check_distinct(parts)
    packed = pack(parts, options.targets) if pack is not None and options.format == "pip" else Packed()
    files = {MARK: b"Written by `kernelsearch export`, which may replace this folder.\n"}
    if options.format != "pip":
        for part in parts:
            if options.format in ENGINES:
                made = build_engine_tables(options.format, part, options.dbs)
            else:
                made = tables.build_config_tables(part)
            files.update({name: text.encode() for name, text in made.items()})
    else:
        # the year of the newest measurement, so that the same database gives the same text
        year = max((f.measured for p in parts for f in p.chosen.found), default="")[:4]
        spdx, licence_text = _licence(options.license, label.author, year)
        label = replace(label, licence=spdx)
        files |= {"LICENSE": licence_text.encode()} if licence_text else {}
        files[OWN_LICENCE] = _licence("MIT", "the kernelsearch authors", "2026")[1].encode()
        inside = build_package_files(parts, label, model or {})
        inside |= {f"binaries/{name}": data for name, data in packed.files.items()}
        files.update({f"{label.module}/{path}": data for path, data in inside.items()})
        files["README.md"] = texts.write_readme(label, parts, packed.capabilities, bool(model)).encode()
        files["pyproject.toml"] = texts.write_pyproject(label, parts).encode()
    _check_free(out, options.force)
    wheel = None
    try:
        if options.format == "pip":
            name, data = _build_wheel(files)
            files[f"dist/{name}"] = data
            wheel = out / "dist" / name
        write_folder(out, files)
    except OSError as error:
        raise ExportError(f"{out} cannot be written: {error.strerror or error}") from None
    return ExportResult(out, tuple(sorted(files)), wheel, parts, label.licence, packed)


def build_package_files(
    parts: Sequence[ExportedTask], label: texts.PackageLabel, model: Mapping[str, str]
) -> dict[str, bytes]:
    """The files of the import package by path inside it."""
    files = {name: (TEMPLATES / f"{name}.txt").read_text(encoding="utf-8") for name in RUNTIME}
    files |= {"_layouts.py": inspect.getsource(layouts), "_tree_walk.py": inspect.getsource(tree_walk)}
    # what judged the kernels judges the package
    for name in RULES:
        source = inspect.getsource(import_module(f"kernelsearch.verify.{name}"))
        files[f"tests/{name}.py"] = source.replace("from kernelsearch.verify.", "from .")
    if any(p.examined.task.forward for p in parts):
        files["_differentiation.py"] = inspect.getsource(differentiation)
    files |= {"py.typed": "", **model}
    files["__init__.py"] = texts.write_init(label, parts, bool(model))
    about = '"""The name under which torch knows this package\'s operators."""'
    files["_build.py"] = f'{about}\n\nNAMESPACE = "{label.module}"\n'
    files["evidence.json"] = tables.write_evidence(parts, label.distribution, label.version)
    for part in parts:
        modules = write_task_files(part)
        gradients = sorted((p for p in parts if p.is_gradient_of(part)), key=lambda p: p.examined.outputs or 0)
        modules["__init__.py"] = write_function_module(part, gradients)
        files.update({f"{part.folder}/{name}": text for name, text in modules.items()})
        files.update({f"configs/{name}": text for name, text in tables.build_config_tables(part).items()})
    for name, text in files.items():
        if name.endswith(".py"):
            compile(text, name, "exec")
    return {name: text.encode() for name, text in sorted(files.items())}


def _build_wheel(files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """(File name, content) of the project's wheel, the same for the same files."""
    with tempfile.TemporaryDirectory() as folder:
        for path, data in files.items():
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        wheel = Path(next(WheelBuilder(folder).build(directory=folder, versions=["standard"])))
        return wheel.name, wheel.read_bytes()


# ---------------------------------------------------------------- names and parts


def _label(options: ExportOptions) -> texts.PackageLabel:
    """The package's names. Raises ExportError for one that pip or Python would refuse."""
    name = options.name
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise ExportError(
            f"--name {name!r} is not a package name: use letters, digits, '-', '_' and '.', as in fast-softmax"
        )
    module = re.sub(r"[-_.]+", "_", name).lower()
    if not module.isidentifier() or keyword.iskeyword(module):
        raise ExportError(
            f"--name {name!r} cannot be imported as {module!r}: begin with a letter, avoid Python's own words"
        )
    if module in sys.stdlib_module_names or module in ("torch", "triton", "numpy", "kernels", "kernelsearch"):
        raise ExportError(f"--name {name!r} would hide the module {module}: choose another")
    if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", options.version):
        raise ExportError(f"--version {options.version!r} is not a package version such as 0.1.0 (PEP 440)")
    distribution = re.sub(r"[-_.]+", "-", name).lower()
    return texts.PackageLabel(
        distribution, module, options.version, "", options.author or f"the authors of {distribution}"
    )


def _part(chosen: TaskChoice) -> ExportedTask:
    part = ExportedTask(chosen, examine(chosen.path))
    if not part.name.isidentifier() or keyword.iskeyword(part.name) or part.name in TAKEN:
        raise ExportError(f"{part.name!r} cannot be a function of a package: rename its file and search it again")
    if any(f.is_seed and f.digest != part.seed.digest for f in chosen.found):
        raise ExportError(
            f"{chosen.name}: its record has another kernel for the task's own: search {chosen.path} again"
        )
    for digest, kernel in part.kernels.items():
        if digest != part.seed.digest and (why := gate.check_stored(kernel.render(), digest)):
            raise ExportError(f"{chosen.name}: {why}")
    known = {s.key for s in part.examined.facts.shapes}
    if not any(shape in known for by_shape in chosen.devices.values() for shape in by_shape):
        raise ExportError(f"{chosen.name} has no time at a shape of its file: nothing to export")
    spelled = [n for d in part.kernels for c in part.configs_of(d) for n, v in c.items() if isinstance(v, str)]
    if spelled and any(s.ruled for s in part.examined.sites):
        raise ExportError(
            f"{chosen.name} has @triton.heuristics, and a config gives {spelled[0]} as an expression, which they "
            "cannot read: let the launcher pass these values, and search it again"
        )
    return part


def _check_distinct(parts: Sequence[ExportedTask]) -> None:
    names = [part.name for part in parts]
    if twice := [n for n in names if names.count(n) > 1]:
        raise ExportError(f"two of the tasks are called {twice[0]}: a package has one function of a name")


def _check_free(out: Path, force: bool) -> None:
    """Raises ExportError if out exists. force allows replacing a folder that an export wrote."""
    if not (out.exists() or out.is_symlink()):
        return
    if not force:
        raise ExportError(f"{out} exists already: name another folder, or use --force to replace it")
    ours = out.is_dir() and not out.is_symlink() and (not any(out.iterdir()) or (out / MARK).is_file())
    if not ours:
        raise ExportError(
            f"{out} was not written by an export, so --force does not replace it: remove it, or name another"
        )


def _licence(choice: str | None, author: str, year: str) -> tuple[str, str]:
    """(SPDX expression, text) of a licence by its name, or of the user's own file. Raises ExportError.

    None: nothing is said of the user's own code, so nothing is granted.
    """
    if choice is None:
        return texts.NO_LICENCE, ""
    if choice in LICENCES:
        text = (TEMPLATES / "licences" / f"{choice}.txt").read_text(encoding="utf-8")
        return choice, text.format(author=author, year=year)
    try:
        return "LicenseRef-Own", Path(choice).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ExportError(
            f"--license {textwrap.shorten(choice, 60)} is neither {', '.join(LICENCES)} nor a file with a licence"
        ) from None
