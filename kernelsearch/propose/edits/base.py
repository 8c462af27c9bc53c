"""What an edit is: a name, a summary, and `apply`, which gives variants or says why there are none."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

from kernelsearch.parsing import parsed
from kernelsearch.propose import tree
from kernelsearch.propose.carried import indexed, settled
from kernelsearch.propose.flow import Flow
from kernelsearch.propose.shapes import Shapes
from kernelsearch.protocols import Rewrite
from kernelsearch.source import Function, Kernel, parse_function
from kernelsearch.types import LAUNCH_OPTIONS, TaskFacts, Value

MAX_SOURCE = 16_000
"""Characters of a kernel that an edit still lets grow; the gate refuses sources that are too large."""


@dataclass(frozen=True)
class NotApplicable:
    """Why an edit gives nothing for this kernel, as one clause."""

    reason: str


class CannotApply(Exception):
    """Raised deep inside an edit's analysis with the reason; `FunctionEdit.apply` turns it into a value."""


class Edit(Protocol):
    """One typed edit of a kernel's tree."""

    name: str
    summary: str

    def apply(self, kernel: Kernel, task: TaskFacts) -> list[Rewrite] | NotApplicable: ...


@dataclass(frozen=True)
class View:
    """One launched function of a kernel with what the edits ask of it."""

    kernel: Kernel
    function: Function
    task: TaskFacts

    @cached_property
    def text(self) -> str:
        return tree.normal(self.function.text)

    @cached_property
    def node(self) -> ast.FunctionDef:
        return tree.function_of(self.text)

    @cached_property
    def body(self) -> list[ast.stmt]:
        return tree.docless(self.node.body)

    @cached_property
    def shapes(self) -> Shapes:
        return Shapes(self.node, self.function.constexprs)

    @cached_property
    def taken(self) -> set[str]:
        """Every name of the kernel file."""
        names: set[str] = {"tl", "triton", "libdevice", "num_sms", *LAUNCH_OPTIONS, *self.kernel.scratch}
        for text in [*(f.text for f in self.kernel.functions), *self.kernel.constants]:
            for n in ast.walk(parsed(text)):
                if isinstance(n, ast.Name):
                    names.add(n.id)
                elif isinstance(n, ast.arg):
                    names.add(n.arg)
                elif isinstance(n, ast.FunctionDef):
                    names.add(n.name)
        for trace in self.task.traces.values():
            for launch in trace.launches:
                names.update(launch.args)
        return names

    def fresh(self, base: str) -> str:
        """A name like base that the kernel does not use yet; it is taken from now on."""
        for name in itertools.chain([base], (f"{base}_{i}" for i in itertools.count(2))):
            if name not in self.taken:
                self.taken.add(name)
                return name
        raise AssertionError

    @cached_property
    def grid(self) -> tuple[str, str, str]:
        """The expressions of the three axes of this function's grid, whatever set it."""
        text = self.kernel.grid.get(self.function.name)
        if text is None:
            return ("grid(0)", "grid(1)", "grid(2)")
        node = tree.expression(text.strip())
        axes = [tree.text_of(e) for e in node.elts] if isinstance(node, ast.Tuple) else [tree.text_of(node)]
        return tuple([*axes, "1", "1"][:3])  # type: ignore[return-value]

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The grid axes that the function's program ids speak of. Raises CannotApply for one that is not literal."""
        found = set()
        for call in tree.calls(self.node, "program_id", "num_programs"):
            axis = tree.argument(call, 0, "axis")
            if not isinstance(axis, ast.Constant) or axis.value not in (0, 1, 2):
                raise CannotApply("a program id's axis is not a literal")
            found.add(axis.value)
        return tuple(sorted(found))

    @cached_property
    def flow(self) -> Flow:
        return Flow(self.body, self.function.params)

    def calls_helpers(self) -> bool:
        return bool(self.function.calls)

    def written(self, text: str) -> View:
        """The view of the same kernel with this function's text."""
        name = self.function.name
        functions = tuple(replace(f, text=text) if f.name == name else f for f in self.kernel.functions)
        kernel = self.kernel.changed(functions=functions)
        return View(kernel, kernel.function(name), self.task)


@dataclass(frozen=True)
class Change:
    """What one variant does to one function, and the sentence that says why."""

    kernel: Kernel
    rationale: str


