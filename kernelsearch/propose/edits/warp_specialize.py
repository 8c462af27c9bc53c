"""Warp specialisation: one group of warps loads through the copy engine, two others compute on what has arrived.

Triton 3.6 does it on Hopper for `tl.range(..., warp_specialize=True)` under rules that were found by measuring
(one H200): it acts with num_warps=4 only, and launches 12 warps then; not together with `flatten`; every load of the
loop goes through a descriptor. The rows of a product are shared out between the two groups, so a descriptor of such
rows must be made by the kernel, because those of the host have fixed blocks. It spills where the epilogue is heavy,
and values that are carried as 16-bit floats may be overwritten while they are read.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Changes, NotApplicable, View
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.loop_stages import add_option, find_loops_without

WARPS = 4
"""`num_warps` of a specialised kernel."""


class WarpSpecialize(Edit):
    summary = "a loop with dots is shared out between warps that load and warps that compute (Hopper)"
    refusal = "no innermost loop with a dot loads through tensor descriptors"

    def change(self, view: View) -> Changes:
        if any(k.arg == "flatten" for loop in tree.loops(view.body) for k in _options(loop)):
            raise NotApplicable("its loops are flattened, which switches specialisation off")
        for loop in find_loops_without(view, "warp_specialize"):
            if tree.loops(loop.body) or not tree.calls(loop, "dot"):
                continue
            loads, flags = _find_loads(view, loop)
            if loads:
                _check_descriptors(view, loop, loads)
                _check_carried(view, loop)
                _check_epilogue(view, loop)
                patch = add_option(view, [loop], "warp_specialize", " and ".join(flags) or "True")
                change = view.rewrite(patch, "Warps of their own load, so that the others only compute.")
                kernel = change.kernel
                space = {n: v for n, v in kernel.space.items() if n.rpartition(".")[2] != "num_warps"}
                config = {n: v for n, v in kernel.config.items() if n.rpartition(".")[2] != "num_warps"}
                space, config = {**space, "num_warps": (WARPS,)}, {**config, "num_warps": WARPS}
                yield replace(change, kernel=kernel.with_changes(space=space, config=config))
                return


def _options(loop: ast.For) -> list[ast.keyword]:
    return tree.loop_options(loop) if isinstance(loop.iter, ast.Call) else []


def _find_loads(view: View, loop: ast.For) -> tuple[dict[str, str], list[str]]:
    """The names that the loop loads, with their descriptors, and the flags under which it does.

    Raises NotApplicable if a load does not go through a descriptor.
    """
    loads: dict[str, str] = {}
    flags: list[str] = []
    own = view.kernel.args.get(view.function.name, {})
    for stmt in loop.body:
        inner = [stmt]
        if isinstance(stmt, ast.If) and tree.reads(stmt.test) <= own.keys():
            inner = stmt.body
            if any(_described(s) for s in inner):
                flags.append(tree.text_of(stmt.test))
        for s in inner:
            if described := _described(s):
                loads[described[0]] = described[1]
            elif tree.calls(s, "load"):
                raise NotApplicable("a load of the loop does not go through a tensor descriptor")
    return loads, list(dict.fromkeys(flags))


def _described(stmt: ast.stmt) -> tuple[str, str] | None:
    """(name, descriptor) of `name = descriptor.load(...)`, perhaps transposed."""
    pair = tree.assignment(stmt)
    value = pair[1] if pair else None
    if value is not None and tree.is_tl(value, "trans"):
        value = value.args[0]  # type: ignore[attr-defined]
    match value:
        case ast.Call(ast.Attribute(ast.Name(name), "load")) if pair and name not in tree.MODULES:
            return pair[0], name
    return None


def _check_descriptors(view: View, loop: ast.For, loads: dict[str, str]) -> None:
    hosted = view.kernel.descriptors_of(view.function.name)
    seconds = {n for dot in tree.calls(loop, "dot") for n in tree.reads(dot.args[1])}
    firsts = {n for dot in tree.calls(loop, "dot") for n in tree.reads(dot.args[0])}
    fine = {d for name, d in loads.items() if name in seconds - firsts}
    used = {n.id for n in ast.walk(view.node) if isinstance(n, ast.Name)} & hosted.keys()
    if used - fine:
        raise NotApplicable("descriptors of the host describe rows that the groups of warps share out")


def _check_carried(view: View, loop: ast.For) -> None:
    """Raises NotApplicable if a value that one iteration leaves to the next one is rounded."""
    for stmt in tree.all_statements(loop.body):
        pair = tree.assignment(stmt)
        if pair and view.shapes.names.get(pair[0]) and pair[0] in _assigned_before(view, loop):
            match pair[1]:
                case ast.Call(func=ast.Attribute(attr="to" | "cast")) as call if "float32" not in tree.text_of(call):
                    raise NotApplicable("a value that is carried from one iteration to the next is rounded")


def _assigned_before(view: View, loop: ast.For) -> set[str]:
    block = view.flow.block_of(loop)
    return tree.writes(block[: block.index(loop)])


def _check_epilogue(view: View, loop: ast.For) -> None:
    block = view.flow.block_of(loop)
    tail = block[block.index(loop) + 1 :]
    heavy = [n for s in tail for n in ast.walk(s) if tree.callee(n).rpartition(".")[2] in ("erf", "tanh", "exp")]
    if heavy:
        raise NotApplicable(
            f"what follows the loop needs {tree.text_of(heavy[0].func)}, for which registers do not last"
        )  # type: ignore
