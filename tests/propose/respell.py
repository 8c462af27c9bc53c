"""One kernel in several spellings, as people write them: the same values, in other words."""

from __future__ import annotations

import ast
import itertools

from kernelsearch.kernel.language import FUNCTIONS, VARIADIC
from kernelsearch.kernel.source import Kernel


def commute(module: ast.Module) -> None:
    """`b + a` for `a + b`, and `b * a` for `a * b`."""
    for node in ast.walk(module):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
            node.left, node.right = node.right, node.left


def name_addresses(module: ast.Module) -> None:
    """Each address that an access computes has a name, assigned just before."""
    names = (f"at_{number}" for number in itertools.count(1))

    def rewrite(block: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for stmt in block:
            inner = [name for name in ("body", "orelse") if isinstance(getattr(stmt, name, None), list)]
            for name in inner:
                setattr(stmt, name, rewrite(getattr(stmt, name)))
            for node in () if inner else reversed(list(ast.walk(stmt))):
                if _name_of(node) in ("load", "store") and node.args and not isinstance(node.args[0], ast.Name):
                    name = next(names)
                    out.append(ast.Assign([ast.Name(name, ast.Store())], node.args[0]))
                    node.args[0] = ast.Name(name, ast.Load())
            out.append(stmt)
        return out

    for function in (n for n in module.body if isinstance(n, ast.FunctionDef)):
        function.body = rewrite(function.body)


def drop_suffixes(module: ast.Module) -> None:
    """`X` for `x_ptr`."""
    for node in ast.walk(module):
        for field in ("id", "arg"):
            if str(getattr(node, field, "")).endswith("_ptr"):
                setattr(node, field, getattr(node, field).removesuffix("_ptr").upper())


def use_keywords(module: ast.Module) -> None:
    """`tl.load(pointer=p)` for `tl.load(p)`."""
    for node in ast.walk(module):
        if (name := _name_of(node)) in FUNCTIONS and name not in VARIADIC | {"range", "static_range"}:
            named = [ast.keyword(n, a) for n, a in zip(FUNCTIONS[name], node.args)]
            node.args, node.keywords = node.args[len(named) :], [*named, *node.keywords]


SPELLINGS = {
    "commuted": commute, "addresses named": name_addresses, "no suffix": drop_suffixes, "keywords": use_keywords,
}  # fmt: skip


def respell(text: str, spelling: str) -> str:
    """The text of a kernel file in another spelling."""
    module = ast.parse(text)
    SPELLINGS[spelling](module)
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


def respell_kernel(kernel: Kernel, spelling: str) -> Kernel:
    return Kernel.parse(respell(kernel.render(), spelling))


def _name_of(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Attribute(ast.Name("tl"), name)):
            return name
    return ""
