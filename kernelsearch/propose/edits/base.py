"""What an edit is: a name, a summary, and `apply`, which gives variants or says why there are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from kernelsearch.core.types import TaskFacts, Value
from kernelsearch.kernel.source import Function, Kernel, parse_function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.carried import indexed, settled
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.contract import Rewrite

MAX_SOURCE = 16_000
"""Characters of a kernel that an edit still lets grow; the gate refuses sources that are too large."""


@dataclass(frozen=True)
class NotApplicable:
    """Why an edit gives nothing for this kernel, as one clause."""

    reason: str


class Edit(Protocol):
    """One typed edit of a kernel's tree."""

    name: str
    summary: str

    def apply(self, kernel: Kernel, task: TaskFacts) -> list[Rewrite] | NotApplicable: ...


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
