"""The texts around the code of a package: README, pyproject, the package's `__init__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from kernelsearch.core.types import Evidence
from kernelsearch.export.choose import Found
from kernelsearch.export.examine import Part
from kernelsearch.export.tables import by_shape_gain
from kernelsearch.kernel.language import LAST_BLOCK_POINTERS

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("kernelsearch.export"),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)
TORCH, TRITON = "torch>=2.11", "triton>=3.6"
PYTHON = ">=3.11"


@dataclass(frozen=True)
class Label:
    """A package's names and owner: distribution and import name, version, licence (SPDX), author."""

    distribution: str
    module: str
    version: str
    licence: str
    author: str


def render(template: str, **values: Any) -> str:
    """The text of one of the export's Jinja templates."""
    return TEMPLATES.get_template(template).render(values)


def summary(parts: Sequence[Part]) -> str:
    kinds = sorted({f"{f.evidence.value} on {f.device}" for p in parts for f in p.chosen.found})
    return f"{', '.join(p.name for p in parts)}: Triton kernels found by a search, {' and '.join(kinds)}"


def requires(parts: Sequence[Part]) -> tuple[str, str]:
    """The package's dependencies on torch and Triton; a kernel with block pointers needs a Triton that still has them."""
    major, minor = LAST_BLOCK_POINTERS
    pointers = any("make_block_ptr" in k.code for p in parts for k in p.kernels.values())
    return TORCH, f"{TRITON},<{major}.{minor + 1}" if pointers else TRITON


def pyproject(label: Label, parts: Sequence[Part]) -> str:
    return f"""\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{label.distribution}"
version = "{label.version}"
description = "{summary(parts)}"
readme = "README.md"
requires-python = "{PYTHON}"
license = "{label.licence}"
license-files = ["LICENSE"]
dependencies = [{_quote(requires(parts))}]

[project.optional-dependencies]
test = ["pytest>=8"]

[tool.hatch.build.targets.wheel]
packages = ["{label.module}"]
ignore-vcs = true
"""


def _quote(words: Sequence[str]) -> str:
    return ", ".join(f'"{w}"' for w in words)


def init(label: Label, parts: Sequence[Part]) -> str:
    """The package's `__init__.py`."""
    weak = [p.name for p in parts if p.chosen.weakest is not Evidence.CONFIRMED]
    warning = [f"Not confirmed: {', '.join(weak)} (see `evidence()`).", ""] if weak else []
    names = sorted([*(n for p in parts for n in public_names(p)), "NotVerified", "evidence", "explain", "strict"])
    imports = [f"from ._{p.name} import {', '.join(public_names(p))}" for p in sorted(parts, key=lambda p: p.name)]
    lines = [
        f'"""{summary(parts)}.',
        "",
        *warning,
        "Where a call was not verified the reference runs; `strict()` forbids that, `explain` says what a call runs.",
        '"""',
        "",
        "import json",
        "from pathlib import Path",
        "from typing import Any",
        "",
        "from ._dispatch import NotVerified, explain, strict",
        *imports,
        "",
        f'__version__ = "{label.version}"',
        f"__all__ = [{_quote(names)}]",
        "",
        "",
        "def evidence() -> dict[str, Any]:",
        '    """What every claim of this package rests on: verdicts, measurements, devices, versions, digests, rows."""',
        '    return json.loads((Path(__file__).parent / "evidence.json").read_text(encoding="utf-8"))',
    ]
    return "\n".join(lines) + "\n"


def build_module(namespace: str) -> str:
    """The package's `_build.py`."""
    return f'"""The name under which torch knows this package\'s operators."""\n\nNAMESPACE = "{namespace}"\n'


def public_names(part: Part) -> tuple[str, ...]:
    """The names that users import for a task: the function named after it; for a module, the class too."""
    return tuple(dict.fromkeys((class_name(part.name), part.name))) if part.examined.is_module else (part.name,)


