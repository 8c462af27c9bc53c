"""Calls of helper functions replaced by what the helpers do, where a helper has one way through and one end."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping

from kernelsearch.kernel.source import Function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import READS, find_effects
from kernelsearch.propose.analysis.folding import fold_branches


def inline_helpers(text: str, helpers: Mapping[str, Function], fresh: Callable[[str], str]) -> str | None:
    """The function without calls of helpers, as far as they can be inlined; None if none can.

    fresh gives unused names, for the helpers' own.
    """
    node = tree.function_of(text)
    inliner = _Inliner(helpers, fresh, tree.find_constexprs(node))
    body = inliner.inline_block(node.body)
    return tree.rebuild(node, body).text() if inliner.count else None


class _Inliner:
    """Inlines calls in blocks of statements, and counts them; constexprs are the caller's."""

    def __init__(self, helpers: Mapping[str, Function], fresh: Callable[[str], str], constexprs: set[str]) -> None:
        self.helpers, self.fresh, self.constexprs = helpers, fresh, constexprs
        self.count = 0

    def inline_block(self, block: list[ast.stmt], depth: int = 0) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        for stmt in block:
            for name in ("body", "orelse"):
                if inner := getattr(stmt, name, None):
                    setattr(stmt, name, self.inline_block(inner, depth))
            ahead: list[ast.stmt] = []
            changed = stmt if isinstance(stmt, ast.While) else self._inline_calls(stmt, ahead)
            if ahead and depth < 4:
                ahead = self.inline_block(ahead, depth + 1)
            body += ahead if changed is None else [*ahead, changed]
        return body

    def _inline_calls(self, stmt: ast.stmt, ahead: list[ast.stmt]) -> ast.stmt | None:
        """The statement with values for calls, whose statements are put ahead; None if nothing of it is left."""
        skip = set(map(id, tree.walk(s for block in ("body", "orelse") for s in getattr(stmt, block, []))))
        gives_nothing = False

        def rule(node: ast.AST) -> ast.AST | None:
            nonlocal gives_nothing
            if id(node) in skip or not isinstance(node, ast.Call) or tree.callee(node) not in self.helpers:
                return None
            if not _may_go_first(node, stmt, self.helpers) or (done := self._inline(node)) is None:
                return None
            self.count += 1
            ahead.extend(done[0])
            gives_nothing |= done[1] is None
            return done[1] or ast.Constant(None)

        new = tree.transform(stmt, rule)
        return None if gives_nothing and isinstance(stmt, ast.Expr) else new

    def _inline(self, call: ast.Call) -> tuple[list[ast.stmt], ast.expr | None] | None:
        """The statements and the value of a call; None if the helper has several ends or an argument does not fit."""
        helper = tree.function_of(self.helpers[tree.callee(call)].text)
        given = bind_arguments(helper, call)
        if given is None:
            return None
        constants = {name: value.value for name, value in given.items() if isinstance(value, ast.Constant)}
        if folded := fold_branches(tree.text_of(helper), constants):
            helper = tree.function_of(folded[0])
        body = [copy.deepcopy(s) for s in tree.strip_docstrings(helper.body) if not tree.is_assertion(s)]
        last = body[-1] if body and isinstance(body[-1], ast.Return) else None
        straight = body[:-1] if last is not None else body
        if any(isinstance(s, ast.Return) for s in tree.all_statements(straight)):
            return None
        own = tree.writes(straight)
        values, names, head = {}, {name: self.fresh(name) for name in sorted(own)}, []
        for name, value in given.items():
            fixed = tree.reads(value) <= self.constexprs
            if name in tree.find_constexprs(helper) and (name in own or not fixed):
                return None
            if name in own or not (fixed or isinstance(value, ast.Name)):
                names.setdefault(name, self.fresh(name))
                head.append(ast.Assign([ast.Name(names[name], ast.Store())], copy.deepcopy(value), lineno=1))
            else:
                values[name] = value
        settle = lambda n: tree.substitute(tree.rename(n, names), values)  # noqa: E731
        result = None if last is None or last.value is None else settle(last.value)
        return [*head, *map(settle, straight)], result


def _may_go_first(call: ast.Call, stmt: ast.stmt, helpers: Mapping[str, Function]) -> bool:
    """Whether a call may be done before the rest of its statement, where it is now done in between or not at all."""
    whole = isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.Expr)) and stmt.value is call
    chosen = any(isinstance(n, (ast.IfExp, ast.BoolOp)) and call in ast.walk(n) for n in ast.walk(stmt))
    head = [n for n in ast.iter_child_nodes(stmt) if not isinstance(n, ast.stmt)]
    effects, others = find_effects(call, helpers), find_effects(head, helpers, [call])
    return whole or not effects or not (chosen or effects - READS or others - READS)


def bind_arguments(helper: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """The argument of each parameter; None if they do not fit."""
    params, defaults = [a.arg for a in helper.args.args], helper.args.defaults
    if len(call.args) > len(params) or any(isinstance(a, ast.Starred) for a in call.args) or helper.args.kwonlyargs:
        return None
    given = dict(zip(params[len(params) - len(defaults) :], defaults, strict=True)) if defaults else {}
    given |= dict(zip(params, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg not in params:
            return None
        given[keyword.arg] = keyword.value
    return given if set(given) == set(params) else None
