"""Atomics summed in registers: a program takes several rows, and adds their sum to memory once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kernelsearch.core.types import TensorFact
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import find_dependent
from kernelsearch.propose.analysis.programs import make_repeatable, own_name, replace_ids
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit


class SummedAtomics(Edit):
    summary = "what many programs add to one place, summed over the rows of a program before it is added"
    refusal = "no place is added to, atomically, by all programs along an axis"

    def change(self, view: View) -> Changes:
        refuse_if(not any(map(_is_addition, view.body)), self.refusal)
        count, waves = view.fresh_name("n_programs"), view.fresh_name("WAVES")
        for axis in view.axes:
            if change := _sum_along(view, axis, count, waves):
                yield change


def _sum_along(view: View, axis: int, count: str, waves: str) -> Change | None:
    """The function with a loop over the programs of an axis; None if they add to places of their own."""
    program = own_name(view, axis, "program")
    ids, counts = ({a: f"tl.{name}({a})" for a in view.axes} for name in ("program_id", "num_programs"))
    body = replace_ids(make_repeatable(view), {**ids, axis: program}, {**counts, axis: count})
    moving = find_dependent(body, {program})
    own = {id(s): o for s, o in zip(*(filter(_is_addition, b) for b in (body, view.body)), strict=True)}
    added = [s for s in body if id(s) in own and not tree.reads(_argument(s, 0, "pointer")) & moving]
    if not added:
        return None
    same = [s for s in body if isinstance(s, ast.Assign) and not tree.reads(s) & moving and view.does_only(set(), s)]
    sums = {id(s): view.fresh_name("sums") for s in added}
    for stmt in added:
        _check_type(view, stmt, body)
    starts = "".join(_start(sums[id(s)], view.shapes.of(_argument(own[id(s)], 1, "val"))) for s in added)
    rows = [tree.statements(_fold(s, sums[id(s)]))[0] if id(s) in sums else s for s in body if s not in same]
    loop = tree.make_loop(f"for {program} in range(tl.program_id({axis}), {count}, tl.num_programs({axis}))", rows)
    masks = {id(s): _read_steady_mask(view, own[id(s)], axis, moving) for s in added}
    ends = "".join(_add(s, sums[id(s)], masks[id(s)]) for s in added)
    grid = list(view.grid)
    grid[axis] = f"min({grid[axis]}, num_sms * {waves})"
    return view.rewrite(
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


def _check_type(view: View, stmt: ast.stmt, body: Sequence[ast.stmt]) -> None:
    """Raises NotApplicable where a launch was seen that adds to something else than float32."""
    pointers = _trace(_argument(stmt, 0, "pointer"), body) & view.pointers
    facts = [f for launch in view.own_launches for p in pointers if isinstance(f := launch.args.get(p), TensorFact)]
    refuse_if(any(fact.dtype != "fp32" for fact in facts), "it adds to another type than float32")


def _start(name: str, shape: tuple[str, ...] | None) -> str:
    """The statement that begins a sum."""
    if shape is None:
        raise NotApplicable("the shape of what is added is not known before the launch")
    return f"{name} = tl.zeros([{', '.join(shape)}], tl.float32)\n" if shape else f"{name} = 0.0\n"


def _trace(node: ast.expr, body: Sequence[ast.stmt]) -> set[str]:
    """The names that an expression is computed from."""
    names, before = tree.reads(node), set[str]()
    while names != before:
        before = set(names)
        names = names.union(*(tree.reads(s) for s in body if tree.writes(s) & names))
    return names


def _fold(stmt: ast.stmt, name: str) -> str:
    """The statement that adds to a sum what was added to memory."""
    value, mask = tree.text_of(_argument(stmt, 1, "val")), _mask_of(stmt)
    return f"{name} += {value}" if mask is None else f"{name} += tl.where({tree.text_of(mask)}, {value}, 0.0)"


def _read_steady_mask(view: View, stmt: ast.stmt, axis: int, moving: set[str]) -> str:
    """What of the mask of an addition is the same for all rows. Raises NotApplicable where that may be too little."""
    mask = _mask_of(stmt)
    if mask is None or not tree.reads(mask) & moving:
        return tree.text_of(mask) if mask is not None else ""
    parts = tree.conjuncts(view.flow.expand(mask, stmt))
    own = [c for c in parts if axis not in map(tree.program_axis, tree.calls(c, "program_id"))]
    steady = [c for c in own if not tree.reads(c) & moving and not tree.calls(c, "load")]
    if not steady and view.shapes.of(_argument(stmt, 0, "pointer")) != ():
        raise NotApplicable("what is added to may end where rows end")
    return " & ".join(tree.parenthesise(tree.text_of(c)) for c in steady)


def _add(stmt: ast.stmt, name: str, mask: str) -> str:
    """The statement that adds a sum to memory."""
    words = [tree.text_of(_argument(stmt, 0, "pointer")), name, *([f"mask={mask}"] if mask else []), *_options(stmt)]
    return f"tl.atomic_add({', '.join(words)})\n"


def _options(stmt: ast.stmt) -> Iterator[str]:
    """How the addition is ordered with others."""
    call: ast.Call = stmt.value  # type: ignore[attr-defined]
    yield from (f"{k.arg}={tree.text_of(k.value)}" for k in call.keywords if k.arg in ("sem", "scope"))
