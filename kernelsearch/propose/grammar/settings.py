"""What an answer may say beside lines of code: values of constexprs and launch options, and grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from kernelsearch.core.types import LAUNCH_OPTIONS, TaskFacts, Value
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree

OPTIONS: Mapping[str, tuple[int, ...]] = {"num_warps": (1, 2, 4, 8, 16, 32), "num_stages": (1, 2, 3, 4, 5)}
"""Values of the launch options that a space does not name."""

Space = Mapping[str, Sequence[Value]]


def space_of(kernel: Kernel, task: TaskFacts) -> dict[str, tuple[Value, ...]]:
    """What may be SET, with its values: the kernel's own space or the task's, and the launch options."""
    known = {p for f in kernel.functions for p in f.constexprs} | set(LAUNCH_OPTIONS)
    space = with_options(kernel.space or task.space)
    return {name: values for name, values in space.items() if name.rpartition(".")[2] in known}


def list_grids(kernel: Kernel) -> list[str]:
    """Grids of the one launched function, if its programs loop: with any other, programs would be missing."""
    node = tree.function_of(kernel.function(kernel.entries[0]).text)
    if len(kernel.entries) != 1 or not tree.calls(node, "num_programs"):
        return []
    axes = [tree.program_axis(call) for call in tree.calls(node, "program_id")]
    numbers = [axis for axis in axes if axis is not None]
    if not numbers or len(numbers) < len(axes):
        return []
    own = [f"grid({axis})" for axis in range(max(numbers) + 1)]
    sizes = [(g, *(f"min({g}, {n})" for n in ("num_sms", "2 * num_sms", "4 * num_sms"))) for g in own]
    made = [f"({', '.join(one)}{',' * (len(one) == 1)})" for one in product(*sizes)]
    return list(dict.fromkeys([*made, *(" ".join(text.split()) for text in kernel.grid.values())]))


def with_options(space: Space) -> dict[str, tuple[Value, ...]]:
    """The space and the launch options, without values that a SET line cannot say."""
    plain = {n: tuple(v for v in vs if v is not None and " " not in str(v)) for n, vs in {**OPTIONS, **space}.items()}
    return {name: values for name, values in plain.items() if values}
