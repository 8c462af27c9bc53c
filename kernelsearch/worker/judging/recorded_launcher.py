"""Records every call of a launcher by a script or a pytest file, and writes them as the task of a kernel alone.

The script runs whole: a launch is evaluated on the CPU, so that its own assertions hold and what a call changes in
place is seen. Of calls with other kinds of arguments the most frequent are kept. Numbers that are equal in all calls
are one size; multiples follow it; what never varies is a constant. Integers keep what they mean: offsets, places.
"""

from __future__ import annotations

import ast
import io
import runpy
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from kernelsearch.worker.launcher.recorded_tensor import write_tensor
from kernelsearch.worker.launcher.standin import poison_empty, pretend_gpu

SECONDS, MOST_EVALUATED, MOST_CALLS, REPEATED = 200.0, 2**24, 64, 3
"""After how many seconds, elements of a launch or calls a script ends, and how many calls run twice."""


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
        self.large, self._given = False, dict[str, Any]()
        self.function: Any = None
        self._frame: FrameType | None = None

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
        changed = [n for n, v in self._given.items() if torch.is_tensor(v) and not same_bits(v, inputs[n])]
        if not made and not changed and not self.large:  # it has raised what the script expects, or does nothing
            self.calls.pop(), self.results.pop()
            return
        self.changed |= {*changed}
        self.results[-1] = [y.shape for y in made]
        if len(self.calls) <= REPEATED:
            before = [copy_tensor(y) for y in (*made, *(self._given[n] for n in changed))]
            again, state = _copy(inputs), torch.get_rng_state()
            torch.manual_seed(7919)
            after = [*flatten(self.function(*again.values())), *(again[n] for n in changed)]
            torch.set_rng_state(state)
            if len(before) != len(after) or not all(map(same_bits, before, after)):
                said = "two runs on the same inputs differ: pass the mask or the random bits as an argument"
                raise TaskError(f"a call of {self.name} is not deterministic, {said}")
        if len(self.calls) == MOST_CALLS:
            raise _Enough

    def execute(self, launch: Launch) -> None:
        """Evaluates a launch of the script."""
        elements = sum(v.numel() for v in launch.args.values() if torch.is_tensor(v))
        if (elements > MOST_EVALUATED or time.monotonic() > self.ends) and self.calls:
            self.large = True
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
    if seen.fault or not (seen.changed or any(seen.results)):
        small = " and is small enough for a CPU" * seen.large
        none = f"{path.name} ended without a call of {name} of {Path(file).name} that gives or changes a tensor{small}"
        raise TaskError(seen.fault or none)
    kinds = [tuple(map(_describe_kind, call.values())) for call in seen.calls]
    kept = [i for i, kind in enumerate(kinds) if kind == Counter(kinds).most_common(1)[0][0]]
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


def _describe_kind(value: Any) -> Any:
    return (value.dim(), value.is_contiguous(), value.is_floating_point()) if torch.is_tensor(value) else type(value)


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
        pytest.main([*"-x -p no:cacheprovider -p no:xdist --capture=no -o addopts=".split(), str(path), *sys.argv[1:]], [watcher])
    return failures[0] if failures else ""


MOST_TESTED, TESTED, TIMED = 2**17, 3, 4
"""Elements of the inputs of a test shape; most test shapes and most timed ones."""


