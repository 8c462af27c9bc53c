"""The part of a task file that a package needs: launcher, reference and inputs, with all that they use, and no kernels.

Each statement of the file's top level is kept or left out whole, in its order and with the comments above it. Code that
cannot be shipped (it imports other modules, reads files, or uses a kernel other than as `kernel[grid](...)`)
raises ExportError with the line and the reason.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn

from kernelsearch.core.parsing import parse_python
from kernelsearch.export import ExportError, cannot_ship, quote_text

LIBRARIES = frozenset({"torch", "triton", "__future__"})
"""The packages that may be imported besides the standard library."""

FILES = frozenset({"open", "__file__", "__path__", "exec", "eval", "__import__"})
MODULES = frozenset({"importlib", "subprocess", "ctypes", "pathlib", "glob", "socket", "urllib"})
"""Names and standard modules whose use means that the file does not stand alone."""

Import = ast.Import | ast.ImportFrom
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def extract_module(
    text: str,
    file: str,
    roots: Sequence[str],
    sites: Collection[str],
    head: str,
    *,
    ruled: Mapping[str, int] = MappingProxyType({}),
    lenient: bool = False,
) -> str:
    """The text of the module that holds these roots and all that they use.

    sites are the kernels that the launcher launches: they become imported `Site`s; ruled says how many
    `@triton.heuristics` some have, whose rules they keep. head is the module's docstring; lenient lets a function
    import any package when it is called. Raises ExportError.
    """
    work = _File(text, file, frozenset(sites), lenient)
    for site, count in ruled.items():
        work.add_rules(site, count)
    statements = work.find_reachable(roots)
    used = _used_names(statements)
    parts = [*find_notice(work.lines), f'"""{quote_text(head)}"""', "", "from __future__ import annotations", ""]
    parts += [code for n in statements if isinstance(n, Import) and (code := _import_text(n, used))]
    used_sites = sorted(site for site in sites if site in used)
    if used_sites:
        parts += ["", f"from .sites import {', '.join(used_sites)}"]
    for node in statements:
        if not isinstance(node, Import):
            gap = [""] if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)) else ["", ""]
            parts += [*gap, work.segment(node)]
    return "\n".join(parts).rstrip() + "\n"


def find_notice(lines: Sequence[str]) -> list[str]:
    """The comment at the top of a file, if it is about its licence or owner: copies must keep it."""
    top = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    return top if re.search("copyright|licen[cs]e", "\n".join(top), re.IGNORECASE) else []


class _File:
    def __init__(self, text: str, file: str, sites: frozenset[str], lenient: bool = False) -> None:
        self.file, self.sites, self.lenient = file, sites, lenient
        self.tree = parse_python(text)
        self.lines = text.splitlines()
        self.statements = [n for n in self.tree.body if not _is_main(n) and not _is_docstring(n)]
        self.made: dict[int, str] = {}  # statements that stand in for decorators of kernels, with their texts
        for site in sorted(sites):
            if not any(isinstance(n, ast.FunctionDef) and n.name == site for n in self.statements):
                raise ExportError(
                    f"{file}: kernel {site} is launched, but not defined at the file's top level: move it into the file"
                )

    def add_rules(self, site: str, count: int) -> None:
        """Adds a statement that gives a `Site` the rules of its kernel's `@triton.heuristics`, outermost first."""
        kernel = next(n for n in self.statements if isinstance(n, ast.FunctionDef) and n.name == site)
        rules = [found for d in kernel.decorator_list if (found := _find_rules(d)) is not None]
        if len(rules) != count:
            self._refuse(
                kernel, "has heuristics in another form: write @triton.heuristics with its values above the kernel"
            )
        values = [textwrap.dedent(ast.get_source_segment("\n".join(self.lines), r, padded=True) or "") for r in rules]
        text = f"{site}.rules = ({', '.join(values)},)"
        (node,) = parse_python(text).body
        ast.increment_lineno(node, kernel.lineno - 1)
        self.made[id(node)] = text
        self.statements.insert(self.statements.index(kernel) + 1, node)

    def find_reachable(self, roots: Sequence[str]) -> list[ast.stmt]:
        """The statements that define the roots and what they use.

        A statement that only acts is left out (tests, prints, switches of torch: importing a package must change
        nothing), except assignments into something defined here (`TABLE["x"] = 1`).
        """
        binding = _find_binders(self.statements)
        missing = [name for name in roots if name not in binding]
        if missing:
            raise ExportError(f"{self.file}: {missing[0]} is not defined at the file's top level")
        needed: set[int] = set()
        queue = list(roots)
        while queue:
            for node in binding.get(queue.pop(), ()):
                is_site = isinstance(node, ast.FunctionDef) and node.name in self.sites
                if id(node) not in needed and not is_site:
                    needed.add(id(node))
                    if not isinstance(node, Import):
                        queue.extend(_loaded_names(node))
        statements = [n for n in self.statements if id(n) in needed]
        used = _used_names(statements)
        for node in statements:
            self._check(node, used)
        return statements

    # ------------------------------------------------------------ what cannot be shipped

    def _check(self, node: ast.stmt, used: Collection[str]) -> None:
        for item in ast.walk(node):
            if isinstance(item, Import):
                if item is node or not self.lenient:
                    self._check_import(item, used if item is node else None)
            elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load) and item.id in FILES:
                self._refuse(item, f"uses {item.id}, so that it needs more than its own text")
            elif isinstance(item, ast.Attribute) and item.attr in ("load_inline", "cpp_extension"):
                self._refuse(item, f"builds an extension ({item.attr})")
        for use in _other_uses(node, self.sites) if id(node) not in self.made else ():
            self._refuse(use, f"uses kernel {use.id} other than as `{use.id}[grid](...)`")

    def _check_import(self, node: Import, used: Collection[str] | None) -> None:
        if isinstance(node, ast.ImportFrom) and node.level:
            self._refuse(node, "imports relatively")
        for alias in node.names:
            if alias.name == "*" and isinstance(node, ast.ImportFrom):
                self._refuse(node, f"imports everything from {node.module}: name what is needed")
            if used is not None and _bound_name(alias) not in used:
                continue
            module = ((node.module or "") if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0]
            if module in MODULES or (module not in LIBRARIES and module not in sys.stdlib_module_names):
                self._refuse(
                    node,
                    f"imports {module}, which an exported package cannot count on: "
                    "put what the launcher and the reference need of it into the task file",
                )

    def _refuse(self, node: ast.stmt | ast.expr, why: str) -> NoReturn:
        raise cannot_ship(self.file, f"line {node.lineno} {why}")

    # ------------------------------------------------------------ text

    def segment(self, node: ast.stmt) -> str:
        """The statement's own text with the comments above it; `wrap_triton(kernel)` becomes the kernel."""
        if id(node) in self.made:
            return self.made[id(node)]
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
        above = first
        while above > 0 and self.lines[above - 1].startswith("#") and not self.lines[above - 1].startswith("#!"):
            above -= 1
        lines = [line.encode() for line in self.lines[above : node.end_lineno]]
        calls = [c for n in ast.walk(node) if (c := _find_wrap(n)) is not None and c[1].id in self.sites]
        for call, kernel in sorted(calls, key=lambda c: (c[0].lineno, c[0].col_offset), reverse=True):
            row, end = call.lineno - 1 - above, (call.end_lineno or call.lineno) - 1 - above
            tail = lines[end][call.end_col_offset :]
            lines[row : end + 1] = [lines[row][: call.col_offset] + kernel.id.encode() + tail]
        return b"\n".join(lines).decode()


