"""Rules for what is no line of code: SET of a constexpr or launch option, GRID, and a typed edit by name."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from kernelsearch.core.types import LAUNCH_OPTIONS, TaskFacts, Value
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.contract import Rewrite
from kernelsearch.propose.grammar.rules import Draft, Ref, Rules

OPTIONS: Mapping[str, tuple[int, ...]] = {"num_warps": (1, 2, 4, 8, 16, 32), "num_stages": (1, 2, 3, 4, 5)}
"""Values of the launch options that a space does not name."""

BESIDE = 2
"""Settings beside line edits and typed edits; an answer of settings alone may give all of them."""

Space = Mapping[str, Sequence[Value]]


def space_of(kernel: Kernel, task: TaskFacts) -> dict[str, tuple[Value, ...]]:
    """What may be SET: the kernel's own space or the task's, and the launch options."""
    known = {p for f in kernel.functions for p in f.constexprs} | set(LAUNCH_OPTIONS)
    found = {}
    for name, values in {**OPTIONS, **(kernel.space or task.space)}.items():
        plain = tuple(v for v in values if v is not None and " " not in str(v))
        if name.rpartition(".")[2] in known and plain:
            found[name] = plain
    return found


def ending(rules: Rules, space: Space, most: int) -> Ref:
    """Up to `most` SET lines, each name at most once and in the space's order, then END."""
    last = _added(rules, [("END",)])
    names = list(space)
    after: dict[tuple[int, int], Ref] = {}
    for count in range(most + 1):
        for at in range(len(names), -1, -1):
            drafts = [("END",)] if count else []
            for j in range(at, len(names)) if count else ():
                value = rules.one_of(str(v) for v in space[names[j]])
                drafts.append((f"SET {names[j]} ", value, "\n", after[j + 1, count - 1]))
            after[at, count] = _added(rules, drafts) if drafts else last
    return after[0, most]


def alone(rules: Rules, kernel: Kernel, task: TaskFacts, space: Space, budget: int) -> Ref | None:
    """An answer that changes the launch only: a GRID, settings, or both."""
    grid, names = grids(rules, kernel, task), list(space)
    most = len(names)
    head = ("GRID ", "" if grid is None else grid, "\n")
    while most and rules.length((*head, ending(rules, space, most))) > budget:
        most -= 1
    drafts: list[Draft] = [("GRID ", grid, "\n", ending(rules, space, most))]
    for at, name in enumerate(names):
        rest = ending(rules, {n: space[n] for n in names[at + 1 :]}, max(most - 1, 0))
        drafts.append((f"SET {name} ", rules.one_of(str(v) for v in space[name]), "\n", rest))
    return rules.add(d for d in drafts if None in d or rules.length(d) <= budget)  # type: ignore[arg-type]


def grids(rules: Rules, kernel: Kernel, task: TaskFacts) -> Ref | None:
    """Grids of the one launched function: an expression for each axis that its programs ask for."""
    if len(kernel.entries) != 1:
        return None
    function = kernel.function(kernel.entries[0])
    axes = [
        a.value
        for c in tree.calls(tree.function_of(function.text), "program_id")
        if isinstance(a := tree.argument(c, 0, "axis"), ast.Constant)
    ]
    if not axes or any(a not in (0, 1, 2) for a in axes):
        return None
    if not any(tree.calls(tree.function_of(function.text), "num_programs")):
        return None  # each program does its own share and no more: with any other grid some are missing
    integers = _integers(kernel, task)
    sizes = [n for n in function.constexprs if n in space_of(kernel, task)]
    parts = []
    for axis in range(max(axes) + 1):
        own = f"grid({axis})"
        texts = [own, f"min({own}, num_sms)", f"min({own}, 2 * num_sms)", f"min({own}, 4 * num_sms)"]
        texts += [f"cdiv({own}, {n})" for n in sizes] + [f"cdiv({i}, {n})" for i in integers for n in sizes]
        parts += [rules.one_of(texts), ", "]
    drafts = [("(", *(parts[:-1] if len(parts) > 2 else [parts[0], ","]), ")")]
    return rules.add([*drafts, *((" ".join(text.split()),) for text in kernel.grid.values())])


def typed_edits(rules: Rules, edits: Mapping[str, Sequence[Rewrite]], budget: int) -> Ref | None:
    """`EDIT name variant`, then settings of the constexprs that the variant itself brings."""
    drafts = []
    for name, variants in edits.items():
        for number, rewrite in enumerate(variants, 1):
            drafts.append((f"EDIT {name} {number}\n", ending(rules, _numbers(rewrite.kernel), BESIDE)))
    return rules.add(d for d in drafts if rules.length(d) <= budget)


def _numbers(kernel: Kernel) -> dict[str, tuple[Value, ...]]:
    own = {**OPTIONS, **{n: v for n, v in kernel.space.items() if v}}
    return {name: tuple(v for v in values if v is not None and " " not in str(v)) for name, values in own.items()}


def _integers(kernel: Kernel, task: TaskFacts) -> list[str]:
    """Arguments that are integers in every launch, for GRID's arithmetic."""
    launches = [launch.args for trace in task.traces.values() for launch in trace.launches]
    names = launches[0] if launches else {}
    plain = [n for n in names if all(type(args.get(n)) is int for args in launches)]
    constexprs = {p for f in kernel.functions for p in f.constexprs}
    return [n for n in plain if n not in constexprs and "stride" not in n]


def _added(rules: Rules, drafts: list) -> Ref:
    ref = rules.add(drafts)
    assert ref is not None
    return ref
