"""The command `export`: the best kernels as a package that others install."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from kernelsearch.cli.options import json_option, say_what_takes_long
from kernelsearch.kernel.targets import TARGETS
from kernelsearch.record import DEFAULT_DB


@click.command()
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="NAME|FILE.py",
    help="A task by its name, its digest or its file; may be repeated.",
)
@click.option("--model", is_flag=True, help="All regions of the models in --db, and one line that puts them there.")
@click.option("--out", required=True, type=click.Path(file_okay=False), help="The folder to write.")
@click.option("--name", required=True, help="The package's name, such as fast-softmax.")
@click.option(
    "--db",
    "dbs",
    multiple=True,
    default=[DEFAULT_DB],
    show_default=True,
    type=click.Path(),
    help="SQLite file of all trials; may be repeated, to merge several devices.",
)
@click.option("--device", help="Only what was found on this device or target.")
@click.option(
    "--target", "targets", multiple=True, help=f"Compile for this machine too ({', '.join(TARGETS)}); may be repeated."
)
@click.option(
    "--evidence",
    default="confirmed",
    show_default=True,
    type=click.Choice(["confirmed", "measured", "estimated"]),
    help="The weakest evidence that may be exported; the package says what it is.",
)
@click.option(
    "--format",
    "form",
    default="pip",
    show_default=True,
    type=click.Choice(["pip", "configs", "vllm-moe", "vllm-fp8", "sglang-moe"]),
    help="A pip package with its wheel, the tables of configs alone, or those that vLLM or SGLang look up.",
)
@click.option(
    "--license",
    "licence",
    metavar="NAME|FILE",
    help="The licence of what it holds of your file: MIT, BSD-3-Clause, ISC, or a file of your own (default: none).",
)
@click.option("--author", help="The copyright holder named in the licence.")
@click.option("--version", default="0.1.0", show_default=True, help="The package's version.")
@click.option("--force", is_flag=True, help="Replace a folder that an earlier export wrote.")
@json_option
def export(form: str, licence: str | None, model: bool, as_json: bool, **options: Any) -> None:
    """Writes the best kernels as a package for others.

    It needs only torch and triton, and has its evidence, tests and benchmark inside.
    """
    from kernelsearch.core.types import Evidence

    if model == bool(options["tasks"]) or (model and form != "pip"):
        raise click.UsageError("name what to export: --task, or --model, which is a pip package")
    steps = ["choosing kernels and reading their tasks"]
    with say_what_takes_long(lambda: steps[-1]):
        from kernelsearch.export.binaries import pack_binaries
        from kernelsearch.export.package import ExportOptions, ExportResult, export
        from kernelsearch.export.texts import describe_licence

        write: Callable[..., ExportResult] = export
        if model:
            from kernelsearch.graphs.model_package import export_model

            write = export_model
        options["evidence"] = Evidence(options["evidence"])
        done = write(ExportOptions(format=form, license=licence, **options), partial(pack_binaries, tell=steps.append))
    if as_json:
        summary: dict[str, Any] = {"out": str(done.out), "wheel": str(done.wheel) if done.wheel else None}
        summary |= {"files": list(done.files), "licence": done.licence, "without_binaries": list(done.packed.missing)}
        summary["kernels"] = [
            {
                "task": part.chosen.name,
                "device": found.device,
                "evidence": found.evidence.value,
                "kernel": found.digest,
                "config": dict(found.config),
            }
            for part in done.parts
            for found in part.chosen.found
        ]
        click.echo(json.dumps(summary, indent=2))
        return
    for part in done.parts:
        for line in _describe(part, is_package=form == "pip"):
            click.echo(line)
    for line in done.packed.missing:
        click.echo(line)
    if done.licence:
        click.echo(f"it holds {describe_licence(done.licence, done.parts)}")
    click.echo(f"wrote {done.out}, {len(done.files)} files")
    if done.wheel:
        click.echo(f"next: pip install {done.wheel}")


def _describe(part: Any, is_package: bool = True) -> list[str]:
    """A line for each kernel (two for one that runs as it is and tuned) and device; then what a package's calls run."""
    from kernelsearch.export.texts import describe_own, list_ranges

    lines = []
    for device, by_shape in part.chosen.devices.items():
        kinds = [(chosen.digest, describe_own(part, chosen)) for chosen in by_shape.values()]
        for digest, own in dict.fromkeys(kinds):
            at = [chosen for chosen, kind in zip(by_shape.values(), kinds, strict=True) if kind == (digest, own)]
            notes = f", {own}" if own else ""
            shapes = f"{len(at)} of {len(by_shape)} timed shapes"
            lines.append(f"{part.name}: kernel {digest[:8]}{notes}, at {shapes}, {at[0].evidence.value} on {device}")
    if is_package:
        covered = "; ".join(f"{name}: {judged}" for name, judged in list_ranges(part))
        lines.append(f"{part.name}: kernels run for {covered} on {' and '.join(part.chosen.devices)}")
        instead = "the task's own kernel as it stood" if part.examined.is_own else "the reference in plain torch"
        lines.append(f"{part.name}: every other call runs {instead}, and warns once")
    return lines
