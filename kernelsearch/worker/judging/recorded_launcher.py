"""Records every call of a launcher by a script or a pytest file, and writes them as the task of a kernel alone.

The script runs whole: a launch is evaluated on the CPU, so that its own assertions hold and what a call changes in
place is seen. An argument may be None in some calls; of other kinds the most frequent is kept, and what is left out
is said. Numbers that are equal in all calls are one size; multiples follow it; what never varies is a constant.
Integers keep what they mean: offsets, places.
"""

from __future__ import annotations

import ast
import base64
import io
import runpy
import sys
import time
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.plugins import describe_error
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.forms import seed_torch
from kernelsearch.tasks.module import USER_ERRORS, import_file
from kernelsearch.tasks.named_function import LEFT_OUT
from kernelsearch.tasks.reach import find_kernels
from kernelsearch.verify.bits import same_bits
from kernelsearch.verify.domains import is_whole
from kernelsearch.verify.pieces import copy_tensor
from kernelsearch.verify.precision import CONTRACTS, check
from kernelsearch.verify.widest import flatten
from kernelsearch.worker.judging.own_reference import execute, run_evaluated
from kernelsearch.worker.judging.recorded_task import DRAWN, TaskText, count_elements
from kernelsearch.worker.launcher.intercept import Launch, intercept_launches
from kernelsearch.worker.launcher.recorded_call import check_tensor, is_file, read_arguments, write_literal
from kernelsearch.worker.launcher.standin import poison_empty, pretend_gpu

