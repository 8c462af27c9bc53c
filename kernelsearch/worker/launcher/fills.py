"""What a launcher fills before its kernels write there: where the calls are, and the launcher without some of them."""

from __future__ import annotations

import ast
import gc
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import Fill
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.worker.launcher.standin import FILLS, find_caller

_UNFILLED = {
    **{f"{name}{like}": f"empty{like}" for name in ("zeros", "ones", "full") for like in ("", "_like")},
    **{f"new_{name}": "new_empty" for name in ("zeros", "ones", "full")},
}
"""Functions that allocate without filling, by those that fill."""


class FillLog:
    """The fills of a launcher's run, of memory that it has not passed on filled in another way.

    It keeps what was filled, so that no other memory has the same address.
    """

    def __init__(self) -> None:
        self._fills: dict[int | None, list[Fill | None]] = {}
        self._kept: list[torch.Tensor] = []

    def note(self, operation: str, result: Any) -> None:
        """Looks at an operation of torch (`aten::zeros.names`), which has just run."""
        if operation.partition(".")[0] in FILLS and isinstance(result, torch.Tensor):
            self._fills.setdefault(find_home(result), []).append(_find_fill())
            self._kept.append(result)

    def find(self, args: Mapping[str, Any]) -> dict[str, tuple[Fill, ...]]:
        """The fills of what a launch is passed, by parameter; without those that cannot be left out."""
        found: dict[str, tuple[Fill, ...]] = {}
        for name, value in args.items():
            tensor = value.base if isinstance(value, TensorDescriptor) else value
            fills = self._fills.get(find_home(tensor), [])
            if fills and None not in fills:
                found[name] = tuple(f for f in dict.fromkeys(fills) if f is not None)
        return found


def find_home(value: Any) -> int | None:
    """What tensors of one memory have in common; None for all else."""
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _find_fill() -> Fill | None:
    """The call of the launcher that fills memory just now, if the launcher can be written without it."""
    if (frame := find_caller()) is None:
        return None
    _, line, _, column = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    fill = Fill(frame.f_code.co_filename, line or 0, column or 0)
    return fill if _can_leave_out(fill) else None


@lru_cache(maxsize=256)
def _can_leave_out(fill: Fill) -> bool:
    try:
        return leave_out(_read(fill.file), (fill,)) is not None
    except (OSError, SyntaxError, ValueError):
        return False


@lru_cache(maxsize=16)
def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def leave_out(text: str, fills: Sequence[Fill]) -> str | None:
    """A file's text without these fills: memory is allocated, and holds what it held. Lines stay where they are.

    None where one of them is no call of torch that fills, or gives memory the type of its value.
    """
    calls = {(n.end_lineno, n.end_col_offset): n for n in ast.walk(parse_python(text)) if isinstance(n, ast.Call)}
    data = text.encode()
    starts = [0, *itertools.accumulate(map(len, data.splitlines(keepends=True)))]
    cuts: list[tuple[int, int, bytes]] = []
    for fill in fills:
        call = calls.get((fill.line, fill.column))
        cut = None if call is None else _cut(call)
        if cut is None:
            return None
        cuts += [(starts[a[0] - 1] + a[1], starts[b[0] - 1] + b[1], new.encode()) for a, b, new in cut]
    for start, end, new in sorted(cuts, reverse=True):
        data = data[:start] + new + b"\n" * data.count(b"\n", start, end) + data[end:]
    return data.decode()


Place = tuple[int, int]


def _cut(call: ast.Call) -> list[tuple[Place, Place, str]] | None:
    """What to replace, from a place to another, so that a call does not fill; None if it cannot be written so."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return None
    name_end = _end(function)
    if function.attr in ("zero_", "fill_"):
        return [(_end(function.value), _end(call), "")]
    if function.attr not in _UNFILLED:
        return None
    cuts = [((name_end[0], name_end[1] - len(function.attr)), name_end, _UNFILLED[function.attr])]
    if "full" not in function.attr:
        return cuts
    keywords = {k.arg: k for k in call.keywords}
    given = keywords.get("fill_value")
    value = given.value if given else call.args[1] if len(call.args) > 1 else None
    if value is None or not (call.args or "size" in keywords or "input" in keywords):
        return None
    if function.attr == "full" and "dtype" not in keywords and not _is_float(value):
        return None
    others = [n for n in (*call.args, *(k.value for k in call.keywords)) if n is not value and _end(n) < _end(value)]
    if not others:
        return None  # the value comes first
    return [*cuts, (_end(max(others, key=_end)), _end(value), "")]


def _end(node: ast.expr) -> Place:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _is_float(value: ast.expr) -> bool:
    """Whether an expression is a number with a point, for certain."""
    match value:
        case ast.UnaryOp(operand=operand):
            return _is_float(operand)
        case ast.Constant(value=number):
            return isinstance(number, float)
        case ast.Call(func=ast.Name(id="float")):
            return True
        case ast.Attribute(value=ast.Name(id="torch" | "math"), attr="inf" | "nan"):
            return True
    return False


class UnfilledCode:
    """The functions of a process that make some fills, and their code without them.

    Raises LaunchError where a fill is in no function that there is.
    """

    def __init__(self, fills: Sequence[Fill]) -> None:
        self._codes: list[tuple[FunctionType, CodeType, CodeType]] = []
        functions = [f for f in gc.get_objects() if type(f) is FunctionType] if fills else []
        for file in dict.fromkeys(fill.file for fill in fills):
            own = [f for f in functions if f.__code__.co_filename == file]
            text = leave_out(_read(file), [f for f in fills if f.file == file])
            new = dict(_list_codes(compile(text, file, "exec", dont_inherit=True))) if text else {}
            pairs = [(f, f.__code__, new[_name(f.__code__)]) for f in own if _name(f.__code__) in new]
            changed = [p for p in pairs if p[1] != p[2] and p[1].co_freevars == p[2].co_freevars]
            if not changed:
                raise LaunchError(f"INIT: a fill of {Path(file).name} cannot be left out")
            self._codes += changed

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the context these functions do not fill."""
        for function, _, new in self._codes:
            function.__code__ = new
        try:
            yield
        finally:
            for function, old, _ in self._codes:
                function.__code__ = old


def _name(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _list_codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    yield _name(code), code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _list_codes(inner)
