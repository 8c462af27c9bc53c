"""A launched function of a kernel, with its analyses computed once, and the kernels that edits make of it."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import LAUNCH_OPTIONS, LaunchFact, TaskFacts, Value, content_digest
from kernelsearch.kernel.source import Function, Kernel, parse_function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.canonical import canonicalise, find_pointer_params, place_arguments, write_constants
from kernelsearch.propose.analysis.carried_pointers import compute_pointers, settle_arguments
from kernelsearch.propose.analysis.effects import find_effects
from kernelsearch.propose.analysis.flow import Flow
from kernelsearch.propose.analysis.folding import fold_branches, name_versions, read_launched, split_pairs
from kernelsearch.propose.analysis.inlining import inline_helpers
from kernelsearch.propose.analysis.loop_forms import count_elements, count_while_loops, name_loops_alike, write_counts
from kernelsearch.propose.analysis.shapes import Shapes

Tunable = tuple[tuple[Value, ...], Value]
"""The values of a new constexpr that the search tunes, and the one to start from."""


MAX_NORMAL_FORMS = 1024
_NORMAL_FORMS: dict[tuple[str, str, str, str], tuple[str, tuple[Any, ...]]] = {}
"""Normal forms by what launches pass, kernel file, function and text: all edits that refuse a kernel ask for one."""


@dataclass
class NotApplicable(Exception):
    """The reason why an edit makes nothing of a kernel, as one clause. Analyses raise it, `Edit.apply` returns it."""

    reason: str


def refuse_if(condition: object, reason: str) -> None:
    """Raises NotApplicable with the reason where the condition holds."""
    if condition:
        raise NotApplicable(reason)


@dataclass(frozen=True)
class Change:
    """The kernel that one variant makes of one function, and one sentence that says why it may be faster."""

    kernel: Kernel
    rationale: str


Changes = Iterable[Change]


@dataclass(frozen=True)
class View:
    """One launched function of a kernel, its analyses, and new kernels with another text of it.

    assumed are conditions under which its text is that of the kernel; what is made of it asserts them.
    """

    kernel: Kernel
    function: Function
    task: TaskFacts
    assumed: tuple[str, ...] = ()

    @cached_property
    def text(self) -> str:
        return place_arguments(tree.normalise(self.function.text))

    @cached_property
    def node(self) -> ast.FunctionDef:
        return tree.function_of(self.text)

    @cached_property
    def body(self) -> list[ast.stmt]:
        return [s for s in tree.strip_docstrings(self.node.body) if not tree.is_assertion(s)]

    @cached_property
    def shapes(self) -> Shapes:
        blocks = {n: spec[3] for n, spec in self.kernel.descriptors_of(self.function.name).items()}
        return Shapes(self.node, self.function.constexprs, blocks)

    @cached_property
    def descriptors(self) -> dict[str, tuple[ast.expr, ast.expr | None]]:
        """The address and the block shape of each tensor descriptor, of the launch's and of the function's own."""
        specs = self.kernel.descriptors_of(self.function.name)
        found: dict[str, tuple[ast.expr, ast.expr | None]]
        found = {n: (tree.expression(spec[0]), tree.expression(spec[3])) for n, spec in specs.items()}
        for pair in filter(None, map(tree.assignment, tree.all_statements(self.body))):
            if tree.is_tl(pair[1], "make_tensor_descriptor"):
                call: ast.Call = pair[1]
                found[pair[0]] = (call.args[0], tree.argument(call, 3, "block_shape"))
        return found

    @cached_property
    def taken(self) -> set[str]:
        """Every name that the kernel file or the launcher uses."""
        names = {*tree.MODULES, "num_sms", *LAUNCH_OPTIONS, *self.kernel.scratch, *self.kernel.descriptors}
        texts = [*(f.text for f in self.kernel.functions), *self.kernel.constants]
        for n in tree.walk(map(parse_python, texts)):
            if isinstance(n, (ast.Name, ast.arg, ast.FunctionDef)):
                names.add(getattr(n, n._fields[0]))  # id, arg or name
        return names.union(*(launch.args for launch in self.launches))

    @cached_property
    def pointers(self) -> set[str]:
        """The parameters that are pointers."""
        return find_pointer_params(self.node)

    @property
    def launches(self) -> list[LaunchFact]:
        """The launches that were seen when the task was run, of this function and of others."""
        return [launch for trace in self.task.traces.values() for launch in trace.launches]

    def fresh_name(self, base: str) -> str:
        """A name like base that the kernel does not use yet; it counts as used from now on."""
        base = f"_{base.lstrip('_')}" if base.startswith("__") else base  # the gate takes no other
        names = itertools.chain([base], (f"{base.rstrip('_') or 'each'}_{i}" for i in itertools.count(2)))
        name = next(n for n in names if n not in self.taken)
        self.taken.add(name)
        return name

    @cached_property
    def grid(self) -> tuple[str, str, str]:
        """The expressions of the three axes of this function's grid, its own or the launcher's."""
        text = self.kernel.grid.get(self.function.name)
        if text is None:
            return ("grid(0)", "grid(1)", "grid(2)")
        node = tree.expression(text.strip())
        axes = [tree.text_of(e) for e in node.elts] if isinstance(node, ast.Tuple) else [tree.text_of(node)]
        return tuple([*axes, "1", "1"][:3])  # type: ignore[return-value]

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The grid axes that the function's program ids use. Raises NotApplicable if one is not literal."""
        axes = {tree.program_axis(call) for call in tree.calls(self.node, "program_id", "num_programs")}
        if None in axes:
            raise NotApplicable("a program id's axis is not a literal")
        return tuple(sorted(axis for axis in axes if axis is not None))

    @cached_property
    def flow(self) -> Flow:
        return Flow(self.body, self.function.params)

    @property
    def own_launches(self) -> list[LaunchFact]:
        """Those of this function."""
        sites = self.kernel.sites_of(self.function.name)
        return [launch for launch in self.launches if launch.site in sites]

    def must_be_one_stage(self) -> None:
        """Raises NotApplicable where the function is one of several stages, or runs several times at a site."""
        refuse_if(set(self.function.params) & set(self.kernel.scratch), "it is one stage of several already")
        steps = [name for names in self.kernel.launches.values() for name in names]
        refuse_if(steps.count(self.function.name) > 1, "it is launched more than once at a site")

    def make_stages(
        self,
        first: str,
        bodies: Iterable[list[ast.stmt]],
        params: Iterable[str],
        grid: str,
        scratch: Mapping[str, tuple[str, str]],
        tunables: Mapping[str, Tunable] = {},
    ) -> Kernel:
        """The kernel with a new function, on a grid of its own, before this one: bodies are theirs in this order.

        Both get the parameters and the scratch that the first one fills for the second.
        """
        kernel, name = self.kernel, self.function.name
        stages = []
        for own, body in zip((first, name), bodies, strict=True):
            node = copy.copy(self.node)
            node.name = own
            patch = tree.rebuild(node, body)
            for param in params:
                patch.add_param(param)
            stages.append(replace(parse_function(patch.text()), calls=self.function.calls))
        site = next((site for site, steps in kernel.launches.items() if name in steps), name)
        steps = kernel.launches.get(site, (name,))
        at = steps.index(name)
        new = kernel.with_changes(
            functions=tuple(s for f in kernel.functions for s in (stages if f.name == name else [f])),
            grid={**kernel.grid, first: grid},
            args={**kernel.args, **({first: kernel.args[name]} if name in kernel.args else {})},
            scratch={**kernel.scratch, **scratch},
            launches={**kernel.launches, site: (*steps[:at], first, *steps[at:])},
        )
        return self.complete(new, tunables)

    def with_kernel(self, kernel: Kernel) -> View:
        """The view of this function in a kernel that was made of this one."""
        return View(kernel, kernel.function(self.function.name), self.task, self.assumed)

    def with_text(self, text: str) -> View:
        """The view of the same kernel with another text of this function."""
        name = self.function.name
        new = parse_function(text)
        new = replace(new, calls=new.calls & {f.name for f in self.kernel.functions})
        functions = tuple(new if f.name == name else f for f in self.kernel.functions)
        called = set().union(*(f.calls for f in functions))
        functions = tuple(f for f in functions if f.name in self.kernel.entries or f.name in called)
        return View(self.kernel.with_changes(functions=functions), new, self.task, self.assumed)

    def in_normal_form(self) -> View | None:
        """The view without branches that all launches decide, with one form of loops, in the canonical spelling.

        None if it is in this form.
        """
        key = (repr(self._launched()), content_digest(self.kernel.render()), self.function.name, self.text)
        if key not in _NORMAL_FORMS:
            if len(_NORMAL_FORMS) >= MAX_NORMAL_FORMS:
                _NORMAL_FORMS.clear()
            _NORMAL_FORMS[key] = self._normalise()
        text, decided = _NORMAL_FORMS[key]
        if text == self.text:
            return None
        return replace(self, assumed=(*self.assumed, *decided)).with_text(text)

    def _normalise(self) -> tuple[str, tuple[Any, ...]]:
        """(The function's text in normal form, what that assumes of the launches)."""
        text, fresh = self.text, View(self.kernel, self.function, self.task).fresh_name
        folded = fold_branches(text, self._launched())
        if folded is not None:
            text = folded[0]
        blocks = {n: spec[3] for n, spec in self.kernel.descriptors_of(self.function.name).items()}
        spell = lambda text: canonicalise(text, self.function.constexprs, blocks)  # noqa: E731
        plain = lambda text: place_arguments(write_constants(text, self.kernel.constants))  # noqa: E731
        helpers = {name: replace(helper, text=plain(helper.text)) for name, helper in self.helpers.items()}
        rewrites: tuple[Callable[[str], str | None], ...] = (
            plain,
            spell,
            lambda text: inline_helpers(text, helpers, fresh),
            split_pairs,
            lambda text: name_versions(text, fresh),
            lambda text: settle_arguments(text, fresh),
            count_while_loops,
            write_counts,
            lambda text: compute_pointers(text, self.function, fresh("start"), fresh("at")),
            count_elements,
            name_loops_alike,
            spell,
        )
        for rewrite in rewrites:
            text = rewrite(text) or text
        return text, tuple(folded[1]) if folded else ()

    @cached_property
    def helpers(self) -> dict[str, Function]:
        """The functions that this one calls, directly or not."""
        found: set[str] = set()
        todo = set(self.function.calls)
        while todo:
            found |= todo
            todo = set().union(*(self.kernel.function(name).calls for name in todo)) - found
        return {f.name: f for f in self.kernel.functions if f.name in found}

    def must_only(self, allowed: Set[str], nodes: tree.Nodes, where: str = "it", but: Iterable[ast.AST] = ()) -> None:
        """Raises NotApplicable where statements, without but, may do more than to assign and what is allowed."""
        if more := find_effects(nodes, self.helpers, but) - allowed:
            raise NotApplicable(f"{where} {' and '.join(sorted(more))}")

    def does_only(self, allowed: Set[str], nodes: tree.Nodes) -> bool:
        """Whether statements do no more than to assign, and what is allowed."""
        return find_effects(nodes, self.helpers) <= allowed

    def _launched(self) -> dict[str, Any]:
        """The arguments that are the same in every launch of this function, and that no config changes."""
        tuned = {
            n.rpartition(".")[2] for names in (self.kernel.space, self.kernel.config, self.task.space) for n in names
        }
        tuned |= set(self.kernel.args.get(self.function.name, ()))
        return read_launched(self.own_launches, self.function.constexprs, {*tuned, *self.task.config})

    def rewrite(
        self,
        patch: tree.Patch,
        rationale: str,
        args: Mapping[str, str] = {},
        tunables: Mapping[str, Tunable] = {},
        flags: Mapping[str, str] = {},
        grid: str | None = None,
    ) -> Change:
        """The change that a patch of this function makes, with new parameters and perhaps another grid.

        args are numbers and flags constexprs that the launch computes, each by an expression of the launch spec.
        """
        for param in (*args, *(f"{name}: tl.constexpr" for name in (*tunables, *flags))):
            patch.add_param(param)
        kernel, name = self.with_text(patch.text()).kernel, self.function.name
        if grid is not None:
            kernel = kernel.with_changes(grid={**kernel.grid, name: grid})
        if args or flags:
            kernel = kernel.with_changes(args={**kernel.args, name: {**kernel.args.get(name, {}), **args, **flags}})
        return Change(self.complete(kernel, tunables), rationale)

    def complete(self, kernel: Kernel, tunables: Mapping[str, Tunable]) -> Kernel:
        """A kernel made from this one, with its space and config: those of this kernel or the task, plus the tunables.

        Names of parameters that no function has any more are dropped from both, unless the launch spec uses them.
        """
        gone = {p for f in self.kernel.functions for p in f.params} - {p for f in kernel.functions for p in f.params}
        gone -= _spec_names(kernel)
        kernel = kernel.with_changes(functions=tuple(self._assert_assumed(f) for f in kernel.functions))
        keep = lambda values: {k: v for k, v in values.items() if k.rpartition(".")[2] not in gone}  # noqa: E731
        space, config = self.kernel.space or self.task.space, self.kernel.config or self.task.config
        return kernel.with_changes(
            space=keep({**space, **{name: values for name, (values, _) in tunables.items()}}),
            config=keep({**config, **{name: start for name, (_, start) in tunables.items()}}),
        )

    def _assert_assumed(self, function: Function) -> Function:
        """A function that was made of this one, with the conditions under which it is right; others as they are."""
        kept = [tree.text_of(s) for s in self.node.body if tree.is_assertion(s)]
        wanted = [*kept, *(f"tl.static_assert({condition})" for condition in self.assumed)]
        if function.text in {f.text for f in self.kernel.functions} or not wanted:
            return function
        patch = tree.Patch(function.text)
        there = {tree.text_of(s) for s in patch.node.body}
        missing = [w for w in wanted if w not in there and tree.reads(tree.expression(w)) <= set(function.params)]
        if not missing:
            return function
        first = tree.strip_docstrings(patch.node.body)[0]
        patch.insert_before(first, "".join(f"{w}\n" for w in missing))
        return replace(parse_function(patch.text()), calls=function.calls)


def _spec_names(kernel: Kernel) -> set[str]:
    """Names in the launch spec's expressions, which may use a constexpr after it left every function."""
    texts = [*kernel.grid.values(), *(e for a in kernel.args.values() for e in a.values())]
    texts += [s[1] for s in kernel.scratch.values()]
    texts += [text for s in kernel.descriptors.values() for text in s[1:4]]
    return tree.reads([tree.expression(t.strip()) for t in texts])