class FunctionEdit:
    """An edit that looks at one launched function at a time; `change` gives the variants of one."""

    name = ""
    summary = ""

    def apply(self, kernel: Kernel, task: TaskFacts) -> list[Rewrite] | NotApplicable:
        variants: dict[str, Rewrite] = {}
        reasons: list[str] = []
        for name in kernel.entries:
            try:
                found = self._changes(View(kernel, kernel.function(name), task))
            except CannotApply as reason:
                reasons.append(str(reason))
                continue
            for change in found:
                new = change.kernel
                if new.digest != kernel.digest and len(new.code) <= MAX_SOURCE:
                    variants.setdefault(new.digest, Rewrite(new, self.name, change.rationale))
        if variants:
            return list(variants.values())
        return NotApplicable("; ".join(dict.fromkeys(reasons)) or "the rewritten kernel is the same or too large")

    def _changes(self, view: View) -> list[Change]:
        """The changes of a function as it is, else of the same without carried pointers and arguments that change."""
        try:
            return self.change(view)
        except CannotApply:
            again = _indexed(view)
            if again is None:
                raise
            return self.change(again)

    def change(self, view: View) -> list[Change]:
        raise NotImplementedError


@lru_cache(maxsize=64)
def _has_pointers_that_move(text: str, params: tuple[str, ...], constexprs: tuple[str, ...]) -> bool:
    """Whether `_indexed` would change a text: kept, because each edit of a kernel that does not apply asks it."""
    return settled(text, str) is not None or indexed(text, params, constexprs, "start", "at") is not None


def _indexed(view: View) -> View | None:
    """The view of the function without carried pointers and arguments that change; None when it has neither."""
    function = view.function
    if not _has_pointers_that_move(view.text, function.params, function.constexprs):
        return None
    fresh = View(view.kernel, function, view.task).fresh
    text = settled(view.text, fresh) or view.text
    return view.written(indexed(text, function.params, function.constexprs, fresh("start"), fresh("at")) or text)


def replaced(
    view: View,
    text: str,
    *,
    grid: str | None = None,
    args: Mapping[str, str] | None = None,
    space: Mapping[str, tuple[Value, ...]] | None = None,
    config: Mapping[str, Value] | None = None,
) -> Kernel:
    """The kernel with this function's text, and additions to its launch spec, space and config.

    A kernel that says nothing of its space or config takes the task's, so that additions do not hide them;
    names that no function has any more are dropped from both.
    """
    kernel = view.kernel
    name = view.function.name
    new = parse_function(text)
    local = {f.name for f in kernel.functions}
    functions = tuple(_local(new, local) if f.name == name else f for f in kernel.functions)
    fields: dict[str, object] = {"functions": functions}
    if grid is not None:
        fields["grid"] = {**kernel.grid, name: grid}
    if args:
        fields["args"] = {**kernel.args, name: {**kernel.args.get(name, {}), **args}}
    return finished(kernel.changed(**fields), view.task, space or {}, config or {}, kernel)


def finished(
    kernel: Kernel,
    task: TaskFacts,
    space: Mapping[str, tuple[Value, ...]],
    config: Mapping[str, Value],
    parent: Kernel,
) -> Kernel:
    """The kernel with its space and config completed: the parent's or the task's, plus what is new."""
    whole_space = {**(parent.space or task.space), **space}
    whole_config = {**(parent.config or task.config), **config}
    gone = {p for f in parent.functions for p in f.params} - {p for f in kernel.functions for p in f.params}
    spoken = _spoken(kernel)
    keep = lambda name: name.rpartition(".")[2] not in gone or name.rpartition(".")[2] in spoken  # noqa: E731
    return kernel.changed(
        space={k: v for k, v in whole_space.items() if keep(k)},
        config={k: v for k, v in whole_config.items() if keep(k)},
    )


def _spoken(kernel: Kernel) -> set[str]:
    """Names in the launch spec's expressions, where a constexpr may live on after it left every function."""
    texts = [*kernel.grid.values(), *(e for a in kernel.args.values() for e in a.values())]
    texts += [s[1] for s in kernel.scratch.values()]
    return set().union(*(tree.reads(tree.expression(t.strip())) for t in texts)) if texts else set()


def _local(function: Function, local: set[str]) -> Function:
    return replace(function, calls=function.calls & local)