def class_name(task: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in task.split("_") if word)


# ---------------------------------------------------------------- README


def readme(label: Label, parts: Sequence[Part], layout: str = "pip") -> str:
    lines = [f"# {label.distribution}", "", f"{summary(parts)}.", ""]
    weak = [p for p in parts if p.chosen.weakest is not Evidence.CONFIRMED]
    if weak:
        names = ", ".join(f"`{p.name}` is {p.chosen.weakest.value} only" for p in weak)
        lines += [
            f"> **Not confirmed.** {names}: no number of it comes from the confirmed protocol, and none should be "
            "quoted as a speed-up.",
            "",
        ]
    lines += [
        *_usage_lines(label, parts, layout),
        *_number_lines(parts),
        *_method_lines(parts),
        *_coverage_lines(parts, label),
        *_tuning_lines(parts),
        *_check_lines(label, layout, parts),
    ]
    return "\n".join(lines) + "\n"


def _usage_lines(label: Label, parts: Sequence[Part], layout: str) -> list[str]:
    lines = ["```python", f"import {label.module}"]
    if layout == "hf":
        lines[1:] = [
            "from pathlib import Path",
            "from kernels import get_local_kernel",
            f'{label.module} = get_local_kernel(Path("..."))',
        ]
    for part in parts:
        names = ", ".join(i.name for i in part.examined.inputs)
        if part.examined.is_module:
            values = ", ".join(map(repr, part.examined.init))
            lines.append(f"y = {label.module}.{class_name(part.name)}({values})({names})")
        else:
            result = "" if part.examined.outputs is None else "y = "
            lines.append(f"{result}{label.module}.{part.name}({names})")
    lines += ["```", ""]
    for part in parts:
        if part.examined.summary:
            lines += [f"`{part.name}`: {part.examined.summary}", ""]
    return lines


def _number_lines(parts: Sequence[Part]) -> list[str]:
    lines = ["## Numbers", ""]
    for part in parts:
        labels = {s.key: s.label for s in part.examined.facts.shapes}
        for device, by_shape in sorted(part.chosen.devices.items()):
            kind = next(iter(by_shape.values())).evidence
            lines += [f"`{part.name}` on {device}, **{kind.value}**:", ""]
            runs = {key: _runs(part, found, key) for key, found in by_shape.items()}
            confirmed = kind is Evidence.CONFIRMED
            lines += _confirmed_table(labels, by_shape, runs) if confirmed else _weaker_table(labels, by_shape, runs)
            lines.append("")
    return lines


def _runs(part: Part, found: Found, shape: str) -> str:
    """The kernel that runs at a shape, and its config where that is not tuned at the first call."""
    name = "the task's own" if found.digest == part.seed.digest else f"`{found.digest[:8]}`"
    tuned = part.tuned(found.digest) or part.choices(found, shape)
    config = "tuned at the first call" if tuned else " ".join(f"{n}={v}" for n, v in sorted(found.config.items()))
    return f"{name}, {config}" if config else name


def _confirmed_table(labels: Mapping[str, str], by_shape: Mapping[str, Found], runs: Mapping[str, str]) -> list[str]:
    lines = [
        "| shape | time | vs the fastest baseline | baseline | vs the task's own kernel | what runs |",
        "|---|---|---|---|---|---|",
    ]
    for key, found in by_shape.items():
        shape = next(s for s in found.finding["shapes"] if s["shape"] == key)
        lines.append(
            f"| {labels.get(key, key)} | {shape['time_us']:.1f} us | {_interval(shape['vs_fastest'])} | "
            f"{shape['fastest'] or 'none'} | {_interval(shape['vs_seed'])} | {runs[key]} |"
        )
    candidates = list({(f.digest, str(f.config)): f for f in by_shape.values()}.values())
    if len(candidates) > 1 or candidates[0].is_seed:
        lines += ["", *_package_gain(by_shape)]
    for found in candidates:
        finding, rivals = found.finding, found.finding["vs_fastest"] if not found.is_seed else None
        if rivals and not finding.get("champion_at") and len(finding["shapes"]) > 1:
            lines += ["", f"Kernel {found.digest[:8]} over all shapes: {_against_baselines(finding)}."]
    return lines