def write_task(
    name: str, calls: Sequence[Mapping[str, Any]], changed: Sequence[str], takes: Callable[[str, torch.Tensor], bool]
) -> tuple[str, list[Mapping[str, Any]]]:
    """(The text that makes a file with a launcher a task, the parameters of each call).

    takes says whether the launcher takes the smallest call with another tensor for a name, without a fault or a race.
    """
    writer = _TaskText(calls, takes)
    made = "".join(f"        {writer.write(label, values)},\n" for label, values in writer.columns.items())
    shapes = [{n: vector[i] for n, vector in writer.params.items()} for i in range(len(calls))]
    sizes = {_spell(p): (count_elements(call), p) for p, call in zip(shapes, calls, strict=True)}
    once = sorted(sizes.values(), key=lambda pair: pair[0])
    tests = [p for n, p in once[:-1] if n <= MOST_TESTED][:TESTED] or [once[0][1]]
    timed = [p for _, p in once if p not in tests][-TIMED:] or [once[-1][1]]
    lists = ["".join(f"    dict({_spell(p)}),\n" for p in part) for part in (timed, tests)]
    domain = ", ".join(f'"{n}": "{limit}"' for n, limit in writer.domain.items())
    text = f"import torch\n\nimport kernelsearch\n\nreference = kernelsearch.kernel_as_reference({name})\n"
    text += f'LAUNCHER = "{name}"\nMUTATES = [{", ".join(f"{n!r}" for n in changed)}]\n'.replace("'", '"')
    text += f"DOMAIN = {{{domain}}}\n" if domain else ""
    text += f"\n\ndef get_inputs({_spell(timed[-1])}):\n    return [\n{made}    ]\n\n\n"
    return f"{text}SHAPES = [\n{lists[0]}]\nTEST_SHAPES = [\n{lists[1]}]\n", shapes


def count_elements(call: Mapping[str, Any]) -> int:
    """The elements of all tensors of a call."""
    return sum(v.numel() for v in call.values() if torch.is_tensor(v))


