"""The part of a task file that a package needs: launcher, reference and inputs, with all that they use, and no kernels.

Statements of the file's top level are kept or left out whole, in their order and with the comments above them. What
cannot be shipped (other modules, files that are read, a kernel used in another way than `kernel[grid](...)`) raises
ExportError with the line and the reason.
"""

from __future__ import annotations

import ast
import symtable
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from kernelsearch.core.parsing import parsed
from kernelsearch.export.errors import ExportError

LIBRARIES = frozenset({"torch", "triton", "__future__"})
"""What may be imported besides the standard library: a package needs nothing else."""

FILES = frozenset({"open", "__file__", "__path__", "exec", "eval", "__import__"})
MODULES = frozenset({"importlib", "subprocess", "ctypes", "pathlib", "glob", "socket", "urllib"})
"""Modules of the standard library whose use says that the file does not stand alone."""


@dataclass(frozen=True)
class Shipped:
    """The text of a module, and which names of the task file it holds."""

    text: str
    names: frozenset[str]


def shipped(
    text: str, file: str, roots: Sequence[str], sites: Collection[str], head: str, *, lenient: bool = False
) -> Shipped:
    """The module of these roots. sites are the kernels that the launcher launches: they become imported `Site`s.

    head is the module's docstring; lenient lets a function import any package when it is called. Raises ExportError.
    """
    work = _File(text, file, frozenset(sites), lenient)
    kept = work.reached(roots)
    parts = [f'"""{head}"""', "", "from __future__ import annotations", ""]
    imports = [work.import_text(n, work.used_names(kept)) for n in kept if isinstance(n, (ast.Import, ast.ImportFrom))]
    parts += [i for i in imports if i]
    used = sorted(site for site in sites if work.uses(kept, site))
    if used:
        parts += ["", f"from .sites import {', '.join(used)}"]
    for node in kept:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            gap = [""] if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)) else ["", ""]
            parts += [*gap, work.segment(node)]
    defined = frozenset(name for node in kept for name in bound_names(node))
    return Shipped("\n".join(parts).rstrip() + "\n", defined)


