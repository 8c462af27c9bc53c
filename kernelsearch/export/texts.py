"""The texts around the code of a package: README, pyproject, the package's `__init__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelsearch.core.decision_tree import format_tree
from kernelsearch.core.formats import Claims, describe_failures, list_spans, spell_values
from kernelsearch.core.types import Evidence
from kernelsearch.export import render
from kernelsearch.export.choose import ExportCandidate
from kernelsearch.export.examine import Input, list_ties
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.export.layouts import layout
from kernelsearch.export.tables import compute_package_gain, fit_trees, list_keys
from kernelsearch.kernel.language import LAST_BLOCK_POINTERS
from kernelsearch.record.store import IMPORTED

TORCH, TRITON = "torch>=2.11", "triton>=3.6"
PYTHON = ">=3.11"
NO_LICENCE = "LicenseRef-Unstated"
"""The SPDX expression where the owner of the task file has named no licence."""
OWN = ("FallbackWarning", "NotVerified", "evidence", "explain", "strict")
"""What a package offers besides its functions."""


@dataclass(frozen=True)
class PackageLabel:
    """A package's names and owner: distribution and import name, version, licence (SPDX), author."""

    distribution: str
    module: str
    version: str
    licence: str
    author: str


def summarize(parts: Sequence[ExportedTask]) -> str:
    kinds = sorted({f"{f.evidence.value} on {f.device}" for p in parts for f in p.chosen.found})
    return f"{', '.join(p.name for p in parts)}: Triton kernels found by a search, {' and '.join(kinds)}"


def list_requirements(parts: Sequence[ExportedTask]) -> tuple[str, str]:
    """The package's dependencies on torch and Triton; kernels with block pointers need a Triton that has them."""
    major, minor = LAST_BLOCK_POINTERS
    pointers = any("make_block_ptr" in k.code for p in parts for k in p.kernels.values())
    return TORCH, f"{TRITON},<{major}.{minor + 1}" if pointers else TRITON


def write_pyproject(label: PackageLabel, parts: Sequence[ExportedTask]) -> str:
    needs, summary = list_requirements(parts), summarize(parts)
    return render("pyproject.toml.jinja", label=label, summary=summary, python=PYTHON, dependencies=needs)


def write_init(label: PackageLabel, parts: Sequence[ExportedTask], model: bool) -> str:
    """The package's `__init__.py`; model: it has `options` for torch.compile."""
    imports = {p.name: (p.name,) for p in sorted(parts, key=lambda p: p.name)}
    exported = [*(n for names in imports.values() for n in names), *OWN, *(["options"] if model else [])]
    return render(
        "init.py.jinja",
        summary=summarize(parts),
        computed=[(p.name, p.examined.summary) for p in parts if p.examined.summary],
        weak=", ".join(p.name for p in parts if p.chosen.weakest is not Evidence.CONFIRMED),
        imports=imports.items(),
        version=label.version,
        exported=sorted(exported),
        model=model,
    )


# ---------------------------------------------------------------- README


def write_readme(
    label: PackageLabel, parts: Sequence[ExportedTask], capabilities: Sequence[str] = (), model: bool = False
) -> str:
    """The package's page; capabilities are those that it has binaries for."""
    candidates = [(p, f) for p in parts for f in p.chosen.found]
    weak = [p for p in parts if p.chosen.weakest is not Evidence.CONFIRMED]
    return render(
        "README.md.jinja",
        label=label,
        parts=parts,
        licence=describe_licence(label.licence, parts),
        summary=summarize(parts),
        weak=", ".join(f"`{p.name}` is {p.chosen.weakest.value} only" for p in weak),
        calls=[_example_call(label, p) for p in parts],
        tables=[_table(p, d, shapes) for p in parts for d, shapes in sorted(p.chosen.devices.items())],
        kinds={f.evidence.value for _, f in candidates},
        capabilities=", ".join(capabilities),
        model=model,
        confirmed_lines=[_confirmed_line(p, f, f.finding) for p, f in candidates if f.finding],
        inputs=[f"`{p.name}`: `{name}` {judged}" for p in parts for name, judged in list_ranges(p)],
        baselines=", ".join(sorted({f"`{name}`" for p in parts for name in p.examined.task.baselines})),
    )


def describe_licence(licence: str, parts: Sequence[ExportedTask]) -> str:
    """What a package holds of the user's files, and under what."""
    held = []
    for e in (p.examined for p in parts):
        files = [e.task.path.name, *([e.companion.name] if e.companion else [])]
        held.append(f"{', '.join(e.own_names)}, the kernels and what they use of {' and '.join(files)}")
    under = "no licence, so nobody may share it yet: name one with --license" if licence == NO_LICENCE else licence
    return f"{'; '.join(held)}: under {under}. What is kernelsearch's own: MIT (LICENSE-kernelsearch)"