def _spell(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{n}={v if isinstance(v, torch.dtype) else repr(v)}" for n, v in shape.items())


class _TaskText:
    """numbers has, by its values in all calls, each size as an expression over the parameters, or a literal."""

    def __init__(self, calls: Sequence[Mapping[str, Any]], takes: Callable[[str, torch.Tensor], bool]) -> None:
        self.columns = {label: [call[label] for call in calls] for label in calls[0]}
        self.smallest, self.takes = min(calls, key=count_elements), takes
        self.domain, self.params, self.numbers = dict[str, str](), dict[str, Any](), dict[Any, str]()
        named = {n: tuple(values) for n, values in self.columns.items() if type(values[0]) is int}
        named |= {
            f"{n}_{a}": _take(v, a) for n, v in self.columns.items() if torch.is_tensor(v[0]) for a in range(v[0].dim())
        }
        for name, vector in sorted(named.items(), key=lambda item: sum(item[1])):
            if vector not in self.numbers:
                text = str(vector[0]) if len({*vector}) == 1 else self._derive(vector)
                self.params |= {} if text else {name: vector}
                self.numbers[vector] = text or name

    def _derive(self, vector: Any) -> str:
        """A size that follows another in all calls, else ""."""
        for name, own in self.params.items():
            factor = vector[0] // own[0] if own[0] > 0 else 0
            if vector == tuple(n + 1 for n in own):
                return f"({name} + 1)"
            if factor > 1 and vector == tuple(factor * n for n in own):
                return f"{factor} * {name}"
        return ""

    def write(self, label: str, values: list[Any]) -> str:
        """An input as an expression."""
        if torch.is_tensor(values[0]):
            kinds = tuple(v.dtype for v in values)
            sizes = {(label, a): self.numbers[_take(values, a)] for a in range(values[0].dim())}
            if kinds[0] == torch.bool or not values[-1].is_contiguous():
                return write_tensor(label, values[-1], sizes, {})[0]
            if not any(v.numel() for v in values):
                return f"torch.empty({', '.join(sizes.values()) or '()'}, dtype={kinds[0]})"
            dtype = str(kinds[0]) if len({*kinds}) == 1 else self._name(kinds, f"{label}_dtype")
            draw = self._draw_floats if values[0].is_floating_point() else self._draw_integers
            return f"{draw(label, values, [*sizes.values()])}.to({dtype})"
        if type(values[0]) is int and tuple(values) in self.numbers:
            return self.numbers[tuple(values)]
        return repr(values[0]) if len({*map(repr, values)}) == 1 else self._name(tuple(values), label)

    def _name(self, vector: Any, name: str) -> str:
        """The parameter that has these values, a new one where none has."""
        known = next((n for n, own in self.params.items() if [*map(repr, own)] == [*map(repr, vector)]), name)
        self.params[known] = vector
        return known

    def _draw_floats(self, label: str, values: list[torch.Tensor], shape: list[str]) -> str:
        every = torch.cat([v.double().reshape(-1) for v in values]).nan_to_num(0.0, 0.0, 0.0)
        low, high, spread = (float(v) for v in (every.min(), every.max(), every.std(correction=0)))
        how, factor = "randn", 1.0 if 0.4 < spread < 2.5 or not spread else spread
        if low >= 0.0 and spread > 0.0:
            self.domain[label] = "unit" if high <= 1.0 else "positive" if low > 0.0 else "nonnegative"
            how, factor = "rand", max(1.0, high)
        text = f"torch.{how}({{}})" if factor == 1.0 else f"(torch.{how}({{}}) * {factor:.2g})"
        return text.format(", ".join(shape) or "()")

    def _draw_integers(self, label: str, values: list[torch.Tensor], shape: list[str]) -> str:
        flat, text = [v.reshape(-1).long() for v in values], ""
        rows = [v[v >= 0] for v in flat]
        highs, least = [int(v.max()) + 1 if len(v) else 1 for v in rows], min(int(v.min()) for v in flat if len(v))
        (limit, is_place), end = self._find_limit(label, highs), self.numbers.get(tuple(n - 1 for n in highs))
        same = torch.zeros_like(own := self.smallest[label]) + own.reshape(-1)[:1]  # a race if places are written twice
        rises = all(v.dim() == 1 and len(v) > 1 and v[0] == 0 and bool((v.diff() >= 0).all()) for v in values)
        if rises and all(torch.equal(v, torch.arange(len(v))) for v in flat):
            text = "torch.arange({count})"
        elif rises and end:
            inner = f"torch.randint(0, {end} + 1, ({{count}} - 2,)).sort().values"
            text = f"torch.cat([torch.zeros(1, dtype=torch.int64), {inner}, torch.full((1,), {end})])"
        elif is_place and all(len(v) == len(v.unique()) for v in rows) and not self.takes(label, same):
            text = f"torch.randperm({limit})[:{{count}}].reshape({{shape}})"
            share = sum(map(len, rows)) / sum(map(len, flat))
            text = f"torch.where(torch.rand({{shape}}) < {share:.2g}, {text}, -1)" if least < 0 else text
        self.domain |= {label: "fixed"} if text else {}
        text = text or f"torch.randint({least if least <= 0 else int(not is_place)}, {limit}, {{shape}})"
        return text.format(count=" * ".join(shape), shape=f"({', '.join(shape)}{',' * bool(shape)})")

    def _find_limit(self, label: str, highs: list[int]) -> tuple[str, bool]:
        """(What a number stays below, whether that is a size: then it is a place)."""
        own = {_take(self.columns[label], a) for a in range(self.smallest[label].dim())}
        limits = {v: t for v, t in self.numbers.items() if v not in own or len({*v}) == 1}
        for name, column in self.columns.items():
            if torch.is_tensor(column[0]) and column[0].dim() > 1 and name != label:
                both = tuple(v.shape[0] * v.shape[1] for v in column)
                limits.setdefault(both, " * ".join(self.numbers[_take(column, a)] for a in (0, 1)))
        fitting = [(v, t, True) for v, t in limits.items()]
        fitting += [(tuple(n + 1 for n in v), f"{t} + 1", False) for v, t, _ in fitting]
        fitting = [f for f in fitting if all(n >= high for n, high in zip(f[0], highs, strict=True))]
        fitting = fitting or [((1,) * len(highs), str(max(highs)), False)]
        vector, text, is_place = min(fitting, key=lambda f: (sum(f[0]), not f[2]))
        near = any(2 * high >= n for n, high in zip(vector, highs, strict=True))
        return (text, is_place) if near else (f"min({max(highs)}, {text})", False)


def _take(values: list[torch.Tensor], axis: int) -> tuple[int, ...]:
    return tuple(v.shape[axis] for v in values)