class _File:
    def __init__(self, text: str, file: str, sites: frozenset[str], lenient: bool = False) -> None:
        self.file, self.sites, self.lenient = file, sites, lenient
        self.tree = parsed(text)
        self.lines = text.splitlines()
        self.statements = [n for n in self.tree.body if not _is_main(n) and not _is_docstring(n)]
        for site in sorted(sites):
            if not any(isinstance(n, ast.FunctionDef) and n.name == site for n in self.statements):
                raise ExportError(
                    f"{file}: kernel {site} is launched, but not defined at the file's top level: move it into the file"
                )

    def reached(self, roots: Sequence[str]) -> list[ast.stmt]:
        """Statements that define the roots and what they use.

        One that only acts is left out (a script's tests and prints, switches of torch: importing a package must change
        nothing), but for assignments into what was defined here (`TABLE["x"] = 1`).
        """
        binding: dict[str, list[ast.stmt]] = {}
        for node in self.statements:
            for name in bound_names(node) or _changed(node):
                binding.setdefault(name, []).append(node)
        missing = [name for name in roots if name not in binding]
        if missing:
            raise ExportError(f"{self.file}: {missing[0]} is not defined at the file's top level")
        kept: set[int] = set()
        queue = list(roots)
        while queue:
            name = queue.pop()
            for node in binding.get(name, ()):
                if id(node) not in kept and not self._is_site(node):
                    kept.add(id(node))
                    if not isinstance(node, (ast.Import, ast.ImportFrom)):
                        queue.extend(loaded(node))
        chosen = [n for n in self.statements if id(n) in kept]
        for node in chosen:
            self._refuse(node, self.used_names(chosen))
        return chosen

    def _is_site(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.FunctionDef) and node.name in self.sites

    def used_names(self, kept: Sequence[ast.stmt]) -> frozenset[str]:
        return frozenset(name for n in kept if not isinstance(n, (ast.Import, ast.ImportFrom)) for name in loaded(n))

    def uses(self, kept: Sequence[ast.stmt], name: str) -> bool:
        return name in self.used_names(kept)

    # ------------------------------------------------------------ what cannot be shipped

    def _refuse(self, node: ast.stmt, used: frozenset[str]) -> None:
        for item in ast.walk(node):
            if isinstance(item, (ast.Import, ast.ImportFrom)):
                if item is node or not self.lenient:
                    self._refuse_import(item, used if item is node else None)
            elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load) and item.id in FILES:
                self._no(item, f"uses {item.id}, so that it needs more than its own text")
            elif isinstance(item, ast.Attribute) and item.attr in ("load_inline", "cpp_extension"):
                self._no(item, f"builds an extension ({item.attr})")
        for use in _wrong_uses(node, self.sites):
            self._no(use, f"uses kernel {use.id} in another way than `{use.id}[grid](...)`")

    def _refuse_import(self, node: ast.Import | ast.ImportFrom, used: frozenset[str] | None) -> None:
        if isinstance(node, ast.ImportFrom) and node.level:
            self._no(node, "imports relatively")
        for alias in node.names:
            if alias.name == "*":
                self._no(node, f"imports everything of {node.module}: name what is needed")
            if used is not None and _binds(alias) not in used:
                continue
            module = (node.module if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0]
            if module in MODULES or (module not in LIBRARIES and module not in sys.stdlib_module_names):
                self._no(
                    node,
                    f"imports {module}, which an exported package cannot count on: "
                    "put what the launcher and the reference need of it into the task file",
                )

    def _no(self, node: ast.AST, why: str) -> None:
        raise ExportError(f"{self.file} cannot be shipped: line {node.lineno} {why}")

    # ------------------------------------------------------------ text

    def import_text(self, node: ast.Import | ast.ImportFrom, used: frozenset[str]) -> str:
        """An import with the names that are used; empty when none is."""
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return ""
        names = [a for a in node.names if _binds(a) in used]
        if isinstance(node, ast.ImportFrom):
            return ast.unparse(ast.ImportFrom(node.module, names, 0)) if names else ""
        return "\n".join(ast.unparse(ast.Import([a])) for a in names)

    def segment(self, node: ast.stmt) -> str:
        """The statement's own text with the comments above it; `wrap_triton(kernel)` becomes the kernel."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
        above = first
        while above > 0 and self.lines[above - 1].startswith("#") and not self.lines[above - 1].startswith("#!"):
            above -= 1
        lines = [line.encode() for line in self.lines[above : node.end_lineno]]
        calls = [c for c in ast.walk(node) if _is_wrap(c) and c.args[0].id in self.sites]
        for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset), reverse=True):
            row, end = call.lineno - 1 - above, call.end_lineno - 1 - above
            tail = lines[end][call.end_col_offset :]
            lines[row : end + 1] = [lines[row][: call.col_offset] + call.args[0].id.encode() + tail]
        return b"\n".join(lines).decode()


def reads(text: str, roots: Sequence[str]) -> set[str]:
    """Names of the file's top level that these and what they use read; a parameter of the same name hides one."""
    tree = parsed(text)
    binding: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in bound_names(node):
            binding.setdefault(name, []).append(node)
    found, queue = set(), list(roots)
    while queue:
        for node in binding.get(queue.pop(), ()):
            new = _global_reads(symtable.symtable(ast.unparse(node), "task", "exec")) & set(binding) - found
            found |= new
            queue.extend(new)
    return found


def _global_reads(table: symtable.SymbolTable) -> set[str]:
    outermost = table.get_type() == "module"
    found = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (outermost or s.is_global())}
    return found.union(*map(_global_reads, table.get_children()))


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _binds(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def bound_names(node: ast.stmt) -> set[str]:
    """Names that a top-level statement gives to the module; those inside functions and classes are their own."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {_binds(a) for a in names}
    found = {n.id for n in _outside_functions(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    inner = [n for n in _outside_functions(node) if n is not node and isinstance(n, ast.stmt)]
    return found.union(*(bound_names(n) for n in inner if isinstance(n, _NAMED))) if inner else found


def _changed(node: ast.stmt) -> set[str]:
    """The names whose insides a statement assigns to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    found = set()
    for target in targets:
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            target = target.value
        if isinstance(target, ast.Name) and target.id not in LIBRARIES:
            found.add(target.id)
    return found


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _outside_functions(child)


def loaded(node: ast.AST) -> set[str]:
    """Names that a statement reads anywhere; annotations that are texts count as read."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return found | {
        n.target.id for n in ast.walk(node) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }


def _is_wrap(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Name)):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in ("wrap_triton", "capture_triton")


def _wrong_uses(node: ast.stmt, sites: Collection[str]) -> list[ast.Name]:
    """Uses of a site's name that a `Site` cannot stand in for."""
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
        if _is_wrap(item):
            right.add(id(item.args[0]))
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in sites)
    return [n for n in names if id(n) not in right]
