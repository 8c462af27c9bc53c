"""One accumulator per lane: a reduction inside a loop moves after it, and the loop only adds block to block."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import accumulate, tree
from kernelsearch.propose.analysis.effects import READS
from kernelsearch.propose.analysis.rescaled_sums import RescaledSum, find_rescaled_sum
from kernelsearch.propose.analysis.view import Change, Changes, View
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.online import Lanes, format_lanes, list_lanes


class LaneAccumulator(Edit):
    summary = "one accumulator per lane, the reduction hoisted out of the loop"
    refusal = "no loop folds a reduction of a block into a float32 accumulator"

    def change(self, view: View) -> Changes:
        for block in tree.blocks(view.body):
            steps = [step for s in block if isinstance(s, ast.For) and (step := find_rescaled_sum(s))]
            if steps and not any(map(_is_grouped, steps)):
                shape = view.shapes.of(steps[0].highest.args[0])
                yield from filter(None, (_by_lane(view, block, steps, lanes) for lanes in list_lanes(view, shape)))
        updates = [(loop, u) for loop in tree.loops(view.body) for u in _updates(view, loop)]
        choices = [updates, *[[one] for one in updates]] if len(updates) > 1 else [updates] * len(updates)
        lanes = {u.stmt: view.fresh_name(f"{u.name}_lanes") for _, u in updates}
        yield from (_hoisted(view, choice, lanes) for choice in choices)


def _hoisted(view: View, updates: list[tuple[ast.For, accumulate.Update]], lanes: dict[ast.stmt, str]) -> Change:
    """The function with these updates by lane; lanes names the accumulators."""
    patch = tree.Patch(view.text)
    for loop, update in updates:
        call: ast.Call = accumulate.reduction_of(update.value, update.kind)  # type: ignore[assignment]
        block, name, combine = call.args[0], lanes[update.stmt], accumulate.COMBINE[update.kind].format
        patch.insert_before(loop, f"{name} = {accumulate.format_identity(view.shapes.of(block), update.kind)}\n")  # type: ignore[arg-type]
        patch.replace_stmt(update.stmt, f"{name} = {combine(a=name, b=tree.parenthesise(tree.text_of(block)))}\n")
        patch.insert_after(
            loop, f"{update.name} = {combine(a=update.name, b=accumulate.format_reduction(call, name))}\n"
        )
    names = ", ".join(dict.fromkeys(update.name for _, update in updates))
    why = f"The loop keeps one accumulator per lane for {names}: one reduction in all."
    return view.rewrite(patch, why)


def _updates(view: View, loop: ast.For) -> list[accumulate.Update]:
    """The loop's own updates whose reduction can wait until the loop is over."""
    updates = []
    for stmt in loop.body:
        update = accumulate.update_of(stmt)
        call = update and accumulate.reduction_of(update.value, update.kind)
        if not update or not call or not view.shapes.of(call.args[0]) or tree.loops(loop.body):
            continue
        others = [s for s in loop.body if s is not stmt]
        if update.name in tree.reads([*others, loop.iter]) | tree.writes(others):
            continue
        start = _start(view, loop, update.name)
        if start is not None and accumulate.is_float32(start):
            updates.append(update)
    return updates


def _start(view: View, loop: ast.For, name: str) -> ast.expr | None:
    """The value of name before the loop, if a plain assignment gives it."""
    definition = view.flow.value(name, loop)
    if definition is not None:
        return definition[0]
    block = view.flow.block_of(loop)
    last = next((s for s in reversed(block[: block.index(loop)]) if name in tree.writes(s)), None)
    pair = tree.assignment(last) if last is not None and not isinstance(last, ast.AugAssign) else None
    return pair[1] if pair else None


def _is_grouped(step: RescaledSum) -> bool:
    """Whether the block whose maximum is taken has neighbours in groups: it has its lanes already."""
    block = tree.text_of(step.highest.args[0])
    pairs = filter(None, map(tree.assignment, step.loop.body))
    return any(name == block and tree.is_tl(value, "reshape") for name, value in pairs)


def _by_lane(view: View, block: list[ast.stmt], steps: list[RescaledSum], lanes: Lanes) -> Change | None:
    """The function with a maximum and a rescaled sum in all lanes of these loops, reduced after the last of them."""
    first, last = steps[0], steps[-1]
    m, s, g = first.maximum, first.total, first.exponential
    own = [stmt for step in steps for stmt in step.own]
    rest = [stmt for stmt in tree.all_statements(view.body) if stmt not in own and not isinstance(stmt, ast.For)]
    between = block[block.index(first.loop) : block.index(last.loop)]
    alike = all(view.shapes.of(step.highest.args[0]) == lanes.shape for step in steps)
    alike &= all((step.maximum, step.total, step.exponential) == (m, s, g) for step in steps)
    starts = [_start(view, first.loop, name) for name in (m, s)]
    expand = first.expand(len(lanes.shape))
    if expand is None or not alike or None in starts or not all(map(accumulate.is_identity, starts, ("max", "sum"))):  # type: ignore[arg-type]
        return None
    others = [stmt for stmt in between if not any(stmt is step.loop for step in steps)]
    if {m, s} & (tree.reads(others) | tree.writes(others)):
        return None
    if (tree.writes(own) - {m, s}) & tree.reads(rest) or not view.does_only(READS, own):
        return None
    head, step_of, tail = format_lanes(view, m, s, first.highest, first.summed, lanes, g, expand)
    patch = tree.Patch(view.text)
    patch.insert_before(first.loop, head)
    for step in steps:
        for stmt in step.own:
            patch.replace_stmt(stmt, step_of(tree.text_of(step.highest.args[0])) if stmt is step.own[-1] else "")
    patch.insert_after(last.loop, tail)
    whose = "Every GROUP elements share a" if lanes.group else "Every lane keeps its own"
    why = f"{whose} maximum and rescaled sum: one reduction, after the loop."
    return view.rewrite(patch, why, tunables=lanes.tunables)
