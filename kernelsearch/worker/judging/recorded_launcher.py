"""Records every call of a launcher by a script or a pytest file, and writes them as the task of a kernel alone.

The script runs whole: a launch is evaluated on the CPU, so that its own assertions hold and what a call changes in
place is seen. Calls whose arguments are of other kinds or layouts than those of most calls are left out.
"""

from __future__ import annotations

import ast
import io
import runpy
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.plugins import describe_error
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.module import USER_ERRORS, import_file
from kernelsearch.tasks.reach import find_kernels
from kernelsearch.verify.bits import same_bits
from kernelsearch.verify.pieces import copy_tensor
from kernelsearch.verify.widest import flatten
from kernelsearch.worker.judging.own_reference import execute, run_evaluated
from kernelsearch.worker.launcher.intercept import Launch, intercept_launches
from kernelsearch.worker.launcher.recorded_call import check_tensor, is_file, read_arguments, write_literal
from kernelsearch.worker.launcher.recorded_calls_text import count_elements, write_task
from kernelsearch.worker.launcher.standin import poison_empty, pretend_gpu

SECONDS, MOST_EVALUATED = 200.0, 2**24
"""Seconds after which a script ends with the calls that it has made, and elements of a launch before which it ends."""
MOST_CALLS, REPEATED = 64, 3
"""Calls that are kept, and how many of them run twice."""


class _Enough(KeyboardInterrupt):
    """Ends the script: pytest takes it for Ctrl-C."""


def is_launcher(file: str, name: str) -> bool:
    """Whether a function of a file launches Triton kernels, so that it is no reference for others. Raises TaskError."""
    with pretend_gpu(target_by_name("h100"), "cpu"), intercept_launches(lambda launch: None):
        function = getattr(import_file(Path(file), "kernelsearch_recorded"), name, None)
    return callable(function) and not isinstance(function, type) and bool(find_kernels([function]))


