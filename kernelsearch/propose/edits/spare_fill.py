"""Leaves out the launcher's fill of what a kernel writes itself: one launch less, and its bytes once less."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import find_dependent
from kernelsearch.propose.analysis.view import Change, Changes, View
from kernelsearch.propose.edits.base import Edit


class SpareFill(Edit):
    summary = "a fill by the launcher (torch.zeros, zero_) of what the kernel writes, left out"
    refusal = "the launcher fills nothing that it only writes"
    usual_gain = 0.15

    def change(self, view: View) -> Changes:
        filled = {name for launch in view.own_launches for name in launch.fills} - {*view.kernel.init}
        spare = sorted(name for name in filled if not _reads(view, name))
        for names in dict.fromkeys((tuple(spare), *((name,) for name in spare))):
            if names:
                kernel = view.kernel.with_changes(init={**view.kernel.init, **dict.fromkeys(names)})
                why = f"{' and '.join(names)} need no start: the kernel writes what the launcher fills."
                yield Change(view.complete(kernel, {}), why)


def _reads(view: View, name: str) -> bool:
    """Whether the function, or another that is passed the same fill, reads what a pointer points to."""
    fills, kernel = {*view.task.find_fills(name)}, view.kernel
    passed = {(at.site, param) for at in view.launches for param, own in at.fills.items() if fills & {*own}}
    functions = [(f.text, site) for f in kernel.functions for site in kernel.sites_of(f.name)]
    return any(_reads_in(text, param) for site, param in passed for text, where in functions if where == site)


def _reads_in(text: str, param: str) -> bool:
    """Whether a function loads or adds at an address that a parameter is in, or passes it to another."""
    body = tree.function_of(tree.normalise(text)).body
    pointers = {param, *find_dependent(body, {param}, control=False)}
    for call in (n for n in ast.walk(ast.Module(body, [])) if isinstance(n, ast.Call)):
        first = call.args[0] if call.args else tree.argument(call, 0, "pointer")
        read = set() if first is None else tree.reads(first)
        if read & pointers and tree.callee(call).startswith(("tl.load", "tl.atomic")):
            return True
    return False
