"""Whole-kernel answers: a kernel file in a code fence, or alone, after whatever thinking and prose the model wants.

The last block that holds a kernel counts. One kernel under another name than the task's is launched in its place.
Nothing else is mended or dropped: what is refused goes back to the model with the line and the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import TaskFacts, Verdict
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.grammar.answer import Answer, AnswerRejection, find_blocks, strip_thinking
from kernelsearch.propose.grammar.kernel_file import KernelGrammar, hold_kernels

JIT = "@triton.jit"
_DECORATOR = re.compile(r"^@(triton|gluon)\.jit\b", re.MULTILINE)
_LINE = re.compile(r"\bline (\d+)")
_IMPORT = re.compile(r"^(import triton\b|LANGUAGE =)", re.MULTILINE)


@dataclass(frozen=True)
class WholeKernel:
    """The form of whole-kernel answers for one parent; sites are the launches of the task, passed their arguments."""

    parent: Kernel
    sites: tuple[str, ...]
    passed: tuple[str, ...] = ()
    edits = ()
    """Typed edits that an answer may name: none."""
    digest = ""

    @classmethod
    def of_task(cls, parent: Kernel, task: TaskFacts) -> WholeKernel:
        functions = (f for f in Kernel.parse(task.seed).functions if f.name in task.sites)
        return cls(parent, task.sites, tuple(dict.fromkeys(p for f in functions for p in f.params)))

    @property
    def for_engine(self) -> KernelGrammar:
        """What an engine holds its answers to, if it can: the last block is a kernel file for the task."""
        return hold_kernels(self.sites, self.passed)

    def apply(
        self, text: str, *, stopped: bool = True, gate: Callable[[str], Verdict] | None = None
    ) -> Answer | AnswerRejection:
        """The kernel of an answer, or the first stage that refuses it; stopped: it was not cut short."""
        file = find_file(text, stopped)
        if file is None and not stopped:
            return AnswerRejection(
                text, "stopped", f"cut short after {len(text):,} characters, before its kernel ended"
            )
        if file is None:
            return AnswerRejection(text, "grammar", f"no kernel file in it: a fenced block with {JIT} functions")
        result = self.read(file, gate)
        return replace(result, text=text)

    def read(self, file: str, gate: Callable[[str], Verdict] | None = None) -> Answer | AnswerRejection:
        """The kernel of a kernel file, or the first stage that refuses it."""
        try:
            kernel = Kernel.parse(file)
        except KernelSyntaxError as error:
            return AnswerRejection(file, "parses", _point_at(str(error), file))
        if all(kernel.steps_at(site, self.sites) is None for site in self.sites):
            if len(self.sites) > 1 or len(kernel.entries) != 1:
                return AnswerRejection(file, "names", self._explain_names(kernel))
            kernel = kernel.with_changes(launches={"": kernel.entries})
        same = kernel.with_changes(grid={**self.parent.grid, **kernel.grid})
        if same.digest == self.parent.digest:  # the parent's grid may follow its tile (`tasks/grids.py`)
            kernel = same
        verdict = gate(file) if gate else None
        if verdict is not None and not verdict.accepted:
            return AnswerRejection(file, "gate", _point_at(verdict.reason, file))
        return Answer(file, kernel, "kernel", why=(ast.get_docstring(parse_python(file)) or "").partition("\n")[0])

    def _explain_names(self, kernel: Kernel) -> str:
        wanted = " or ".join(self.sites)
        got = ", ".join(kernel.entries or kernel.names)
        return f"it does not say when {got} run: name a kernel {wanted}, or order them in LAUNCHES"


def find_file(text: str, stopped: bool = True) -> str | None:
    """The kernel file of an answer: its last block with a kernel, else the answer itself from its first import on."""
    said = strip_thinking(text)
    files = [block for block in find_blocks(said, stopped) if _DECORATOR.search(block)]
    if files:
        return files[-1].strip("\n") + "\n"
    if not stopped or not _DECORATOR.search(said):
        return None
    if _parses(said):
        return said
    begin = _IMPORT.search(said)
    return said[begin.start() :].rstrip() + "\n" if begin and "```" not in said else None


def _parses(text: str) -> bool:
    try:
        return bool(parse_python(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _point_at(reason: str, file: str) -> str:
    """The reason with the line that it speaks of."""
    line, lines = _LINE.search(reason), file.split("\n")
    if line is None or not 0 < int(line[1]) <= len(lines):
        return reason
    return f"at `{lines[int(line[1]) - 1].strip()[:100]}`: {reason}"
