"""Persistent programs: a grid of a few programs per multiprocessor, each looping over its share of the work."""

from __future__ import annotations

from kernelsearch.propose import tree
from kernelsearch.propose.edits.base import Change, FunctionEdit, View, replaced
from kernelsearch.propose.programs import loop, own_name, repeatable, with_ids

WAVES = (1, 2, 4, 8, 16)


class Persistent(FunctionEdit):
    name = "persistent"
    summary = "a grid of at most num_sms * WAVES programs that loop over the work"

    def change(self, view: View) -> list[Change]:
        body = repeatable(view)
        axes = view.axes
        counts = {a: view.fresh("n_programs" if len(axes) == 1 else f"n_programs_{a}") for a in axes}
        waves = view.fresh("WAVES")
        total = " * ".join(view.grid[a] for a in axes)
        if len(axes) == 1:
            item = own_name(view, axes[0], "program")
            ids, head = {axes[0]: item}, []
        else:
            item = view.fresh("program")
            names = {a: own_name(view, a, f"program_{a}") for a in axes}
            ids, head = dict(names), []
            rest = item
            for a in axes[:-1]:
                head += tree.statements(f"{names[a]} = {rest} % {counts[a]}")
                rest = f"({rest} // {counts[a]})"
            head += tree.statements(f"{names[axes[-1]]} = {rest}")
        whole = " * ".join(counts[a] for a in axes)
        inner = [*head, *with_ids(body, ids, counts)]
        start = "tl.program_id(0)"
        outer = loop(f"for {item} in range({start}, {whole}, tl.num_programs(0))", inner)
        kernel = replaced(
            view,
            tree.rebuilt(view.node, [outer], [*counts.values(), f"{waves}: tl.constexpr"]),
            grid=f"(min({total}, num_sms * {waves}),)",
            args={counts[a]: view.grid[a] for a in axes},
            space={waves: WAVES},
            config={waves: 2},
        )
        return [Change(kernel, f"At most {waves} programs per multiprocessor loop over the work, so launches are few.")]
