"""Leaves out the launcher's fill of what a kernel writes itself: one launch less, and its bytes once less."""

from __future__ import annotations

import ast

from kernelsearch.kernel.source import Function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.canonical import place_arguments
from kernelsearch.propose.analysis.flow import Dependence, Flow, find_dependent
from kernelsearch.propose.analysis.view import Change, Changes, View
from kernelsearch.propose.edits.base import Edit


class SpareFill(Edit):
    summary = "a fill by the launcher (torch.zeros, zero_) of what the kernel writes, left out"
    refusal = "the launcher fills nothing that it only writes"
    usual_gain = 0.15

    def change(self, view: View) -> Changes:
        filled = {name for launch in view.own_launches for name in launch.fills} - {*view.kernel.init}
        spare = sorted(name for name in filled if not _uses_start(view, name))
        for names in dict.fromkeys((tuple(spare), *((name,) for name in spare))):
            if names:
                kernel = view.kernel.with_changes(init={**view.kernel.init, **dict.fromkeys(names)})
                why = f"{' and '.join(names)} need no start: the kernel writes what the launcher fills."
                yield Change(view.complete(kernel, {}), why)


def _uses_start(view: View, name: str) -> bool:
    """Whether the function, or another that is passed the same fill, reads it or may leave some of it unwritten."""
    fills, kernel = {*view.task.find_fills(name)}, view.kernel
    passed = {(at.site, param) for at in view.launches for param, own in at.fills.items() if fills & {*own}}
    functions = [(f, site) for f in kernel.functions for site in kernel.sites_of(f.name)]
    return any(_uses_start_in(f, param) for site, param in passed for f, where in functions if where == site)


def _uses_start_in(function: Function, param: str) -> bool:
    """Whether a function loads or adds at an address that a parameter is in, or what it loads decides where it stores.

    That is so if an address, a mask, a branch or an early return depends on loads.
    """
    body = tree.function_of(place_arguments(tree.normalise(function.text))).body
    pointers = {param, *find_dependent(body, {param}, control=False)}
    loaded, flow = Dependence(body, lambda n: tree.is_tl(n, "load")), Flow(body, function.params)
    chosen = lambda node: any(loaded.reaches(tree.head_of(s)) for s in flow.holders_of(node))  # noqa: E731
    if any(chosen(stmt) for stmt in tree.all_statements(body) if isinstance(stmt, ast.Return)):
        return True
    for call in (n for n in ast.walk(ast.Module(body, [])) if isinstance(n, ast.Call) and n.args):
        where = [call.args[0], *filter(None, [tree.mask_of(call)])]
        decided = tree.is_tl(call, "store") and (chosen(call) or any(map(loaded.reaches, where)))
        if tree.reads(where[0]) & pointers and (decided or tree.callee(call).startswith(("tl.load", "tl.atomic"))):
            return True
    return False
