"""Persistent programs: a grid of a few programs per multiprocessor, each looping over its share of the work."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.programs import make_repeatable, own_name, replace_ids
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.tensor_descriptor import NOT_AHEAD


class Persistent(Edit):
    summary = "a grid of at most num_sms * WAVES programs that loop over the work"

    def change(self, view: View) -> Changes:
        body = make_repeatable(view)
        axes = view.axes
        counts = {a: view.fresh_name("n_programs" if len(axes) == 1 else f"n_programs_{a}") for a in axes}
        waves = view.fresh_name("WAVES")
        head = ""
        if len(axes) == 1:
            item = own_name(view, axes[0], "program")
            ids = {axes[0]: item}
        else:
            rest = item = view.fresh_name("program")
            ids = {a: own_name(view, a, f"program_{a}") for a in axes}
            for a in axes[:-1]:
                head += f"{ids[a]} = {rest} % {counts[a]}\n"
                rest = f"({rest} // {counts[a]})"
            head += f"{ids[axes[-1]]} = {rest}\n"
        whole = " * ".join(counts.values())
        apart = [s for s in body if _makes_descriptor(view, s)]
        inner = [*tree.statements(head), *replace_ids([s for s in body if s not in apart], ids, counts)]
        ends = f"tl.program_id(0), {whole}, tl.num_programs(0)"
        makes = any(tree.calls(s, "make_tensor_descriptor") for s in inner) and tree.loops(inner)
        turns = f"tl.range({ends}, num_stages={NOT_AHEAD})" if makes else f"range({ends})"
        outer = tree.make_loop(f"for {item} in {turns}", inner)
        yield view.rewrite(
            tree.rebuild(view.node, [*apart, outer]),
            f"At most {waves} programs per multiprocessor loop over the work, so launches are few.",
            args={counts[a]: view.grid[a] for a in axes},
            tunables={waves: ((1, 2, 4, 8, 16), 2)},
            grid=f"(min({' * '.join(view.grid[a] for a in axes)}, num_sms * {waves}),)",
        )


def _makes_descriptor(view: View, stmt: ast.stmt) -> bool:
    """Whether a statement only makes a descriptor that is the same in every program: making it costs memory traffic."""
    while isinstance(stmt, ast.If) and len(stmt.body) == 1 and not stmt.orelse:
        stmt = stmt.body[0]
    pair = tree.assignment(stmt)
    if pair is None or not tree.is_tl(pair[1], "make_tensor_descriptor") or tree.calls(pair[1], "program_id"):
        return False
    return not tree.reads(pair[1]) & tree.writes(view.body)