def _find_rules(decorator: ast.expr) -> ast.expr | None:
    """The values of `@triton.heuristics(values)`, None for another decorator."""
    if not isinstance(decorator, ast.Call):
        return None
    called = decorator.func.attr if isinstance(decorator.func, ast.Attribute) else getattr(decorator.func, "id", "")
    given = [*decorator.args, *(k.value for k in decorator.keywords)]
    return given[0] if called == "heuristics" and len(given) == 1 else None


def _import_text(node: Import, used: Collection[str]) -> str:
    """An import reduced to the names that are used; empty when none is."""
    names = [a for a in node.names if _bound_name(a) in used]
    if isinstance(node, ast.Import):
        return "\n".join(ast.unparse(ast.Import([a])) for a in names)
    return ast.unparse(ast.ImportFrom(node.module, names, 0)) if names and node.module != "__future__" else ""


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _bound_name(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def bound_names(node: ast.AST) -> set[str]:
    """The names that a statement binds at the top level; functions and classes keep those inside them."""
    if isinstance(node, Definition):
        return {node.name}
    if isinstance(node, Import):
        return {_bound_name(a) for a in node.names}
    names = {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
    children = () if isinstance(node, ast.Lambda) else ast.iter_child_nodes(node)
    return names.union(*map(bound_names, children))


def _find_binders(statements: Sequence[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """The statements that bind a name, or assign to its insides, by name."""
    binders: dict[str, list[ast.stmt]] = {}
    for node in statements:
        for name in bound_names(node) or _changed_names(node):
            binders.setdefault(name, []).append(node)
    return binders


def _changed_names(node: ast.stmt) -> set[str]:
    """The names whose insides a statement assigns to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    names = set()
    for target in targets:
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            target = target.value
        if isinstance(target, ast.Name) and target.id not in LIBRARIES:
            names.add(target.id)
    return names


def _used_names(statements: Sequence[ast.stmt]) -> set[str]:
    return {name for node in statements if not isinstance(node, Import) for name in _loaded_names(node)}


def _loaded_names(node: ast.AST) -> set[str]:
    """The names that a statement reads anywhere; `x += 1` reads x."""
    read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    changed = {n.target.id for n in ast.walk(node) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}
    return read | changed


def _find_wrap(node: ast.AST) -> tuple[ast.Call, ast.Name] | None:
    """The call `wrap_triton(kernel)` with the kernel's name, None for another node."""
    if not (isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(kernel := node.args[0], ast.Name)):
        return None
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return (node, kernel) if called in ("wrap_triton", "capture_triton") else None


def _other_uses(node: ast.stmt, sites: Collection[str]) -> list[ast.Name]:
    """Uses of a site's name where a `Site` cannot stand in for the kernel."""
    right: set[int] = set()
    for item in ast.walk(node):
        match item:
            case ast.Subscript(value=ast.Name() as name):
                right.add(id(name))
            case ast.Assign(value=ast.Name() as name) | ast.IfExp(body=ast.Name() as name):
                right.add(id(name))
            case ast.Dict(values=values):
                right |= {id(v) for v in values}
            case ast.Tuple(elts=values) | ast.List(elts=values):
                right |= {id(v) for v in values}
        if isinstance(item, ast.IfExp):
            right.add(id(item.orelse))
        if (wrap := _find_wrap(item)) is not None:
            right.add(id(wrap[1]))
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in sites)
    return [n for n in names if id(n) not in right]
