"""Atomics summed in registers: a program takes several rows, and adds their sum to memory once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set

from kernelsearch.core.types import TensorFact
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import find_dependent
from kernelsearch.propose.analysis.shapes import broadcast_shapes
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.persistent import make_repeatable, own_name, replace_ids


class SummedAtomics(Edit):
    summary = "what many programs add to one place, summed over the rows of a program before it is added"
    refusal = "no place is added to, atomically, by all programs along an axis"

    def change(self, view: View) -> Changes:
        refuse_if(not any(map(_is_addition, view.body)), self.refusal)
        count, waves = view.fresh_name("n_programs"), view.fresh_name("WAVES")
        found, reasons = list[Change](), list[NotApplicable]()
        for axis in view.axes:
            try:
                found += _sum_along(view, axis, count, waves)
            except NotApplicable as refused:
                reasons.append(refused)
        if reasons and not found:
            raise reasons[0]
        return found


def _sum_along(view: View, axis: int, count: str, waves: str) -> Iterator[Change]:
    """The function with a loop over the programs of an axis; nothing if they add to places of their own."""
    program = own_name(view, axis, "program")
    ids, counts = ({a: f"tl.{name}({a})" for a in view.axes} for name in ("program_id", "num_programs"))
    body = replace_ids(make_repeatable(view), {**ids, axis: program}, {**counts, axis: count})
    moving = find_dependent(body, {program})
    own = {id(s): o for s, o in zip(*(filter(_is_addition, b) for b in (body, view.body)), strict=True)}
    added = [s for s in body if id(s) in own and not tree.reads(_argument(s, 0, "pointer")) & moving]
    if not added:
        return
    same, steady = _find_steady(view, body, moving)
    rows = [s for s in body if s not in same]
    _check_others(view, body, [s for s in rows if s not in added], added)
    starts, ends = "", ""
    for stmt in added:
        name, address = view.fresh_name("sums"), _argument(stmt, 0, "pointer")
        value, mask = tree.text_of(_argument(stmt, 1, "val")), _mask_of(stmt)
        moves = bool(tree.reads(address) & tree.writes(body) - steady)
        refuse_if(moves, "a place that is added to moves within a program")
        starts += _start(name, _shape_of(view, own[id(stmt)]))
        words = [tree.text_of(address), name, *_keep_mask(view, own[id(stmt)], moving, steady), *_options(stmt)]
        ends += f"tl.atomic_add({', '.join(words)})\n"
        inside = value if mask is None else f"tl.where({tree.text_of(mask)}, {value}, 0.0)"
        rows[rows.index(stmt)] = tree.statements(f"{name} += {inside}")[0]
    loop = tree.make_loop(f"for {program} in range(tl.program_id({axis}), {count}, tl.num_programs({axis}))", rows)
    grid = list(view.grid)
    grid[axis] = f"min({grid[axis]}, num_sms * {waves})"
    yield view.rewrite(
        tree.rebuild(view.node, [*same, *tree.statements(starts), loop, *tree.statements(ends)]),
        "A program adds the sum of its rows once, so that few programs wait for the same place.",
        args={count: view.grid[axis]},
        tunables={waves: ((1, 2, 4, 8, 16), 2)},
        grid=f"({', '.join(grid)})",
    )


def _is_addition(stmt: ast.stmt) -> bool:
    """Whether a statement adds atomically, and does not ask what was there."""
    return isinstance(stmt, ast.Expr) and tree.is_tl(stmt.value, "atomic_add")


def _argument(stmt: ast.stmt, position: int, name: str) -> ast.expr:
    value = tree.argument(stmt.value, position, name)  # type: ignore[attr-defined]
    assert value is not None  # it has both
    return value


def _mask_of(stmt: ast.stmt) -> ast.expr | None:
    return tree.argument(stmt.value, 2, "mask")  # type: ignore[attr-defined]


def _options(stmt: ast.stmt) -> Iterator[str]:
    """How the addition is ordered with others."""
    call: ast.Call = stmt.value  # type: ignore[attr-defined]
    yield from (f"{k.arg}={tree.text_of(k.value)}" for k in call.keywords if k.arg in ("sem", "scope"))


def _find_steady(view: View, body: list[ast.stmt], moving: Set[str]) -> tuple[list[ast.stmt], set[str]]:
    """(The statements that are the same for all rows and touch no memory, the names that they alone assign)."""
    assigned, same, steady = tree.writes(body), list[ast.stmt](), set[str]()
    for stmt in body:
        made, needed = tree.writes(stmt), tree.reads(stmt) & (assigned | moving) - steady
        once = isinstance(stmt, ast.Assign) and all(tree.is_assigned_once(body, name) for name in made)
        if once and not needed and view.does_only(set(), stmt):
            same.append(stmt)
            steady |= made
    return same, steady


def _check_others(view: View, body: Sequence[ast.stmt], others: Sequence[ast.stmt], added: Sequence[ast.stmt]) -> None:
    """Raises NotApplicable where another access may see when something is added, or where it adds no float32."""
    pointers = set().union(*(_trace(_argument(s, 0, "pointer"), body) & view.pointers for s in added))
    facts = [f for launch in view.own_launches for p in pointers if isinstance(f := launch.args.get(p), TensorFact)]
    refuse_if(any(fact.dtype != "fp32" for fact in facts), "it adds to another type than float32")
    for node in (n for s in others for n in ast.walk(s) if isinstance(n, ast.Call) and n.args):
        kind = tree.callee(node).rpartition(".")[2]
        used = kind.startswith("atomic_") and not any(isinstance(s, ast.Expr) and s.value is node for s in others)
        refuse_if(used, "it asks an atomic for what was there")
        if kind in ("load", "store") and _trace(node.args[0], body) & pointers:
            raise NotApplicable("it also reads or writes what is added to")


def _trace(node: ast.expr, body: Sequence[ast.stmt]) -> set[str]:
    """The names that an address is computed from, but for those of what is loaded for it."""
    names, before = tree.reads(node), set[str]()
    while names != before:
        before = set(names)
        names = names.union(*(tree.reads(s) for s in body if tree.writes(s) & names and not tree.calls(s, "load")))
    return names


def _shape_of(view: View, stmt: ast.stmt) -> tuple[str, ...]:
    """The shape of what is added to the places. Raises NotApplicable."""
    shape = broadcast_shapes(*(view.shapes.of(_argument(stmt, i, name)) for i, name in enumerate(("pointer", "val"))))
    if shape is None:
        raise NotApplicable("the shape of what is added is not known before the launch")
    return shape


def _start(name: str, shape: tuple[str, ...]) -> str:
    """The statement that begins a sum."""
    return f"{name} = tl.zeros([{', '.join(shape)}], tl.float32)\n" if shape else f"{name} = 0.0\n"


def _keep_mask(view: View, stmt: ast.stmt, moving: Set[str], steady: Set[str]) -> Iterator[str]:
    """What of an addition's mask is the same for all rows, as its argument.

    Raises NotApplicable where the rest of it may say which places there are.
    """
    mask, places, assigned = _mask_of(stmt), view.shapes.of(_argument(stmt, 0, "pointer")), tree.writes(view.body)

    def is_steady(node: ast.expr) -> bool:
        unknown = tree.reads(node) & (assigned | moving) - steady
        return not unknown and not tree.calls(node, "load", "program_id")

    if mask is not None and is_steady(mask):
        yield f"mask={tree.text_of(mask)}"
    elif mask is not None:
        parts, offsets = list(_list_parts(view, mask, stmt)), _trace(_argument(stmt, 0, "pointer"), view.body)
        for part in (part for part in parts if not is_steady(part)):
            shape = view.shapes.of(part)
            across = shape is None or places is None or any(a != "1" != b for a, b in zip(shape[::-1], places[::-1]))
            if across and _trace(part, view.body) & offsets:
                raise NotApplicable("which places are added to depends on the row")
        if kept := [tree.parenthesise(tree.text_of(part)) for part in parts if is_steady(part)]:
            yield f"mask={' & '.join(kept)}"


def _list_parts(view: View, mask: ast.expr, stmt: ast.stmt) -> Iterator[ast.expr]:
    """The conditions that a mask joins, also those of masks that have names."""
    for part in tree.conjuncts(mask):
        known = view.flow.steady_value(part.id, stmt) if isinstance(part, ast.Name) else None
        if known is None:
            yield part
        else:
            yield from _list_parts(view, *known)
