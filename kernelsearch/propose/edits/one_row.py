"""A kernel of [ROWS, BLOCK] tiles as one of a single row a program, in blocks of one dimension, for other edits.

It gains nothing by itself: long rows have one row a program anyway. `rows_2d` goes the other way.
"""

from __future__ import annotations

import ast
import copy

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import ACCESSES
from kernelsearch.propose.analysis.shapes import ANY_SHAPE
from kernelsearch.propose.analysis.view import NotApplicable, View, refuse_if
from kernelsearch.propose.edits.peel_tail import remove_masks

ALONG = frozenset("sum max min argmax argmin reduce cumsum cumprod associative_scan".split())
"""Functions of `tl` whose second argument is an axis."""


def take_one_row(view: View) -> View | None:
    """The view of the kernel with one row a program; None if no tile has rows that program id 0 alone decides.

    Raises NotApplicable for what may mean something else in one dimension.
    """
    if (rows := _find_rows(view)) is None:
        return None
    block, index, count = rows
    _must_have_form(view)
    along = {f.name for f in view.helpers.values() if f.params[-1:] == ("axis",)}
    body = [_as_one_row(s, block, along) for s in copy.deepcopy(view.body)]
    body = _in_plain_words(remove_masks(body, [f"{index} < {count}"]))
    refuse_if(block in tree.reads(body), f"{block} decides more than the rows of a tile")
    grid = f"({count}, {view.grid[1]}, {view.grid[2]})"
    kernel = view.rewrite(tree.rebuild(view.node, body, drop=block), "", grid=grid).kernel
    one = view.with_kernel(kernel)
    return one.in_normal_form() or one


def _find_rows(view: View) -> tuple[str, str, str] | None:
    """The constexpr with a tile's rows, the name of their indices, and the parameter with their number."""
    for stmt in view.body:
        pair = tree.assignment(stmt)
        blocks = [
            b for b in view.function.constexprs if pair and f"tl.arange(0, {b})[:, None]" in tree.text_of(pair[1])
        ]
        if not pair or not blocks:
            continue
        name, (block, *_) = pair[0], blocks
        text = tree.text_of(view.flow.expand(pair[1], stmt))
        masks = {c for s in view.body for c in ast.walk(s) if isinstance(c, ast.Compare)}
        below = [c for c in masks if tree.text_of(c.left) == name and isinstance(c.ops[0], ast.Lt)]
        tested = {tree.text_of(c.comparators[0]) for c in below}
        known = tested & set(view.function.params)
        if text == f"tl.program_id(0) * {block} + tl.arange(0, {block})[:, None]" and len(known) == len(tested) == 1:
            return block, name, known.pop()
    return None


def _must_have_form(view: View) -> None:
    """Raises NotApplicable for what may mean something else in one dimension."""
    view.must_only(ACCESSES, view.body)
    refuse_if(any(view.shapes.of(c) is None for c in tree.calls(view.node, "load")), "a block's shape is not known")
    own = ast.Module(view.body, [])
    for body in (own, *(tree.function_of(f.text) for f in view.helpers.values())):
        for node in ast.walk(body):
            if tree.callee(node).startswith("tl.") and not tree.is_tl(
                node, *ANY_SHAPE, *ALONG, "broadcast_to", "expand_dims"
            ):
                raise NotApplicable(f"{tree.callee(node)} has no form with one row")
            axes = tree.text_of(node.slice).strip("()") if isinstance(node, ast.Subscript) else ""
            refuse_if(axes and (body is not own or axes not in (":, None", "None, :")), "it takes a part of a block")
    for call in (n for n in ast.walk(own) if isinstance(n, ast.Call)):
        helper = view.helpers.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if tree.is_tl(call, *ALONG):
            axis = call.args[1:2]
        elif helper and helper.params[-1:] == ("axis",):
            axis = call.args[-1:]
        else:
            continue
        refuse_if(not axis or not tree.is_number(axis[0], 1), "a block is reduced along another axis")


def _as_one_row(stmt: ast.stmt, block: str, along: set[str]) -> ast.stmt:
    """The statement for the single row whose index is the program's: tiles lose their first dimension.

    along are the functions of the kernel whose last argument is an axis.
    """

    def rule(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Subscript(value=value):
                return value
            case ast.Call(args=[_, ast.Name(id=name)]) if tree.is_tl(node, "arange") and name == block:
                return ast.Constant(0)
            case ast.BinOp(left=left, op=ast.Mult(), right=ast.Name(id=name)) if name == block:
                return left
            case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(0)):
                return left
            case ast.List(elts=[ast.Name(id=name), *others]) | ast.Tuple(elts=[ast.Name(id=name), *others]):
                if name == block and others:
                    refuse_if(any(tree.is_number(o, 1) for o in others), "a column of values is made")
                    return type(node)(others, ast.Load())
            case ast.Call(args=[value, ast.Constant(1), *others]) if tree.is_tl(node, *ALONG):
                return ast.Call(node.func, [value, ast.Constant(0), *others], node.keywords)
            case ast.Call(func=ast.Name(id=name), args=[*others, ast.Constant(1)]) if name in along:
                return ast.Call(node.func, [*others, ast.Constant(0)], node.keywords)
        return None

    return tree.transform(stmt, rule)


def _in_plain_words(body: list[ast.stmt]) -> list[ast.stmt]:
    """Columns as `start + arange`, one name for each; sums that masks keep as sums."""
    aranges = {p[0]: p[1] for s in body if (p := tree.assignment(s)) and tree.is_tl(p[1], "arange")}
    body = [s for s in body if (tree.assignment(s) or ("",))[0] not in aranges and not tree.does_nothing(s)]
    body = [tree.substitute(s, aranges) for s in body]
    for loop in tree.loops(body):
        aliases: dict[str, ast.expr] = {}
        fresh = []
        for stmt in loop.body:
            stmt = tree.substitute(stmt, aliases)
            pair = tree.assignment(stmt)
            if pair and isinstance(pair[1], ast.Name) and pair[1].id not in tree.writes(loop.body[1:]):
                aliases[pair[0]] = pair[1]
            else:
                fresh.append(stmt)
        loop.body = _as_sums(fresh)
    return body


def _as_sums(body: list[ast.stmt]) -> list[ast.stmt]:
    """`t = a + v; a = where(m, t, a)` as `a = a + where(m, v, 0)`, where nothing else reads t."""
    fresh = list(body)
    for at, stmt in enumerate(body):
        match tree.assignment(stmt):
            case (t, ast.BinOp(left=ast.Name(id=a), op=ast.Add(), right=value)):
                last = next((s for s in body[at + 1 :] if t in tree.reads(s)), stmt)
                again = sum(t in tree.reads(s) for s in body)
                match tree.assignment(last):
                    case (b, ast.Call(args=[mask, ast.Name(id=u), ast.Name(id=c)]) as where) if a == b == c and t == u:
                        between = body[at + 1 : body.index(last)]
                        steady = not (tree.reads(value) | {a}) & tree.writes(between) and a not in tree.reads(between)
                        if again == 1 and steady and tree.is_tl(where, "where"):
                            kept = f"tl.where({tree.text_of(mask)}, {tree.text_of(value)}, 0)"
                            fresh[body.index(last)] = tree.statements(f"{a} = {a} + {kept}")[0]
                            fresh.remove(stmt)
                            return _as_sums(fresh)
    return body
