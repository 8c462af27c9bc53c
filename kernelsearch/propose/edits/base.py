"""The base class of edits: a name, a summary, and the variants of a kernel, or the reason why there are none."""

from __future__ import annotations

from contextlib import nullcontext

from kernelsearch.core import plugins
from kernelsearch.core.errors import EditError
from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.source import TRITON, Kernel
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View
from kernelsearch.propose.contract import Rewrite

MAX_SOURCE = 16_000
"""The most characters that a kernel may have after an edit; the gate refuses sources that are too large."""


class Failed(NotApplicable):
    """A user's own edit raised on this kernel; the reason names its file, the line and the exception."""


class Edit:
    """One typed edit of a kernel's syntax tree. It looks at one launched function at a time, with `change`."""

    summary = ""
    refusal = ""
    """The reason, as one clause, if `change` gives no variants."""
    file = ""
    """The file of a user's own edit, which may fail; a shipped one may not."""
    usual_gain = 0.046
    """The log gain to expect of it on a kernel that takes it: what edits gain in the mean, if nobody measured it."""

    @property
    def name(self) -> str:
        """The name of the edit's file."""
        return type(self).__module__.rpartition(".")[2]

    def apply(self, kernel: Kernel, task: TaskFacts, function: str = "") -> list[Rewrite] | NotApplicable:
        """The new kernels, without duplicates, that the edit makes of this one; at least one, or the reason.

        function is the one launched function that it may change, if one is named.
        """
        return self._apply(kernel, (function,) if function else kernel.entries, task)

    def applies(self, kernel: Kernel, function: str, task: TaskFacts) -> bool:
        """Whether the edit makes anything of this launched function of the kernel."""
        return not isinstance(self._apply(kernel, (function,), task), NotApplicable)

    def _apply(self, kernel: Kernel, functions: tuple[str, ...], task: TaskFacts) -> list[Rewrite] | NotApplicable:
        try:
            return self._collect(kernel, functions, task)
        except EditError as error:
            return Failed(str(error))

    def _collect(self, kernel: Kernel, functions: tuple[str, ...], task: TaskFacts) -> list[Rewrite] | NotApplicable:
        if kernel.language != TRITON:
            return NotApplicable(f"typed edits read Triton, and this kernel is {kernel.language.capitalize()}")
        variants: dict[str, Rewrite] = {}
        reasons: list[str] = []
        for name in functions:
            try:
                changes = self._changes(View(kernel, kernel.function(name), task))
            except NotApplicable as refused:
                reasons.append(refused.reason)
                continue
            for change in changes:
                new = change.kernel
                if new.digest != kernel.digest and len(new.code) <= MAX_SOURCE:
                    variants.setdefault(new.digest, Rewrite(new, self.name, change.rationale))
        if variants:
            return list(variants.values())
        return NotApplicable("; ".join(dict.fromkeys(reasons)) or "the rewritten kernel is the same or too large")

    def _changes(self, view: View) -> list[Change]:
        """The changes of the function as it is, or else of its normal form."""
        try:
            return self._change_or_refuse(view)
        except NotApplicable:
            normal = view.in_normal_form()
            if normal is None:
                raise
            return self._change_or_refuse(normal)

    def _change_or_refuse(self, view: View) -> list[Change]:
        guard = plugins.blame(self.file, EditError, passes=(NotApplicable,)) if self.file else nullcontext()
        with guard:
            changes = list(self.change(view))
            if wrong := [c for c in changes if not isinstance(c, Change)]:
                raise TypeError(f"change yields what view.rewrite(patch, why) makes, not {wrong[0]!r}")
        if changes:
            return changes
        raise NotApplicable(self.refusal)

    def change(self, view: View) -> Changes:
        """The variants of one function; none, or NotApplicable is raised, where it does not apply."""
        raise NotImplementedError
