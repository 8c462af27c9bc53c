"""The shipped tasks' seed kernels as the driver would know them, read with `ast` and without importing torch."""

from __future__ import annotations

import ast
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import forking

from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Rewrite
from kernelsearch.propose.edits import NotApplicable, edit_named

ROOT = Path(__file__).resolve().parents[2]
NAMES = tuple(sorted(p.parent.name for p in (ROOT / "studies").glob("*/*.py") if p.stem == p.parent.name))
HEAD = "import triton\nimport triton.language as tl\n\n\n"


@lru_cache
def task(name: str) -> TaskFacts:
    """The facts that edits read of a shipped task, or of one beside this file: its seed, site and space."""
    beside = Path(__file__).parent / "edits" / f"{name}.py"
    path = beside if beside.exists() else ROOT / "studies" / name / f"{name}.py"
    text = path.read_text()
    functions, space = [], {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            functions.append("\n".join(text.splitlines()[node.decorator_list[0].lineno - 1 : node.end_lineno]))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SPACE":
            space = ast.literal_eval(node.value)
    seed = HEAD + "\n\n\n".join(functions) + "\n"
    return facts(seed, name, {k: tuple(v) for k, v in space.items()})


def facts(seed: str, name: str = "drawn", space: dict | None = None) -> TaskFacts:
    site = Kernel.parse(seed).entries[0]
    return TaskFacts(name, "task.py", "0" * 16, "native", seed, (site,), (), (), space or {}, {})


def seed(name: str) -> Kernel:
    return Kernel.parse(task(name).seed)


@cache
def applied(edit_name: str, name: str) -> list[Rewrite] | NotApplicable:
    """What an edit gives for a shipped seed; worked out once for all tests."""
    return edit_named(edit_name).apply(seed(name), task(name))


def variants(edit_name: str, name: str) -> list[Rewrite]:
    result = applied(edit_name, name)
    return [] if isinstance(result, NotApplicable) else result


def drawn(body: str, params: str = "x_ptr, y_ptr, x_stride, n_cols, BLOCK: tl.constexpr") -> Kernel:
    """A kernel with this body, for one property at a time."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return Kernel.parse(f"{HEAD}@triton.jit\ndef drawn_kernel({params}):\n{lines}")


def ask(script: str, jobs: list[dict]) -> list[dict]:
    """The answers of one child process to all jobs, in order. It is forked from one that has all imports."""
    server, log = _server(script)
    watchdog = threading.Timer(300, os.killpg, (server.pid, signal.SIGKILL))
    watchdog.start()
    try:
        print(json.dumps(jobs), file=server.stdin, flush=True)
        lines = list(itertools.takewhile(lambda line: line != forking.END, server.stdout))
    finally:
        watchdog.cancel()
    answers = [json.loads(line) for line in lines if line.startswith('{"ok"')]
    assert len(answers) == len(jobs), Path(log.name).read_text()[-3000:]
    return answers


def assert_right(name: str, kernels: list[Kernel], configs=({},), given: str = "exact") -> None:
    """Has the evaluator find every kernel right with each config; of one given as "config" blocks are made small."""
    texts = {kernel.digest: kernel.render() for kernel in kernels}.values()  # each once
    jobs = [{"task": name, "kernel": text, given: config} for text in texts for config in configs]
    answers = ask("runner.py", jobs)
    wrong = [f"{job[given]}: {a['why']}\n{job['kernel']}" for job, a in zip(jobs, answers, strict=True) if not a["ok"]]
    assert not wrong, f"{len(wrong)} of {len(jobs)} wrong, the first with {wrong[0]}"


def changed(kernel: Kernel, *pairs: tuple[str, str]) -> Kernel:
    """The kernel with parts of its text replaced, each of which it must have."""
    text = kernel.render()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return Kernel.parse(text)


@cache
def _server(script: str) -> tuple[subprocess.Popen, Any]:
    """A process that forks a child for each list of jobs until this one ends, and the file of what they say."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name(script))]
    log, pipe = tempfile.NamedTemporaryFile(), subprocess.PIPE  # noqa: SIM115  (open as long as the process)
    how = {"stdin": pipe, "stdout": pipe, "stderr": log, "text": True, "env": env, "start_new_session": True}
    return subprocess.Popen(command, **how), log