def _against_baselines(gain: Mapping[str, Any]) -> str:
    word = "faster than" if gain["faster"] else "not shown to be faster than"
    return f"{_interval(gain['vs_fastest'])} the fastest baselines ({word} them)"


def _package_gain(by_shape: Mapping[str, Found]) -> list[str]:
    """The gain of a package whose shapes do not all run the same candidate."""
    gain = by_shape_gain(by_shape)
    own = [f for f in by_shape.values() if f.is_seed]
    lines = []
    if gain:
        lines.append(
            "The package, which runs at each shape what was confirmed as best there: "
            f"{_against_baselines(gain)}, the task's own kernel among these."
        )
    if own:
        where = f"{len(own)} of {len(by_shape)} shapes" if len(own) < len(by_shape) else "every shape"
        lines.append(f"At {where} nothing is faster than the task's own kernel, which runs there.")
    return lines


def _weaker_table(labels: Mapping[str, str], by_shape: Mapping[str, Found], runs: Mapping[str, str]) -> list[str]:
    kind = next(iter(by_shape.values())).evidence.value
    lines = [f"| shape | {kind} time | the task's own kernel's time over it | what runs |", "|---|---|---|---|"]
    for key, found in by_shape.items():
        ratio = found.ratios.get(key)
        gain = f"{1 / ratio:.2f}x" if ratio else "not known"
        lines.append(f"| {labels.get(key, key)} | {found.times[key]:.1f} us | {gain} | {runs[key]} |")
    return lines


def _interval(gain: Mapping[str, float] | None) -> str:
    return f"{gain['ratio']:.3f}x [{gain['low']:.3f}, {gain['high']:.3f}]" if gain else "-"


def _method_lines(parts: Sequence[Part]) -> list[str]:
    kinds = {f.evidence for p in parts for f in p.chosen.found}
    lines = ["## How they were obtained", ""]
    if Evidence.CONFIRMED in kinds:
        lines += [
            "*Confirmed*: in a fresh process, blocks in random order (A B B A) of this kernel, the task's own and every",
            "baseline; inputs rotated, L2 flushed before each sample, device events behind the flush so that host time is",
            "hidden; the median of paired log-ratios with a block-bootstrap interval; throttled blocks dropped; timed outputs",
            "judged against float64. Faster means: the interval's lower end is above 1 + max(1 %, the A/A control's spread).",
        ]
        for part in parts:
            for f in (f for f in part.chosen.found if f.finding):
                versions = ", ".join(f"{k} {v}" for k, v in sorted(f.versions.items()))
                clocks = next((s["clocks"] for s in f.finding["shapes"] if s["clocks"]), {})
                sm = f", SM {clocks['sm_mhz']:.0f} MHz, memory {clocks['memory_mhz']:.0f} MHz" if clocks else ""
                lines.append(
                    f"`{part.name}` {f.digest[:8]} on {f.device}: {f.measured[:10]}, {versions}{sm}; intervals at "
                    f"{f.finding['level']:.4g}, A/A spread {f.finding['aa_spread'] or 0:.2%}."
                )
        lines.append("")
    if Evidence.MEASURED in kinds:
        lines += ["*Measured*: device events during the search. The best of many such numbers is optimistic.", ""]
    if Evidence.ESTIMATED in kinds:
        lines += ["*Estimated*: a static model of the target read the compiled binary; no GPU ran it.", ""]
    return [
        *lines,
        "Every number can be traced to a row of its database: `evidence.json` names file, run and trial.",
        "",
    ]


