"""A launched function of a kernel with everything that analyses and edits ask of it, each computed once."""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass, replace
from functools import cached_property

from kernelsearch.core.parsing import parsed
from kernelsearch.core.types import LAUNCH_OPTIONS, TaskFacts
from kernelsearch.kernel.source import Function, Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import Flow
from kernelsearch.propose.analysis.shapes import Shapes


class CannotApply(Exception):
    """Raised deep inside an edit's analysis with the reason; `FunctionEdit.apply` turns it into a value."""


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