def _example_call(label: PackageLabel, part: ExportedTask) -> str:
    """A call, with names for its results; none where it only changes its inputs."""
    e, call = part.examined, f"{label.module}.{part.name}({', '.join(i.name for i in part.examined.inputs)})"
    if e.outputs is None:
        return call
    names = ", ".join(f"y{n}" for n in range(e.outputs)) if e.outputs != 1 else "(y,)" if e.in_tuple else "y"
    return f"{names} = {call}"


def _table(part: ExportedTask, device: str, by_shape: Mapping[str, ExportCandidate]) -> dict[str, Any]:
    """The template's values for the numbers on one device."""
    labels = {s.key: s.label for s in part.examined.facts.shapes}
    return {
        "part": part,
        "device": device,
        "kind": next(iter(by_shape.values())).evidence.value,
        "rows": [(labels.get(key, key), key, found, _runs(part, found)) for key, found in by_shape.items()],
        "trees": _describe_trees(part, device),
        "candidates": list({(f.digest, str(f.config)): f for f in by_shape.values()}.values()),
        "gain": compute_package_gain(by_shape),
        "tuned": part.chosen.seeds.get(device, {}).get("configs", 0),
        "seeds": sum(f.is_seed for f in by_shape.values()),
    }


def _describe_trees(part: ExportedTask, device: str) -> list[str]:
    """What runs at which sizes, in words; nothing where one candidate runs everywhere."""
    by_shape = part.chosen.devices[device]
    runs = {str(n): _runs(part, by_shape[key]) for n, key in enumerate(list_keys(part, by_shape))}
    trees = {dtypes: format_tree(tree, runs) for dtypes, tree in fit_trees(part, device).items()}
    heads = {dtypes: [f"{dtypes}:"] * (len(trees) > 1) for dtypes in trees}
    lines = [line for dtypes, tree in trees.items() for line in (*heads[dtypes], *tree)]
    return lines if len(lines) > 1 else []


def _runs(part: ExportedTask, found: ExportCandidate) -> str:
    """The kernel that runs at a shape, and its config."""
    name = describe_own(part, found) or f"`{found.digest[:8]}`"
    return ", ".join(filter(None, (name, " ".join(f"{n}={v}" for n, v in sorted(found.config.items())))))


def describe_own(part: ExportedTask, found: ExportCandidate) -> str:
    """The task's own kernel in words, with its own config or a tuned one; empty for another kernel."""
    return "the task's own" + ", tuned" * (not found.is_seed) if found.digest == part.seed.digest else ""


def _confirmed_line(part: ExportedTask, found: ExportCandidate, finding: Mapping[str, Any]) -> str:
    """When, on what and with which spread a kernel was confirmed."""
    versions = ", ".join(f"{k} {v}" for k, v in sorted(found.versions.items()))
    clocks: Mapping[str, float] = next((s["clocks"] for s in finding["shapes"] if s["clocks"]), {})
    sm = f", SM {clocks['sm_mhz']:.0f} MHz, memory {clocks['memory_mhz']:.0f} MHz" if clocks else ""
    return (
        f"`{part.name}` {found.digest[:8]} on {found.device}: {found.measured[:10]}, {versions}{sm}; intervals at "
        f"{finding['level']:.4g}, A/A spread {finding['aa_spread'] or 0:.2%}{IMPORTED * bool(finding.get('imported'))}."
    )


def list_ranges(part: ExportedTask) -> list[tuple[str, str]]:
    """(Input, what of it was judged in words): where all of these hold a call runs a kernel."""
    inputs, claims = part.examined.inputs, part.chosen.claims
    ranges = [(i.name, _describe_range(i, claims)) for i in inputs]
    if ties := [" = ".join(f"{inputs[n].name} axis {axis}" for n, axis in pair) for pair in list_ties(inputs)]:
        ranges.append(("equal sizes", ", ".join(ties)))
    if any(len(axis) > 1 for i in inputs if i.is_tensor for axis in list_axes(i, claims)):
        failed = describe_failures(part.chosen.failed)
        why = f"the task's own kernel {failed}" if failed else "they were not judged"
        ranges.append(("sizes between these", f"none, as {why}"))
    return [*ranges, *((x.name, f"{x.default!r} (its default)") for x in part.examined.extras)]


def _describe_range(given: Input, claims: Claims) -> str:
    values = [v for v in given.values if v is not None]
    if not given.is_tensor:
        return spell_values(claims.get(given.name) or sorted({*values}, key=repr))
    dtypes = " or ".join(sorted({v.dtype for v in values}))
    axes = " x ".join(spell_values(spans, "..") for spans in list_axes(given, claims))
    return f"{dtypes}, {axes or 'a scalar'}, {' or '.join(sorted({layout(v.shape, v.stride) for v in values}))}"


def list_axes(given: Input, claims: Claims) -> list[tuple[tuple[int, int], ...]]:
    """The spans of the claimed sizes of each axis of a tensor."""
    shapes = (v.shape for v in given.values if v is not None)
    return [list_spans(axis, claims) for axis in zip(*shapes, strict=True)]