SECONDS, MOST_EVALUATED, MOST_CALLS, REPEATED = 200.0, 2**24, 64, 3
"""After how many seconds, elements of a launch or calls a script ends, and how many calls run twice."""
FLAT = "{}_of_tensors"
"""The launcher with the tensors of its lists as arguments, and without arguments by name only."""


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
        self.read, self.written = set[str](), Counter[str]()
        """What decides a call, of what it changes, and by how many calls the others do not."""
        self.telling, self.texts, self.spread = set[int](), set[str](), ""
        self.raised = ""
        self.depth = torch._C._len_torch_dispatch_stack()
        self.large, self.others, self._given, self._filling = False, 0, dict[str, Any](), ExitStack()
        self.function: Any = None
        self._frame: FrameType | None = None

    def look(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        starts = event == "call" and self._frame is None and frame.f_code.co_qualname == self.name
        try:
            if event == "return" and frame is self._frame:
                self._frame = None
                self._filling.close()
                self._finish(argument)
            elif starts and is_file(frame.f_code.co_filename, self.file):
                self._begin(frame)
        except TaskError as error:
            self.fault = self.fault or str(error)
            raise _Enough from None

    def _begin(self, frame: FrameType) -> None:
        """Notes a call; one with lists of other lengths than the first call is left out."""
        function = frame.f_globals.get(self.name)
        code = frame.f_code
        by_name = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        self._given, spread = _spread(self.name, read_arguments(frame, function, whole=True), by_name)
        if not self.calls:
            self.function, self.spread = function, spread
            if spread:
                exec(spread, own := {self.name: function, "torch": torch})
                self.function = own[FLAT.format(self.name)]
        if spread != self.spread:
            self.others += 1
            return
        for name, value in self._given.items():
            check_tensor(name, value) if torch.is_tensor(value) else write_literal(name, value, self.name)
        self._frame = frame
        self.calls.append(_copy(self._given))
        self.results.append([])
        self._filling.enter_context(poison_empty(0.0))  # not while the script makes and compares: it costs

    def _finish(self, result: Any) -> None:
        inputs, made = self.calls[-1], flatten(result)
        changed = [n for n, v in self._given.items() if torch.is_tensor(v) and not same_bits(v, inputs[n])]
        if not made and not changed and not self.large:  # it has raised what the script expects, or does nothing
            self.calls.pop(), self.results.pop()
            return
        self.changed |= {*changed}
        self.results[-1] = [y.shape for y in made]
        self.telling |= {i for i, y in enumerate(made) if _varies(y)}
        asked = [n for n in changed if n not in self.read and self.written[n] < REPEATED]
        if len(self.calls) <= REPEATED or asked:
            before = [copy_tensor(y) for y in (*made, *(self._given[n] for n in changed))]
            if not self._gives_again(inputs, changed, before):
                said = "two runs on the same inputs differ: pass the mask or the random bits as an argument"
                raise TaskError(f"a call of {self.name} is not deterministic, {said}")
            for label in asked:
                was = inputs[label]
                other = {**inputs, label: torch.zeros_like(was) if bool(was.any()) else torch.ones_like(was)}
                (self.written.update if self._gives_again(other, changed, before) else self.read.update)([label])
        if len(self.calls) == MOST_CALLS:
            raise _Enough

    def _gives_again(self, inputs: Mapping[str, Any], changed: Sequence[str], before: Sequence[torch.Tensor]) -> bool:
        """Whether another call gives these results and then these values of what it changes."""
        again, state = _copy(inputs), torch.get_rng_state()
        seed_torch(7919)
        with poison_empty(0.0):
            after = [*flatten(self.function(*again.values())), *(again[n] for n in changed)]
        torch.set_rng_state(state)
        return len(before) == len(after) and all(map(same_bits, before, after))

    def close(self) -> None:
        """Ends what a call that did not return has begun."""
        self._filling.close()

    def execute(self, launch: Launch) -> None:
        """Evaluates a launch of the script."""
        elements = sum(v.numel() for v in launch.args.values() if torch.is_tensor(v))
        if (elements > MOST_EVALUATED or time.monotonic() > self.ends) and self.calls:
            self.large = True
            raise _Enough
        try:
            self.texts.add(execute(launch, self.depth))
        except NotImplementedError as error:
            if self._frame is not None:  # it does not return
                self.calls.pop(), self.results.pop()
                self._frame = None
            self.fault = "" if self.calls else str(error)  # those before it can be evaluated
            raise _Enough from None
        except RuntimeError as error:  # the script may catch it
            self.raised = f": {' '.join(str(error).split())[:300]}"
            raise


def record_launcher(script: str, file: str, name: str) -> str:
    """The text of a task whose kernel is its own reference, from a script's calls of NAME. Raises TaskError."""
    path, seen, failed = Path(script), _Recorder(file, name), ""
    sys.path.insert(0, str(path.resolve().parent))
    with pretend_gpu(target_by_name("h100"), "cpu"), intercept_launches(seen.execute):
        try:
            sys.setprofile(seen.look)
            failed = _run_script(path)
        except (_Enough, SystemExit):
            pass
        except USER_ERRORS as error:
            failed = describe_error(error, path)
        finally:
            sys.setprofile(None)
            seen.close()
    if failed and not seen.fault:
        raise TaskError(f"{path.name} fails with {name} as it stands, before anything of it is rewritten: {failed}")
    if seen.fault or not (seen.changed or any(seen.results)):
        small = " and is small enough for a CPU" * seen.large
        none = f"{path.name} ended without a call of {name} of {Path(file).name} that gives or changes a tensor"
        none += small + seen.raised
        raise TaskError(seen.fault or none)
    kept, left_out = _choose_calls(seen.calls)
    if seen.others:
        left_out.append(f"{seen.others} with lists of other lengths")
    if len(seen.calls) == MOST_CALLS:
        left_out.append(f"what comes after {MOST_CALLS} calls")
    calls, changed = [seen.calls[i] for i in kept], sorted(seen.changed)
    smallest = min(calls, key=count_elements)

    @cache
    def takes(label: str) -> bool:
        """Whether the smallest call may have one value everywhere in an input, without a fault or a race."""
        own = smallest[label]
        if own is None:
            return False
        same = torch.zeros_like(own) + own.reshape(-1)[:1]
        with suppress(*USER_ERRORS):
            run_evaluated(seen.function, [*_copy({**smallest, label: same}).values()])
            return True
        return False

    contract = next((c for c in CONTRACTS if all(check(t, contract=c).accepted for t in seen.texts)), CONTRACTS[0])

    def finish(written: TaskText) -> str:
        """The text, which begins with what is left out."""
        if written.left_out:
            left_out.append(f"{written.left_out} forms of flags, numbers and None, each value of which is in others")
        return (f"{LEFT_OUT}{'; '.join(left_out)}.\n" if left_out else "") + written.text

    def write(recorded: Collection[str]) -> TaskText:
        return TaskText(name, calls, changed, takes, contract, recorded, seen.spread, {*seen.written} - seen.read)

    def find_fault(recorded: Collection[str]) -> str:
        """What goes wrong with what get_inputs draws, where some integers are as they were recorded; else ""."""
        try:
            return _find_fault(seen, write(recorded), [seen.results[i] for i in kept])
        except USER_ERRORS as error:
            return describe_error(error, path)

    if fault := find_fault(()):
        given = {n: [c[n] for c in calls if c[n] is not None] for n in smallest}
        whole = {n for n, own in given.items() if own and all(is_whole(v) and v.is_contiguous() for v in own)}
        if not find_fault(whole):
            for label in sorted(whole, key=lambda n: -max(v.numel() for v in given[n])):
                whole = whole if find_fault(whole - {label}) else whole - {label}
            return finish(write(whole))
        if fault == FOLLOW:  # who opens the task says what else is wrong
            raise TaskError(f"the sizes of what {name} gives {FOLLOW}")
    return finish(write(()))


FOLLOW = "follow the values of its inputs: a task has fixed ones"


def _find_fault(seen: _Recorder, written: TaskText, sizes: Sequence[list[torch.Size]]) -> str:
    """Why what a written task draws says less than the calls; else "". Raises what the launcher does."""
    space: dict[str, Any] = {"torch": torch, "zlib": zlib, "base64": base64}
    exec(written.text[written.text.index("def get_inputs") : written.text.index("SHAPES =")], space)
    told, changed = set[int](), set[str]()
    for number, (shape, call) in enumerate(tried := [*written.tests, written.timed[0]] * DRAWN):
        seed_torch(number * DRAWN // len(tried))
        given = dict(zip(seen.calls[0], space["get_inputs"](**shape), strict=True))
        before = _copy(given)
        made = flatten(run_evaluated(seen.function, [*given.values()]))
        if [y.shape for y in made] != (sizes[call] or [y.shape for y in made]):
            return FOLLOW
        told |= {i for i, y in enumerate(made) if _varies(y)}
        changed |= {n for n in seen.changed if given[n] is not None and not same_bits(given[n], before[n])}
    return "" if told >= seen.telling and changed >= seen.changed else "draws of its inputs say less than the calls"


def _spread(name: str, given: Mapping[str, Any], by_name: Collection[str]) -> tuple[dict[str, Any], str]:
    """A call's arguments, each tensor of a list by itself, and the function that takes these, also those that the
    launcher takes by name only.

    Its text is empty where it is the launcher itself.
    """
    flat, whole = dict[str, Any](), []
    for label, value in given.items():
        if isinstance(value, (list, tuple)) and any(map(torch.is_tensor, value)):
            names = [f"{label}_{i}" for i in range(len(value))]
            if not given.keys().isdisjoint(names):
                return dict(given), ""
            flat |= dict(zip(names, value, strict=True))
            passed = f"[{', '.join(names)}]"
        else:
            flat[label], passed = value, label
        whole.append(f"{label}={passed}" if label in by_name else passed)
    if whole == [*given]:
        return flat, ""
    return flat, f"def {FLAT.format(name)}({', '.join(flat)}):\n    return {name}({', '.join(whole)})\n"


def _varies(result: torch.Tensor) -> bool:
    return bool((result != result.reshape(-1)[:1]).any())


def _copy(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: copy_tensor(v.detach()) if torch.is_tensor(v) else v for n, v in inputs.items()}


def _choose_calls(calls: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[str]]:
    """The calls whose arguments are None or of the most frequent kind, and in words those that are left out."""
    kinds = [{n: what for n, v in call.items() if (what := _describe_kind(v))} for call in calls]
    usual, kept, left_out = dict[str, str](), list[int](), Counter[str]()
    counts = Counter(tuple(kind.items()) for kind in kinds)
    for each, count in counts.most_common():
        kind = dict(each)
        if other := next((n for n, what in each if usual.get(n, what) != what), ""):
            left_out[f"with {kind[other]} for {other} in place of {usual[other]}"] += count
            continue
        usual |= kind
        kept += [i for i, own in enumerate(kinds) if own == kind]
    said = [f"{count} of {len(calls)} calls, {what}" for what, count in left_out.items()]
    gone = [n for n in calls[0] if n not in usual and any(n in kind for kind in kinds)]
    return sorted(kept), said + [f"{', '.join(gone)}, which only these have"] * bool(gone)


def _describe_kind(value: Any) -> str:
    """What an argument is, in words; nothing of None."""
    if not torch.is_tensor(value):
        return "" if value is None else f"a {type(value).__name__}"
    what = f"{'' if value.is_contiguous() else 'strided '}{'floats' if value.is_floating_point() else 'integers'}"
    return f"{what} in {value.dim()} {'axis' if value.dim() == 1 else 'axes'}"


def _run_script(path: Path) -> str:
    """Runs a script, or the tests of a pytest file, with the arguments of `sys.argv`; how it fails, else ""."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    tests = any(isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name.lower().startswith("test") for n in body)
    if not tests or (not path.name.startswith("test") and "__main__" in ast.unparse(body[-1])):
        runpy.run_path(str(path), run_name="__main__")
        return ""
    import pytest

    failures: list[str] = []

    def note(self: Any, report: Any) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = f"{crash.message.splitlines()[0]} (line {crash.lineno})" if crash else str(report.longrepr)[-300:]
            failures.append(" ".join(f"{report.nodeid.rpartition('::')[2]}: {said}".split()))

    watcher = type("Watcher", (), {"pytest_runtest_logreport": note, "pytest_collectreport": note})()
    with redirect_stdout(io.StringIO()):
        pytest.main(
            [*"-x -p no:cacheprovider -p no:xdist --capture=no -o addopts=".split(), str(path), *sys.argv[1:]],
            [watcher],
        )
    return failures[0] if failures else ""