class _Recorder:
    """Sees the calls of a function of a file from its frames, whoever imports it under whatever name."""

    def __init__(self, file: str, name: str) -> None:
        self.file, self.name, self.fault, self.ends = file, name, "", time.monotonic() + SECONDS
        self.calls, self.results, self.changed = list[dict[str, Any]](), list[list[torch.Size]](), set[str]()
        self.depth = torch._C._len_torch_dispatch_stack()
        self.function: Any = None
        self._frame: FrameType | None = None
        self._given: dict[str, Any] = {}

    def look(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        starts = event == "call" and self._frame is None and frame.f_code.co_qualname == self.name
        try:
            if event == "return" and frame is self._frame:
                self._frame = None
                self._finish(argument)
            elif starts and is_file(frame.f_code.co_filename, self.file):
                self.function = frame.f_globals.get(self.name)
                self._frame, self._given = frame, read_arguments(frame, self.function, whole=True)
                for name, value in self._given.items():
                    check_tensor(name, value) if torch.is_tensor(value) else write_literal(name, value, self.name)
                self.calls.append(_copy(self._given))
                self.results.append([])
        except TaskError as error:
            self.fault = self.fault or str(error)
            raise _Enough from None

    def _finish(self, result: Any) -> None:
        inputs, made = self.calls[-1], flatten(result)
        changed = [n for n, v in self._given.items() if torch.is_tensor(v) and not _is_same(v, inputs[n])]
        self.changed |= {*changed}
        self.results[-1] = [y.shape for y in made]
        if len(self.calls) <= REPEATED:
            before = [copy_tensor(y) for y in (*made, *(self._given[n] for n in changed))]
            again, state = _copy(inputs), torch.get_rng_state()
            torch.manual_seed(7919)
            after = [*flatten(self.function(*again.values())), *(again[n] for n in changed)]
            torch.set_rng_state(state)
            if len(before) != len(after) or not all(map(_is_same, before, after)):
                said = "two runs on the same inputs differ: pass the mask or the random bits as an argument"
                raise TaskError(f"a call of {self.name} is not deterministic, {said}")
        if len(self.calls) == MOST_CALLS:
            raise _Enough

    def execute(self, launch: Launch) -> None:
        """Evaluates a launch of the script."""
        elements = sum(v.numel() for v in launch.args.values() if torch.is_tensor(v))
        if (elements > MOST_EVALUATED or time.monotonic() > self.ends) and self.calls:
            raise _Enough
        try:
            execute(launch, self.depth)
        except NotImplementedError as error:
            self.fault = str(error)
            raise _Enough from None


def record_launcher(script: str, file: str, name: str) -> str:
    """The text of a task whose kernel is its own reference, from a script's calls of NAME. Raises TaskError."""
    path, seen, failed = Path(script), _Recorder(file, name), ""
    sys.path.insert(0, str(path.resolve().parent))
    with pretend_gpu(target_by_name("h100"), "cpu"), poison_empty(0.0), intercept_launches(seen.execute):
        try:
            sys.setprofile(seen.look)
            failed = _run_script(path)
        except (_Enough, SystemExit):
            pass
        except USER_ERRORS as error:
            failed = describe_error(error, path)
        finally:
            sys.setprofile(None)
    if failed and not seen.fault:
        raise TaskError(f"{path.name} fails with {name} as it stands, before anything of it is rewritten: {failed}")
    if seen.fault or not seen.calls:
        none = f"{path.name} ended without a call of {name} of {Path(file).name}: give one that calls it"
        raise TaskError(seen.fault or none)
    if not seen.changed and not any(seen.results):
        raise TaskError(f"{name} returns no tensor and changes no argument at sizes that are evaluated here")
    most = Counter(map(_describe_kinds, seen.calls)).most_common(1)[0][0]
    kept = [i for i, call in enumerate(seen.calls) if _describe_kinds(call) == most]
    small = min(kept, key=lambda i: count_elements(seen.calls[i]))

    def takes(label: str, value: torch.Tensor) -> bool:
        with suppress(*USER_ERRORS):
            run_evaluated(seen.function, [*_copy({**seen.calls[small], label: value}).values()])
            return True
        return False

    text, shapes = write_task(name, [seen.calls[i] for i in kept], sorted(seen.changed), takes)
    with suppress(*USER_ERRORS):  # who opens the task says what is wrong with its inputs
        space: dict[str, Any] = {"torch": torch}
        exec(text[text.index("def get_inputs") : text.index("SHAPES =")], space)
        made = flatten(run_evaluated(seen.function, space["get_inputs"](**shapes[kept.index(small)])))
        if seen.results[small] and [y.shape for y in made] != seen.results[small]:
            raise TaskError(f"the sizes of what {name} gives follow the values of its inputs: a task has fixed ones")
    return text


def _copy(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: copy_tensor(v.detach()) if torch.is_tensor(v) else v for n, v in inputs.items()}


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return same_bits(one.contiguous(), other.contiguous())


def _describe_kinds(inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """What calls of one task have in common: which arguments are tensors, with how many axes in which order."""
    tensors = [(v.dim(), v.is_contiguous(), v.is_floating_point()) for v in inputs.values() if torch.is_tensor(v)]
    return *tensors, *(type(v) for v in inputs.values())


def _run_script(path: Path) -> str:
    """Runs a script, or the tests of a pytest file; how it fails, else ""."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    tests = any(isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name.lower().startswith("test") for n in body)
    if not tests or (not path.name.startswith("test") and "__main__" in ast.unparse(body[-1])):
        runpy.run_path(str(path), run_name="__main__")
        return ""
    try:
        import pytest
    except ImportError:
        raise TaskError(f"{path.name} is a file of tests: pip install pytest") from None
    failures: list[str] = []

    def note(self: Any, report: Any) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = f"{crash.message.splitlines()[0]} (line {crash.lineno})" if crash else str(report.longrepr)[-300:]
            failures.append(" ".join(f"{report.nodeid.rpartition('::')[2]}: {said}".split()))

    watcher = type("Watcher", (), {"pytest_runtest_logreport": note, "pytest_collectreport": note})()
    with redirect_stdout(io.StringIO()):
        quiet = "-x -p no:cacheprovider -p no:xdist -p no:cov --capture=no -o addopts=".split()
        pytest.main([*quiet, str(path)], plugins=[watcher])
    return failures[0] if failures else ""
