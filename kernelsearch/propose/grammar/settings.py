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

MOST = 2
"""SET lines of one answer."""

Space = Mapping[str, Sequence[Value]]


def space_of(kernel: Kernel, task: TaskFacts) -> dict[str, tuple[Value, ...]]:
    """What may be SET, with its values: the kernel's own space or the task's, and the launch options."""
    known = {p for f in kernel.functions for p in f.constexprs} | set(LAUNCH_OPTIONS)
    space = _with_options(kernel.space or task.space)
    return {name: values for name, values in space.items() if name.rpartition(".")[2] in known}


def draft_settings(rules: Rules, space: Space, most: int = MOST) -> list[Draft]:
    """SET lines, at least one and at most `most`, each name once and in the space's order, then END."""
    names = list(space)
    drafts: list[Draft] = []
    for at, name in enumerate(names, 1):
        rest = add_ending(rules, {later: space[later] for later in names[at:]}, most - 1)
        drafts.append((f"SET {name} ", rules.one_of(map(str, space[name])), "\n", rest))
    return drafts


def add_ending(rules: Rules, space: Space, most: int = MOST) -> Ref | None:
    """END, perhaps after SET lines."""
    return rules.add([("END",), *(draft_settings(rules, space, most) if most else ())])


def draft_launch_changes(rules: Rules, kernel: Kernel, space: Space) -> list[Draft]:
    """Answers that change the launch only: a GRID, settings, or both."""
    return [*draft_settings(rules, space), ("GRID ", _grids(rules, kernel), "\n", add_ending(rules, space))]


def draft_typed_edits(rules: Rules, edits: Mapping[str, Sequence[Rewrite]]) -> list[Draft]:
    """`EDIT name variant`, then settings of the constexprs that the variant itself brings."""
    return [
        (f"EDIT {name} {number}\n", add_ending(rules, _with_options(rewrite.kernel.space)))
        for name, variants in edits.items()
        for number, rewrite in enumerate(variants, 1)
    ]


def _grids(rules: Rules, kernel: Kernel) -> Ref | None:
    """Grids of the one launched function, if its programs loop: with any other, programs would be missing."""
    node = tree.function_of(kernel.function(kernel.entries[0]).text)
    if len(kernel.entries) != 1 or not tree.calls(node, "num_programs"):
        return None
    axes = [tree.argument(call, 0, "axis") for call in tree.calls(node, "program_id")]
    numbers = [a.value if isinstance(a, ast.Constant) else None for a in axes]
    if not numbers or not set(numbers) <= {0, 1, 2}:
        return None
    parts: list[str | Ref | None] = []
    for axis in range(max(numbers) + 1):
        own = f"grid({axis})"
        parts += [rules.one_of([own, *(f"min({own}, {n})" for n in ("num_sms", "2 * num_sms", "4 * num_sms"))]), ", "]
    parts[-1] = "," if len(parts) == 2 else ""
    return rules.add([("(", *parts, ")"), *((" ".join(text.split()),) for text in kernel.grid.values())])


def _with_options(space: Space) -> dict[str, tuple[Value, ...]]:
    """The space and the launch options, without values that a SET line cannot say."""
    plain = {n: tuple(v for v in vs if v is not None and " " not in str(v)) for n, vs in {**OPTIONS, **space}.items()}
    return {name: values for name, values in plain.items() if values}