def _coverage_lines(parts: Sequence[Part], label: Label) -> list[str]:
    lines = [
        "## When a kernel runs",
        "",
        "Where it was verified: on these devices, with these dtypes and layouts, each size between the smallest and the",
        "largest that was judged. Everything else (CPU tensors too) runs the reference, the same function in plain torch;",
        f"`{label.module}.strict()`, or `fallback=False` in a call, raises `NotVerified` instead, and",
        f'`{label.module}.explain("{parts[0].name}", ...)` says what a call runs and why.',
        "",
    ]
    for part in parts:
        for given in part.examined.inputs:
            values = [v for v in given.values if v is not None]
            if given.is_tensor:
                dtypes = " or ".join(sorted({v.dtype for v in values}))
                axes = " x ".join(f"{min(a)}..{max(a)}" for a in zip(*(v.shape for v in values), strict=True))
                lines.append(f"- `{part.name}`: `{given.name}` {dtypes}, {axes or 'a scalar'}")
            else:
                lines.append(f"- `{part.name}`: `{given.name}` in {', '.join(sorted({repr(v) for v in values}))}")
    lines += [
        "",
        "The kernels are forward only: where a gradient is asked for (an input requires one, and gradients are on) the",
        "reference gives result and gradient; the bare operator raises. `torch.compile(fullgraph=True)` and fake tensors",
        "work; under dynamic shapes the sizes are specialised.",
        "",
    ]
    return lines


def _tuning_lines(parts: Sequence[Part]) -> list[str]:
    """How configs are tuned at the user's first call; empty where they are not."""
    lines = []
    if any(p.autotune for p in parts):
        lines += [
            "Configs are tuned by `@triton.autotune` at the first call near each timed shape, over the few that were",
            "best there; of those only the shipped one was judged at full depth.",
            "",
        ]
    for part in parts:
        for digest, why in part.as_whole.items():
            devices = part.chosen.devices.values()
            sentence = f"{why[:1].upper()}{why[1:]}. "
            if any(f.digest == digest and part.choices(f, shape) for d in devices for shape, f in d.items()):
                lines.append(
                    f"{sentence}So the package itself times whole calls with each of its configs, but never inside "
                    "`torch.compile` or a CUDA graph, where the record's best one runs."
                )
            else:
                lines.append(f"{sentence}Only one of its configs was tried, so there is nothing to tune.")
            lines.append("")
    return lines


def _check_lines(label: Label, layout: str, parts: Sequence[Part]) -> list[str]:
    lines = ["## Check it", ""]
    if layout == "hf":
        lines += ["`kernels benchmark PATH` runs `benchmarks/benchmark.py`.", ""]
    else:
        lines += [
            "```console",
            "$ pip install pytest",
            f"$ python -m pytest --pyargs {label.module}     # right on this machine?",
            f"$ python -m {label.module}.benchmark            # as fast as claimed on this machine? needs a GPU",
            "```",
            "",
        ]
        if any(f.finding for part in parts for f in part.chosen.found):
            lines += VERDICTS
    named = sorted({f"`{name}`" for part in parts for name in part.examined.task.baselines})
    if named:
        lines += [
            f"The benchmark also compares with {', '.join(named)} where that is installed; it reports a claim against a "
            "missing baseline as not checked.",
            "",
        ]
    return lines


VERDICTS = [
    "The benchmark gives one verdict for each claim: *reproduced* (its interval and the claim's meet within the",
    "resolution), *slower than claimed* (the speed-up here is smaller by more than that: the claim does not hold here, and",
    "the exit code is 1), *faster than claimed* (larger by more than that), or *not checked* and why. The resolution is the",
    "margin that the claim itself had to pass, 1 % or its A/A control's spread, or the A/A spread here where that is larger:",
    "an interval covers the variation inside one process, not the variation from one process to the next.",
    "",
]
"""The benchmark's verdicts, for a README with a claim that can be checked."""
