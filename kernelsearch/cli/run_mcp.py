"""`mcp`: a server over standard input and output, by which agents open tasks and have kernels judged, timed and tuned.

The workers of the last few tasks stay warm. The database is open for writing only while a kernel is tried. A call
whose client went away ends after the trials in flight; where the client itself is gone the server ends at once, and
what was not stored by then is not.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent

from kernelsearch import __version__
from kernelsearch.api.optimization import introduce
from kernelsearch.cli import run_page, run_try
from kernelsearch.cli.help import render_skill
from kernelsearch.cli.run_page import PageOptions
from kernelsearch.cli.run_try import TryOptions
from kernelsearch.core.errors import KernelsearchError, TaskError
from kernelsearch.core.formats import make_printable
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Verdict, content_digest
from kernelsearch.propose.models.lessons import choose_lessons, facts_of_task, load_lessons, read_shipped
from kernelsearch.propose.models.plan import format_idea
from kernelsearch.propose.proposers import edit_plan
from kernelsearch.record import plan_rows
from kernelsearch.record.store import Store
from kernelsearch.report import kernel_file
from kernelsearch.report import lineage as family
from kernelsearch.tasks.module import read_text
from kernelsearch.trial import referee
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder

WARM, MOST_LESSONS = 3, 12
"""Tasks whose workers are kept; lessons that are listed."""
T = TypeVar("T")

CLOSE_S = 5.0
"""How long the end of the server may take; its workers end by themselves a second after it."""


def main(db: str, target: str, say: Say) -> int:
    """Serves until the client closes standard input or goes away. Ends the process."""
    room = Workroom(db, target, say)

    def leave(*_: object) -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        closing = threading.Thread(target=room.close, daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        os._exit(0)  # a thread may still wait for standard input, or for a candidate

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    try:
        make_server(room).run()
    except* OSError:
        say("the client went away")
    return leave()


@dataclass
class Workroom:
    """What the calls of a server share: the database's name, and the opened tasks with their workers, newest last.

    Calls take turns, but for those that only read what is recorded of an opened task. Each is given `stopping`, which
    is true once nobody waits for its answer.
    """

    db: str
    target: str
    say: Say
    benches: dict[tuple[str, str], Bench] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)
    writing: Store | None = None
    closed: bool = False

    async def answer(self, act: Callable[[run_try.Stopping], T], reads: str = "") -> T:
        """The result of act, from a thread of its own; reads is the task that it only reads of.

        The user's mistakes become ToolErrors.
        """
        gone = threading.Event()

        def take_turn() -> T:
            with nullcontext() if reads and _key(reads) in self.benches else self.turn:
                answer = act(lambda: gone.is_set() or self.closed)
                return cast(T, make_printable(answer)) if isinstance(answer, str) else answer

        try:
            return await anyio.to_thread.run_sync(take_turn, abandon_on_cancel=True)
        except KernelsearchError as error:
            raise ToolError(str(error)) from None
        finally:
            gone.set()

    def bench(self, task: str) -> Bench:
        """The opened task; a file that has changed is opened again. Raises TaskError."""
        key = _key(task)
        if key not in self.benches:
            self.benches[key] = Bench.open(task, self.target, compiled=default_folder(), say=self.say)
            changed = [other for other in self.benches if other[0] == key[0] and other != key]
            for other in {*changed, *list(self.benches)[:-WARM]}:
                self.benches.pop(other).workplace.close()
        return self.benches[key]

    def try_kernel(self, stopping: run_try.Stopping, task: str, text: str, options: TryOptions) -> dict[str, Any]:
        """The result of one run."""
        bench = self.bench(task)
        self.writing = Store.open(self.db, say=self.say)
        with self.writing as store:
            return run_try.try_kernel(bench, store, text, options, stopping=stopping)

    def close(self) -> None:
        """Ends what is going on, the record first: what the end of the workers makes of a trial is no verdict."""
        self.closed = True
        if self.writing:
            self.writing.close()
        for bench in list(self.benches.values()):
            bench.workplace.close()


def make_server(room: Workroom) -> MCPServer:
    """The server with its tools."""
    server = MCPServer("kernelsearch", instructions=render_skill(), version=__version__, log_level="WARNING")

    @server.tool(name="open")
    async def open_task(task: str) -> str:
        """Opens a task file: its shapes, the machine that times are for, and its own kernel as a kernel file.

        task is the path of the file. Its workers stay warm for the calls that follow.
        """

        def act(stopping: run_try.Stopping) -> str:
            bench, lines = room.bench(task), list[str]()
            introduce(bench, bench.facts, lines.append)
            own = bench.seed.with_changes(space=dict(bench.facts.space), config=dict(bench.facts.config))
            return "\n".join([*lines, "", own.render()])

        return await room.answer(act)

    @server.tool()
    async def page(task: str, kernel: str = "") -> str:
        """What there is to know of a kernel before writing a better one.

        The reference, shapes, device, its times, bottlenecks and source, how a kernel file is written, what was tried
        and what it gained. kernel is a kernel file's text or path; empty: the task's own kernel.
        """

        def act(stopping: run_try.Stopping) -> str:
            text = _read(kernel) if kernel else None
            written = run_page.write_page(room.bench(task), text, PageOptions(db=room.db), room.say)
            return referee.explain(written) if isinstance(written, Verdict) else written

        return await room.answer(act)

    @server.tool(name="try")
    async def try_(
        task: str, kernel: str, parent: str = "", why: str = "", tune: int = 0, by: str = "agent"
    ) -> CallToolResult:
        """Judges, times and records a kernel: the verdict, times against the task's own and the best, hints.

        kernel is a kernel file's text or path; parent the digest of the kernel that it was made from, or `best` (empty:
        the task's own); why the idea in a sentence; tune how many more configs of its SPACE to try; by who wrote it.
        """
        options = TryOptions(parent=parent, why=why, tune=max(0, tune), by=by)
        return _describe(await room.answer(lambda stopping: room.try_kernel(stopping, task, _read(kernel), options)))

    @server.tool()
    async def tune(task: str, kernel: str = "best", trials: int = 8) -> CallToolResult:
        """Tries more configs of a recorded kernel's SPACE. kernel is a digest, its beginning, or `best`."""

        def act(stopping: run_try.Stopping) -> dict[str, Any]:
            bench = room.bench(task)
            with Store.open(room.db, write=False) as store:
                digest, run = run_try.find_kernel(store, bench.facts, kernel, bench.where)
                text = kernel_file.render_kernel_file(store, digest, run=run)
            return room.try_kernel(stopping, task, text, TryOptions(parent=digest, tune=max(1, trials)))

        return _describe(await room.answer(act))

    async def show(task: str, kernel: str, render: Callable[..., str]) -> str:
        def act(stopping: run_try.Stopping) -> str:
            bench = room.bench(task)
            with Store.open(room.db, write=False) as store:
                digest, run = run_try.find_kernel(store, bench.facts, kernel, bench.where)
                return render(store, digest, run=run)

        return await room.answer(act, reads=task)

    @server.tool()
    async def best(task: str) -> str:
        """The task's best recorded kernel as a kernel file, with its config; its digest is in the first line."""
        return await show(task, "best", kernel_file.render_kernel_file)

    @server.tool()
    async def lineage(task: str, kernel: str = "best") -> str:
        """How a recorded kernel came about: who changed what at each step, and what it gained.

        kernel is a digest, its beginning, or `best`.
        """
        return await show(task, kernel, family.as_text)

    @server.tool()
    async def plan(task: str, edit: str = "") -> str:
        """The ideas for a task with what became of each; every search, model and agent of this database sees them.

        edit has lines `IDEA: what | why | 1.3x` (the gain to expect), `IDEA under ID: ...` (a step of it) and
        `DROP ID: why`. An id as `why` of `try` counts that kernel as a try of the idea.
        """

        def act(stopping: run_try.Stopping) -> str:
            bench = room.bench(task)
            with Store.open(room.db, say=room.say) as store:
                rows = edit_plan(store, bench.facts, bench.where, edit, "agent").as_rows()
            return "\n".join(map(format_idea, rows)) or "no ideas yet"

        return await room.answer(act)

    @server.tool()
    async def lesson(task: str, kernel: str = "", text: str = "") -> str:
        """What gained on tasks like this one: data that others wrote, with digests to open.

        kernel is the digest of a recorded kernel of any task: it is shown. With text, what is to be learnt from this
        task's kernel in a sentence, other tasks are shown that.
        """

        def act(stopping: run_try.Stopping) -> str:
            bench = room.bench(task)
            with Store.open(room.db, say=room.say) as store:
                if kernel and not text:
                    return kernel_file.render_kernel_file(store, store.find_digest(kernel))
                if kernel:
                    digest, _ = run_try.find_kernel(store, bench.facts, kernel, bench.where)
                    row = {"task": bench.facts.digest, "device": bench.where, "kernel": digest}
                    plan_rows.add_lesson(store, {**row, "name": text, "author": "agent"})
                found = [*read_shipped(), *load_lessons(store, "" if text else bench.facts.digest)]
            chosen = choose_lessons(found, facts_of_task(bench.facts, bench.where), MOST_LESSONS, like=0)
            return "\n".join(one.describe(bench.where) for one in chosen)

        return await room.answer(act)

    return server


def _key(task: str) -> tuple[str, str]:
    """A task file's path and its text's digest. Raises TaskError."""
    path = os.path.abspath(task)
    return path, content_digest(read_text(path))


def _read(kernel: str) -> str:
    """A kernel file's text, from itself or from its path in this folder. Raises TaskError."""
    if "\n" in kernel:
        return kernel
    place = Path(kernel).resolve()
    if place.suffix != ".py" or not place.is_relative_to(Path.cwd()):
        raise TaskError("a kernel is given as its text, or as the path of a .py file in the server's working folder")
    return read_text(place)


def _describe(tried: dict[str, Any]) -> CallToolResult:
    """The result in lines, and as JSON."""
    return CallToolResult(
        content=[TextContent(type="text", text=make_printable(run_try.as_text(tried)))], structured_content=tried
    )
