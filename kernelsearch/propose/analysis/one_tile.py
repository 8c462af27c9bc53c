"""Running reductions of a single tile, as plain ones: lanes that hold one value each need no rescaling, no Welford."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.device_functions import DEVICE_FUNCTIONS
from kernelsearch.propose.analysis.view import View

STEPS = {"online_along": "online_add", "welford_along": "welford_add"}
"""The functions that reduce lanes, as TorchInductor's kernels have them, and those that add a value to each lane."""

REDUCED = {
    "online_along": (
        '{0} = tl.max(tl.where({mask}, {x}, float("-inf")), 0)\n'
        "{1} = tl.sum(tl.where({mask}, tl.exp({x} - {0}), 0.0), 0)\n"
    ),
    "welford_along": (
        "{2} = tl.sum(tl.where({mask}, 1.0, 0.0), 0)\n"
        "{0} = tl.sum(tl.where({mask}, {x}, 0.0), 0) / tl.maximum({2}, 1.0)\n"
        "{1} = tl.where({mask}, {x} - {0}, 0.0)\n"
        "{1} = tl.sum({1} * {1}, 0)\n"
    ),
}
"""The same of one tile x with a mask: maximum and sum of exponentials; mean, squares of what is left, and count."""


def reduce_tile(view: View, body: list[ast.stmt], call: ast.Call, made: list[str]) -> tuple[str, list[ast.stmt]] | None:
    """(Statements that give the names made what call makes of lanes after one tile, those of body that they replace).

    body is that of a loop which adds a tile to lanes of one dimension. None where the functions are not known.
    """
    along = tree.callee(call)
    step = STEPS.get(along, "")
    known = {name: view.helpers[name].text.strip() for name in (along, step) if name in view.helpers}
    if len(known) < 2 or any(text != DEVICE_FUNCTIONS[name].strip() for name, text in known.items()):
        return None
    lanes = [tree.text_of(lane) for lane in call.args[:-1]]
    for stmt in body:
        match stmt:
            case ast.Assign(targets=[ast.Tuple(elts=fresh)], value=ast.Call(args=args) as added):
                if tree.callee(added) != step or not set(lanes) <= set(given := list(map(tree.text_of, args))):
                    continue
                kept = _find_kept(body, dict(zip(lanes, map(tree.text_of, fresh), strict=True)))
                x = given[0] if step == "welford_add" else given[-1]
                if kept is not None and x.isidentifier():
                    return REDUCED[along].format(*made, x=x, mask=kept[0]), [stmt, *kept[1]]
    return None


def _find_kept(body: list[ast.stmt], fresh: dict[str, str]) -> tuple[str, list[ast.stmt]] | None:
    """(The mask under which every lane takes its fresh value, the statements that say so)."""
    masks, found = set(), []
    for lane, value in fresh.items():
        writers = [s for s in body if lane in tree.writes(s)]
        match [tree.assignment(s) for s in writers]:
            case [(_, ast.Call(args=[mask, ast.Name(id=new), ast.Name(id=old)]) as where)] if (new, old) == (
                value,
                lane,
            ):
                if not tree.is_tl(where, "where"):
                    return None
                masks.add(tree.text_of(mask))
                found += writers
            case _:
                return None
    return (masks.pop(), found) if len(masks) == 1 else None
