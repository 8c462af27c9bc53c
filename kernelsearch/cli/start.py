"""The first commands of a new user: `new` and `doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kernelsearch.cli.options import force_option, json_option, say_what_takes_long, target_option, task_argument


@click.command()
@click.argument("name", required=False)
@click.option("--gradient", metavar="FILE.py", help="Write the task of this task's gradient, beside it.")
@force_option
def new(name: str | None, gradient: str | None, force: bool) -> None:
    """Copies a shipped task into this folder."""
    from kernelsearch.core.errors import TaskError
    from kernelsearch.core.files import write_user_file
    from kernelsearch.tasks import shipped
    from kernelsearch.tasks.named_function import find_task_file

    if (name is None) == (gradient is None):
        raise click.UsageError("name a shipped task, or the task of a forward: kernelsearch new --gradient rmsnorm.py")
    text, path = (
        shipped.write_gradient(find_task_file(gradient)) if gradient else (shipped.text(f"{name}"), Path(f"{name}.py"))
    )
    if path.exists() and not force:
        raise TaskError(f"{path} exists already; give --force to overwrite it")
    write_user_file(path, text)
    click.echo(f"wrote {path}; next: kernelsearch optimize {path} --trials 200")


@click.command()
@task_argument
@click.option("-o", "--out", metavar="OUT.py", help="The file to write.  [default: standard output]")
@click.option("--call", metavar="SCRIPT.py", help="Record the inputs of FILE.py:NAME as this script calls it.")
@target_option
@force_option
def seed(task: str, out: str | None, call: str | None, target: str, force: bool) -> None:
    """Writes a first kernel for a file that has none.

    TorchInductor's kernels for the reference of FILE, as a task file of plain Triton; no GPU is needed. FILE.py:NAME
    takes a function or class NAME of any file.
    """
    from kernelsearch.core.errors import TaskError

    if out and Path(out).exists() and not force:
        raise TaskError(f"{out} exists already; give --force to overwrite it")
    with say_what_takes_long(f"TorchInductor writes kernels for {task}"):
        from kernelsearch.report.terminal import make_say
        from kernelsearch.search import first_kernel
        from kernelsearch.tasks.module import read_text
        from kernelsearch.tasks.named_function import OWN, blame_original, find_task_file

        path = find_task_file(task, first_kernel.record_inputs(task, call, make_say()) if call else "")
        if OWN in read_text(path):
            click.echo(f"{path} has its kernel, which is its own reference; next: kernelsearch optimize {path}")
            return
        with blame_original(task, path):
            wrote = first_kernel.write_seed(path, out, target) if out else ""
            text = "" if out else first_kernel.make_seeded_text(path, target)[0]
    click.echo(f"wrote {wrote}; next: kernelsearch optimize {out} --trials 200\n" if out else text, nl=False)


@click.command()
@click.option("--ray", default="", metavar="ADDRESS|local", help="Look at every node of a Ray cluster instead.")
@json_option
def doctor(ray: str, as_json: bool) -> None:
    """Says what works here, what is missing and how to get it."""
    with say_what_takes_long("trying the workers and what confines them"):
        from kernelsearch.cli import run_doctor

        findings = run_doctor.collect_from_nodes(ray) if ray else run_doctor.collect_findings()
    click.echo(json.dumps(findings) if as_json else run_doctor.format_findings(findings), nl=as_json)
