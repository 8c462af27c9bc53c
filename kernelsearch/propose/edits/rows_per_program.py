"""Several rows per program, one after the other: a loop over ROWS consecutive program ids."""

from __future__ import annotations

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.programs import make_repeatable, own_name, replace_ids
from kernelsearch.propose.analysis.view import Changes, NotApplicable, View
from kernelsearch.propose.edits.base import Edit


class RowsPerProgram(Edit):
    summary = "a serial loop over ROWS rows in each program"

    def change(self, view: View) -> Changes:
        body = make_repeatable(view)
        if 0 not in view.axes:
            raise NotApplicable("it does not use program id 0")
        rows, count = view.fresh_name("ROWS"), view.fresh_name("n_programs")
        first, row = view.fresh_name("first"), own_name(view, 0, "program")
        ids, counts = ({a: f"tl.{name}({a})" for a in (1, 2)} for name in ("program_id", "num_programs"))
        inner = replace_ids(body, {0: row, **ids}, {0: count, **counts})
        head = tree.statements(f"{first} = tl.program_id(0) * {rows}")
        whole = tree.make_loop(f"for {row} in range({first}, tl.minimum({first} + {rows}, {count}))", inner)
        why = f"Each program does {rows} rows in turn, so what they share is set up once."
        yield view.rewrite_rows(tree.rebuild(view.node, [*head, whole]), why, rows, count)
