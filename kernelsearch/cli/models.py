"""The commands about whole models: `collect` and `apply`."""

from __future__ import annotations

import json

import click

from kernelsearch.cli.options import db_option, json_option, quiet_option, target_option

evidence_option = click.option(
    "--evidence",
    default="measured",
    show_default=True,
    type=click.Choice(["confirmed", "measured", "estimated"]),
    help="The weakest evidence that a kernel must have.",
)
_SCRIPT = {"ignore_unknown_options": True}  # those are the script's, and all after `--`


@click.command(context_settings=_SCRIPT)
@db_option
@target_option
@json_option
@quiet_option
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def collect(script: str, arguments: tuple[str, ...], db: str, target: str, as_json: bool, quiet: bool) -> None:
    """Lists what a model's step is made of, and stores it as tasks.

    Runs SCRIPT (a file, or "-m MODULE") with its arguments. Every fusible region of the graphs that torch.compile makes
    there, forward and backward, becomes a task of the database: `kernelsearch optimize --db FILE` searches them.
    """
    from kernelsearch.graphs.collect import collect
    from kernelsearch.graphs.region_report import write_report
    from kernelsearch.report.terminal import make_say, print_text

    found = collect(script, arguments, db, target, make_say(quiet))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_text(write_report(found))


@click.command(context_settings=_SCRIPT)
@db_option
@evidence_option
@quiet_option
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def apply(script: str, arguments: tuple[str, ...], db: str, evidence: str, quiet: bool) -> None:
    """Times a database's kernels inside their model.

    Runs SCRIPT as `collect` does, then calls its graphs with and without each kernel, in pairs, and leaves out what
    gains nothing there. What is left is what `torch.compile(model, options=kernelsearch.options(db))` uses. Without a
    GPU only values are compared.
    """
    from kernelsearch.core.types import Evidence
    from kernelsearch.graphs.apply import apply
    from kernelsearch.report.terminal import make_say, print_text

    print_text(apply(script, arguments, db, Evidence(evidence), make_say(quiet)))
