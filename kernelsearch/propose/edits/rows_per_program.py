"""Several rows per program, one after the other: a loop over ROWS consecutive program ids."""

from __future__ import annotations

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.programs import make_repeatable, own_name, replace_ids
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, Edit

ROWS = (1, 2, 4, 8, 16, 32)


class RowsPerProgram(Edit):
    name = "rows_per_program"
    summary = "a serial loop over ROWS rows in each program"

    def change(self, view: View) -> list[Change]:
        body = make_repeatable(view)
        if 0 not in view.axes:
            raise CannotApply("it does not use program id 0")
        rows, count = view.fresh_name("ROWS"), view.fresh_name("n_programs")
        first, row = view.fresh_name("first"), own_name(view, 0, "program")
        inner = replace_ids(body, {0: row, 1: "tl.program_id(1)", 2: "tl.program_id(2)"}, {})
        head = tree.statements(f"{first} = tl.program_id(0) * {rows}")
        whole = tree.make_loop(f"for {row} in range({first}, tl.minimum({first} + {rows}, {count}))", inner)
        kernel = view.rewrite(
            tree.rebuild(view.node, [*head, whole], [count, f"{rows}: tl.constexpr"]),
            grid=f"(cdiv({view.grid[0]}, {rows}), {view.grid[1]}, {view.grid[2]})",
            args={count: view.grid[0]},
            space={rows: ROWS},
            config={rows: 4},
        )
        return [Change(kernel, f"Each program does {rows} rows in turn, so what they share is set up once.")]
