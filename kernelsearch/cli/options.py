"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

import click

from kernelsearch.core import files
from kernelsearch.kernel.targets import TARGETS
from kernelsearch.record import DEFAULT_DB


class OutputFile(click.Path):
    """A file to write; a place that cannot be written is refused before any work."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        files.refuse_unwritable(os.fsdecode(path))
        return path


def read_params(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """The parameters of a strategy as they are typed."""
    from kernelsearch.search import strategies

    return strategies.read_params(texts) if texts else {}


class SectionedCommand(click.Command):
    """A command whose help lists its options in sections; those that no section names stand last."""

    def __init__(self, *args: Any, sections: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {p.name: record for p in self.get_params(ctx) if (record := p.get_help_record(ctx))}
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([records.pop(name) for name in names.split()])
        with formatter.section("Other options"):
            formatter.write_dl(list(records.values()))


def join_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One decorator that adds these options in their order."""
    return lambda command: reduce(lambda whole, option: option(whole), reversed(options), command)


db_option = click.option(
    "--db", default=DEFAULT_DB, show_default=True, type=click.Path(), help="SQLite file of all trials."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("--quiet", is_flag=True, help="No progress on stderr.")
force_option = click.option("--force", is_flag=True, help="Overwrite an existing file.")
shape_option = click.option(
    "--shape", "shapes", multiple=True, help="Time only this shape: its number, or a label like rows=8192."
)
isolation_option = click.option(
    "--require-isolation", is_flag=True, help="Refuse to run candidates where a layer of isolation is missing."
)
seconds_option = click.option(
    "--budget-seconds", type=click.FloatRange(min=0, min_open=True), help="Stop asking after this long."
)
machine_options = join_options(
    click.option("--gpus", default="", metavar="all|N", help="GPUs of this machine to use (needs ray)."),
    click.option(
        "--ray", default="", metavar="ADDRESS|local", help="Evaluate on a Ray cluster, or in workers of one made here."
    ),
    click.option("--device", default="", metavar="NAME", help="Use the cluster's GPUs of this model only."),
)
edit_option = click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="FILE.py",
    type=click.Path(dir_okay=False),
    help="A typed edit of your own; may be repeated.",
)
price_option = click.option(
    "--price", type=(float, float), metavar="IN OUT", help="US dollars for a million tokens, in and out."
)
target_option = click.option(
    "--target",
    default="auto",
    show_default=True,
    help=f"Machine to compile for: auto (the live GPU, else h100), or {', '.join(TARGETS)}.",
)
task_argument = click.argument("task", type=click.Path(dir_okay=False), metavar="TASK.py")
call_option = click.option(
    "--call",
    metavar="TEST.py",
    help='Record how a script or pytest file, or "TEST.py ARGS", calls FILE.py:LAUNCHER, its own reference.',
)
kernel_argument = click.argument("kernel", type=click.Path(dir_okay=False), required=False, metavar="[KERNEL.py]")
"""The kernel file of a command that takes the task's own kernel without one."""

model_options = join_options(
    click.option(
        "--model",
        "models",
        multiple=True,
        metavar="SPEC",
        help="A model for the mix: openai:URL#MODEL, anthropic:MODEL, command:PROGRAM ARGS, hf:PATH, vllm:MODEL or "
        "replay:FILE; or several in roles, planner=SPEC,writer=SPEC,critic=SPEC; may be repeated.",
    ),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens, in and out, that the run's models may use."),
    click.option("--max-usd", type=click.FloatRange(min=0, min_open=True), help="What they may cost; needs --price."),
    price_option,
    click.option("--record", type=OutputFile(), help="Write the models' answers to a file for replay:FILE."),
)


def say_what_takes_long(doing: str | Callable[[], str], quiet: bool = False) -> AbstractContextManager[None]:
    """A context that says on stderr after a second what is being done, and again while it lasts; quiet: nothing."""
    from kernelsearch.core.slow_steps import report_progress
    from kernelsearch.report.terminal import make_say

    return report_progress(make_say(quiet), doing, first_s=1.0, again_s=5.0)


def record_task(task: str, call: str | None, quiet: bool) -> str:
    """The task file, after `--call` the one that is written beside it; quiet prints no progress."""
    if not call:
        return task
    with say_what_takes_long(f"{call} runs, and calls {task}", quiet):
        from kernelsearch.report.terminal import make_say
        from kernelsearch.search.first_kernel import record_inputs
        from kernelsearch.tasks.named_function import find_task_file

        return find_task_file(task, record_inputs(task, call, make_say(quiet)))
